"""What the commands of `atlas eval` share: options, folders, the bank, rows kept when stopped, the report."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from atlas_engine.cli.main import WORDS
from atlas_engine.cli.options import (
    CommandFunction,
    Decorator,
    Spread,
    all_of,
    bank_option,
    distinct_names,
    figure_option,
    folders_argument,
    json_file_option,
    markdown_option,
    model_option,
    parse_words,
    spread_options,
)
from atlas_engine.cli.output import emit, say, write_figure, write_json, write_text
from atlas_engine.cli.progress import ProgressBar

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas
    from atlas_engine.views.heatmap import Grid
    from studies.grid import Ledger
    from studies.tables import ResultTable

__all__ = [
    "RESUMES",
    "ReportFiles",
    "bank_for",
    "comparison_options",
    "describe_model",
    "measure_with_progress",
    "print_report",
    "read_folders",
    "report_options",
]

RESUMES = (
    "With --json OUT, what is measured is kept in OUT.rows: given again, a command that was stopped goes on "
    "where it was, and one that asks for more measures only what is new."
)

IN_PROCESS = Spread(None, None)

Row = TypeVar("Row")


@dataclass(frozen=True)
class ReportFiles:
    """Where a report goes besides stdout; None where it does not."""

    json: Path | None
    markdown: Path | None
    figure: Path | None
    spread: Spread

    def ledger(self) -> Ledger:
        """What was measured already, from OUT.rows beside OUT; in memory alone where no JSON is written.

        With `--on` it has the rest measured there; in a worker of such a run it is the worker's part.
        """
        from studies.grid import Ledger
        from studies.spread import SpreadLedger, assigned_ledger

        assigned = assigned_ledger()
        if assigned is not None:
            return assigned
        path = self.json.with_name(f"{self.json.name}.rows") if self.json else None
        if self.spread.on is None:
            return Ledger(path)
        return SpreadLedger(path, click.get_current_context().meta[WORDS], self.spread.open)


def report_options(figure_help: str | None, *, spreads: bool = False) -> Decorator:
    """`--json`, `--markdown` and, with a line of help for it, `--figure`; the command gets `files`.

    `spreads` adds `--on` and `--threads`, for a command whose rows come from `run_grid`.
    """

    def decorate(function: CommandFunction) -> CommandFunction:
        @functools.wraps(function)
        def with_files(
            *,
            json_file: Path | None,
            markdown: Path | None,
            figure: Path | None = None,
            spread: Spread = IN_PROCESS,
            **values: object,
        ) -> None:
            function(files=ReportFiles(json_file, markdown, figure, spread), **values)

        drawn = [] if figure_help is None else [figure_option(figure_help)]
        sides = [spread_options("folders and seeds")] if spreads else []
        return all_of(*sides, markdown_option, *drawn, json_file_option)(with_files)

    return decorate


comparison_options = all_of(
    folders_argument(),
    model_option,
    bank_option(),
    click.option(
        "--without",
        type=parse_words,
        metavar="NAME,NAME",
        help="vectors of the bank not to use, as those made from a DIR",
    ),
    report_options("also draw the differences to zero-shot", spreads=True),
)
"""Folders, a model and its bank, and what to write."""


def read_folders(paths: Sequence[Path], *, track_pattern: str | None = None) -> dict[str, ClassFolder]:
    """The folders by names that tell them apart."""
    from atlas_engine.data.folders import read_folder

    names = distinct_names(paths)
    read = [read_folder(path, track_pattern=track_pattern) for path in paths]
    return dict(zip(names, read, strict=True))


class Mixes(Protocol):
    """What is asked of a method here: whether it needs task vectors."""

    @property
    def mixes(self) -> bool:
        """Task vectors, so that it needs a bank."""
        ...


def bank_for(
    engine: Atlas,
    folders: Mapping[str, ClassFolder],
    *,
    without: Sequence[str] | None,
    chosen: Sequence[str],
    methods: Mapping[str, Mixes],
) -> TaskVectorBank | None:
    """The engine's bank less the vectors of `without`, or None if no chosen method mixes vectors.

    A vector that was made from a folder has seen its test images: that is said, for the numbers cannot.
    """
    from studies.tower_training import vectors_made_from

    mixing = [name for name in chosen if methods[name].mixes]
    if not mixing:
        return None
    if engine.bank_path is None:
        others = ",".join(name for name, method in methods.items() if not method.mixes)
        raise click.UsageError(
            f"{engine.backbone.name} has no bank of task vectors, and {', '.join(mixing)} need them. "
            f"Give --bank FILE, or leave those out: --methods {others}."
        )
    bank = engine.bank.without(without) if without else engine.bank
    for name, folder in folders.items():
        for task in vectors_made_from(bank, folder):
            say(f"vector '{task}' was made from {name}, which flatters. --without {task} leaves it out.")
    return bank


def measure_with_progress(
    work: Callable[[Callable[[str], None]], Iterable[tuple[Row, bool]]], total: int
) -> list[Row]:
    """The rows of some work that says what begins, and of each row whether it was measured just now.

    A row that was known took no time, so it does not count for the time left.
    """
    rows = []
    with ProgressBar(total, "measuring") as progress:
        for row, fresh in work(lambda note: progress.advance(0, note=note)):
            rows.append(row)
            if fresh:
                progress.advance()
            else:
                progress.total -= 1
    return rows


def print_report(
    files: ReportFiles,
    data: object,
    tables: Sequence[ResultTable],
    about: str,
    *,
    grid: Grid | None = None,
) -> None:
    """Write what was asked for, and print the tables with what they depend on below them."""
    if files.json:
        write_json(files.json, data)
    if files.markdown:
        write_text(files.markdown, "\n\n".join([*(one.markdown() for one in tables), about]) + "\n")
    if grid is not None and files.figure:
        write_figure(files.figure, grid)
    emit("\n\n".join([*(one.plain() for one in tables), about]))


def describe_model(engine: Atlas, bank: TaskVectorBank | None) -> str:
    """The model and the vectors, as they stand below a table."""
    vectors = "" if bank is None else f", bank {bank.fingerprint[:12]} ({len(bank)} of {bank.storage})"
    return f"{engine.backbone.name}{vectors}"
