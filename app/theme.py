"""How the page looks and feels: Gradio's theme without fonts from elsewhere, our style sheet and script.

Monochrome is the stock theme whose colours all pass the contrast rules, light and dark.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

__all__ = ["DROP_SCRIPT", "STYLE_SHEET", "theme"]

STYLE_SHEET = Path(__file__).with_name("theme.css")
DROP_SCRIPT = Path(__file__).with_name("drop.js")

_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Monochrome with the visitor's own fonts and round corners: nothing is fetched."""
    sizes = gr.themes.sizes
    return gr.themes.Monochrome(
        font=_SANS, font_mono=_MONO, radius_size=sizes.radius_md, spacing_size=sizes.spacing_md
    )
