"""`--figure OUT.svg`: a heat map beside a command's output. Knows nothing of any one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from atlas_engine.cli.command import MisuseError
from atlas_engine.files import replacing
from atlas_engine.views.figures import Grid, heat_map

__all__ = ["add_figure_flag", "write_figure"]


def add_figure_flag(parser: argparse.ArgumentParser, *, about: str) -> None:
    """`--figure OUT.svg` in a folder that exists."""
    parser.add_argument("--figure", type=_svg, metavar="OUT.svg", help=about)


def write_figure(path: Path, grid: Grid) -> None:
    """Write the heat map, whole or not at all."""
    try:
        with replacing(path) as part:
            part.write_text(heat_map(grid), encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"cannot write {path} ({error.strerror}). Choose another file.") from error


def _svg(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".svg" or path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"'{text}' must be a file name ending in .svg in a folder that exists"
        )
    return path
