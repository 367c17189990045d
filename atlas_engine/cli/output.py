"""Where words go: data to stdout, talk to stderr, text, JSON and figures to files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from atlas_engine.files import atomic_write
from atlas_engine.views.heatmap import Grid, heat_map
from atlas_engine.views.tables import printable

__all__ = ["emit", "emit_json", "say", "write_figure", "write_json", "write_text"]


def emit(text: str) -> None:
    """Print data on stdout, for the next program or for the reader."""
    click.echo(text)


def emit_json(data: object) -> None:
    """Print data as JSON on stdout."""
    emit(_json_text(data))


def say(text: str) -> None:
    """Print one line on stderr for the person at the keyboard, whatever the text holds."""
    click.echo(f"atlas: {printable(text)}", err=True)


def write_json(path: Path, data: object) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    write_text(path, _json_text(data) + "\n")


def write_figure(path: Path, grid: Grid) -> None:
    """Write a heat map as SVG, whole or not at all."""
    write_text(path, heat_map(grid))


def write_text(path: Path, text: str) -> None:
    """Write a whole file, or leave what was there and say why."""
    try:
        with atomic_write(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path} ({error.strerror}). Choose another file.") from error


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2, allow_nan=False)
