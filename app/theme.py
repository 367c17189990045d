"""How the page looks and feels: Gradio's theme without fonts from elsewhere, our style sheet and scripts.

Monochrome is the stock theme whose colours all pass the contrast rules, light and dark.
"""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

from app import text
from app.limits import LIMITS

__all__ = ["STYLE_SHEET", "script", "theme"]

STYLE_SHEET = Path(__file__).with_name("theme.css")
NAMES = ("sift.js", "drop.js", "folder.js", "copy.js", "seen.js")
SCRIPTS = tuple(Path(__file__).with_name(name) for name in NAMES)

_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Monochrome with the visitor's own fonts and round corners: nothing is fetched."""
    sizes = gr.themes.sizes
    return gr.themes.Monochrome(
        font=_SANS, font_mono=_MONO, radius_size=sizes.radius_md, spacing_size=sizes.spacing_md
    )


def script() -> str:
    """Our scripts as the one function that Gradio calls when the page is there; with our words and limits."""
    told = {
        "words": text.SIFTED,
        "copied": text.COPIED,
        "most": {
            "images": LIMITS.images,
            "samples": LIMITS.samples,
            "roll": LIMITS.roll,
            "others": LIMITS.lesson_images,
        },
        "bytes": {
            "picture": LIMITS.picture_megabytes << 20,
            "file": LIMITS.file_megabytes << 20,
            "all": LIMITS.upload_megabytes << 20,
        },
        "side": LIMITS.packed_side,
    }
    calls = "\n".join(f"({path.read_text(encoding='utf-8')})({json.dumps(told)});" for path in SCRIPTS)
    return f"() => {{\n{calls}\n}}"
