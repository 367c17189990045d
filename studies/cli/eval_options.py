"""What the commands of `atlas eval` share: flags, folders, donors, rows that outlive a stop, and the telling.

Knows nothing of any one comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from atlas_engine.cli.arguments import add_bank, add_folders, add_markdown_file, add_model, word_list
from atlas_engine.cli.command import MisuseError
from atlas_engine.cli.figure import add_figure_flag, write_figure
from atlas_engine.cli.output import add_json_file, emit, say, write_json, write_text
from atlas_engine.cli.progress import Progress

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas
    from atlas_engine.views.heatmap import Grid
    from studies.grid import Ledger
    from studies.tables import ResultTable

__all__ = [
    "KEPT",
    "add_comparison",
    "bank_words",
    "donors_of",
    "followed",
    "ledger_beside",
    "named_folders",
    "tell",
]

KEPT = (
    "With --json OUT, what is measured is kept in OUT.rows: given again, a command that was stopped goes\n"
    "on where it was, and one that asks for more measures only what is new."
)

ROWS_ENDING = ".rows"

Row = TypeVar("Row")


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its bank, and what to write."""
    add_folders(parser)
    add_model(parser)
    add_bank(parser)
    parser.add_argument(
        "--without",
        type=word_list,
        default=(),
        metavar="NAME,NAME",
        help="vectors of the bank not to use, as those made from a DIR",
    )
    add_markdown_file(parser)
    add_figure_flag(parser, about="also draw the differences to zero-shot")
    add_json_file(parser)


def named_folders(args: argparse.Namespace, *, track_pattern: str | None = None) -> dict[str, ClassFolder]:
    """The folders by names that tell them apart."""
    from atlas_engine.data.folders import read_folder
    from studies.problems.draw import dataset_names

    names = dataset_names(args.folders)
    read = [read_folder(path, track_pattern=track_pattern) for path in args.folders]
    return dict(zip(names, read, strict=True))


def ledger_beside(output: Path | None) -> Ledger:
    """What was measured already, from OUT.rows beside OUT; in memory alone where nothing is written."""
    from studies.grid import Ledger

    return Ledger(output.with_name(output.name + ROWS_ENDING) if output else None)


class Mixes(Protocol):
    """What is asked of a method here: whether it needs task vectors."""

    @property
    def mixes(self) -> bool:
        """Task vectors, so that it needs a bank."""
        ...


def donors_of(
    engine: Atlas,
    folders: Mapping[str, ClassFolder],
    *,
    without: Sequence[str],
    chosen: Sequence[str],
    methods: Mapping[str, Mixes],
) -> TaskVectorBank | None:
    """The vectors to mix, if a chosen method is to mix any; one that was made from a folder is told."""
    mixing = [name for name in chosen if methods[name].mixes]
    if not mixing:
        return None
    if engine.bank_path is None:
        others = ",".join(name for name, method in methods.items() if not method.mixes)
        raise MisuseError(
            f"{engine.backbone.name} has no bank of task vectors, and {', '.join(mixing)} need them. "
            f"Give --bank FILE, or only others: --methods {others}"
        )
    bank = engine.bank.without(without) if without else engine.bank
    _warn_of_donors(bank, folders)
    return bank


def _warn_of_donors(bank: TaskVectorBank, folders: Mapping[str, ClassFolder]) -> None:
    """A vector that was made from a folder has seen its test pictures: say so, for the numbers cannot."""
    from studies.tower_training import vectors_made_from

    for name, folder in folders.items():
        for task in vectors_made_from(bank, folder):
            say(f"vector '{task}' was made from {name}, which flatters. --without {task} leaves it out.")


def followed(work: Callable[[Callable[[str], None]], Iterable[tuple[Row, bool]]], total: int) -> list[Row]:
    """The rows of a piece of work that tells what begins, and whether each row was measured now.

    One that was known took no time, so it does not count for the time left.
    """
    rows = []
    with Progress(total, "measuring") as progress:
        for row, fresh in work(lambda note: progress.advance(0, note=note)):
            rows.append(row)
            if fresh:
                progress.advance()
            else:
                total -= 1
                progress.total = total
    return rows


def tell(
    args: argparse.Namespace,
    data: object,
    sheets: Sequence[ResultTable],
    about: str,
    *,
    grid: Grid | None = None,
) -> int:
    """Write what was asked for, and print the tables with what they depend on below them."""
    if args.json:
        write_json(args.json, data)
    if args.markdown:
        write_text(args.markdown, "\n\n".join([*(sheet.markdown() for sheet in sheets), about]) + "\n")
    if grid is not None and args.figure:
        write_figure(args.figure, grid)
    emit("\n\n".join([*(sheet.plain() for sheet in sheets), about]))
    return 0


def bank_words(engine: Atlas, bank: TaskVectorBank | None) -> str:
    """The model and the vectors, as they stand below a table."""
    vectors = "" if bank is None else f", bank {bank.fingerprint[:12]} ({len(bank)} of {bank.storage})"
    return f"{engine.backbone.name}{vectors}"
