"""`atlas check DIR`: which labelled images look wrong, odd or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    PATH,
    command,
    json_flag,
    model_option,
    seed_option,
    skip_unreadable_option,
    templates_option,
)
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.adapt.image_check import ImageCheck

__all__ = ["check"]


@command("atlas check my_photos", "atlas check my_photos.zip --json")
@click.argument("folder", metavar="DIR", type=PATH, help="one sub-folder a class, or a zip of them")
@templates_option
@model_option
@skip_unreadable_option
@seed_option("what is held out")
@json_flag
def check(
    *,
    folder: Path,
    templates: tuple[str, ...],
    model: str,
    skip_unreadable: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Say which of your images look mislabelled, odd or doubled.

    Nothing is changed or moved: each line is an image for you to look at, the surest first.
    """
    from atlas_engine.cli.adapt import read_support
    from atlas_engine.engine import open as open_atlas

    support = read_support(folder, skip_unreadable=skip_unreadable)
    with open_atlas(model) as engine:
        found = engine.check(support, templates=templates or None, seed=seed)
    emit_json(found.as_dict()) if as_json else emit(_as_text(found))


def _as_text(found: ImageCheck) -> str:
    """The sentence, and a table of what it counts."""
    rows: list[tuple[str, str, str, str]] = [
        (one.image, one.label, "wrong label?", f"looks like {one.suggested} ({one.prob:.0%})")
        for one in found.suspects
    ]
    rows += [(one.image, one.label, "fits nowhere", "like none of the classes") for one in found.odd]
    for pair in found.duplicates:
        where = f"in '{pair.labels[1]}'" if pair.across_classes else "in the same class"
        rows.append((pair.images[0], pair.labels[0], "near-duplicate", f"of {pair.images[1]} {where}"))
    listed = f"{table(rows, ('image', 'class', 'what', 'why'))}\n\n" if rows else ""
    return f"{listed}{found.sentence}"
