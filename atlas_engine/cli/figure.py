"""`--figure OUT.svg`: a heat map beside a command's output. Knows nothing of any one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from atlas_engine.cli.output import writable, write_text
from atlas_engine.views.heatmap import Grid, heat_map

__all__ = ["add_figure_flag", "write_figure"]


def add_figure_flag(parser: argparse.ArgumentParser, *, about: str) -> None:
    """`--figure OUT.svg` in a folder that exists."""
    parser.add_argument("--figure", type=_svg, metavar="OUT.svg", help=about)


def write_figure(path: Path, grid: Grid) -> None:
    """Write the heat map, whole or not at all."""
    write_text(path, heat_map(grid))


def _svg(text: str) -> Path:
    if Path(text).suffix.lower() != ".svg":
        raise argparse.ArgumentTypeError(f"'{text}' must end in .svg")
    return writable(text)
