"""`atlas eval task-vectors|bits|selection`: the gain of each vector, in how few bits, which to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.cli.options import (
    all_of,
    bank_option,
    command,
    folders_argument,
    model_option,
    parse_words,
    positive,
    settings,
    track_pattern_option,
)
from atlas_engine.cli.output import write_figure
from studies.banks.bits import STORAGES
from studies.banks.selection import BUDGETS
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    describe_model,
    measure_with_progress,
    print_report,
    report_options,
)
from studies.problems.few_shot import StudySettings

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas
    from studies.banks.trials import BankVariant, Trial
    from studies.grid import Ledger
    from studies.problems.few_shot import Problem
    from studies.tables import ResultTable

__all__ = ["bits", "selection", "task_vectors"]

shared_options = all_of(
    folders_argument(), bank_option(), model_option, track_pattern_option, settings(StudySettings)
)


@command(
    "atlas eval task-vectors photos/pets photos/plants --bank bank.safetensors --json task-vectors.json",
    "atlas eval task-vectors photos/pets --bank bank.safetensors --figure gains.svg --markdown gains.md",
    note=RESUMES,
)
@shared_options
@report_options("also draw the gains, and beside it cosines and norms", spreads=True)
def task_vectors(
    *,
    folders: tuple[Path, ...],
    bank: Path | None,
    model: str,
    track_pattern: str | None,
    config: StudySettings,
    files: ReportFiles,
) -> None:
    """What each vector of a bank is good for.

    Each vector alone, with coefficients learned from a few shots, and then all together.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.banks.task_vectors import (
        bank_geometry,
        cosine_grid,
        gain_grid,
        norm_grid,
        single_vector_variants,
        target_table,
    )
    from studies.tables import ResultTable

    read, ledger = _read_folders(folders, track_pattern), files.ledger()
    with open_atlas(model, bank=bank) as engine:
        study = _Study(engine, read, config, ledger, files)
        trials = study.trials(single_vector_variants(engine.bank))
        parts = bank_geometry(engine.bank)
        grids = [gain_grid(trials), cosine_grid(parts), norm_grid(parts)]
        if files.figure:
            for grid, ending in zip(grids, ("", "-cosines", "-norms"), strict=True):
                write_figure(files.figure.with_name(f"{files.figure.stem}{ending}.svg"), grid)
        tables = [target_table(trials), *map(ResultTable.of, grids)]
        study.print_report(tables, trials, {"anatomy": parts.as_dict()})


@command(
    "atlas eval bits photos/pets photos/plants --bank bank.safetensors --json bits.json",
    "atlas eval bits photos/pets --bank bank.safetensors --storages float16,int8 --markdown bits.md",
    note=RESUMES,
)
@shared_options
@click.option(
    "--storages",
    type=parse_words,
    default=",".join(STORAGES),
    metavar="S,S",
    help=f"formats to compare (default {','.join(STORAGES)})",
)
@report_options(None)
def bits(
    *,
    folders: tuple[Path, ...],
    bank: Path | None,
    model: str,
    track_pattern: str | None,
    config: StudySettings,
    storages: tuple[str, ...],
    files: ReportFiles,
) -> None:
    """What a bank loses in fewer bits.

    The bank must be stored as float32; the other formats are made from it.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.banks.bits import bits_table, cost_table, measure_costs, storage_variants, store_in_formats

    read, ledger = _read_folders(folders, track_pattern), files.ledger()
    with open_atlas(model, bank=bank) as engine:
        study = _Study(engine, read, config, ledger, files)
        stored = store_in_formats(engine.bank, storages)
        trials = study.trials(storage_variants(stored))
        measured = measure_costs(engine, stored, study.first_problem(), ledger=ledger)
        tables = [cost_table(measured), bits_table(trials)]
        study.print_report(tables, trials, {"costs": [one.as_dict() for one in measured]})


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(positive, parse_words(text)))


@command(
    "atlas eval selection photos/pets photos/plants --bank bank.safetensors --json selection.json",
    "atlas eval selection photos/pets --bank bank.safetensors --budgets 1,3 --shots 8",
    note=RESUMES,
)
@shared_options
@click.option(
    "--budgets",
    type=_numbers,
    default=",".join(map(str, BUDGETS)),
    metavar="N,N",
    help=f"how many vectors may be used, besides all (default {','.join(map(str, BUDGETS))})",
)
@report_options(None)
def selection(
    *,
    folders: tuple[Path, ...],
    bank: Path | None,
    model: str,
    track_pattern: str | None,
    config: StudySettings,
    budgets: tuple[int, ...],
    files: ReportFiles,
) -> None:
    """Which vectors to use, if only some.

    Strategies: at random, by features, by gradient, by gradient per block.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.banks.selection import selection_tables, selection_variants

    read, ledger = _read_folders(folders, track_pattern), files.ledger()
    with open_atlas(model, bank=bank) as engine:
        study = _Study(engine, read, config, ledger, files)
        arms = selection_variants(engine, engine.bank, budgets=budgets)
        trials = study.trials(arms)
        study.print_report(selection_tables(trials), trials, {})


# ---- what the three share


def _read_folders(paths: Sequence[Path], track_pattern: str | None) -> list[ClassFolder]:
    from atlas_engine.data.folders import read_folder

    return [read_folder(path, track_pattern=track_pattern) for path in paths]


@dataclass(frozen=True, eq=False)
class _Study:
    """A command at work: its engine, targets, settings, the trials that are done already, and its files."""

    engine: Atlas
    folders: Sequence[ClassFolder]
    settings: StudySettings
    ledger: Ledger
    files: ReportFiles

    def trials(self, arms: Sequence[BankVariant]) -> list[Trial]:
        """Every arm on every target and seed."""
        from studies.banks.trials import run_trials

        return measure_with_progress(
            lambda on_start: run_trials(
                self.engine,
                arms,
                self.folders,
                settings=self.settings,
                ledger=self.ledger,
                on_start=on_start,
            ),
            len(arms) * len(self.folders) * self.settings.seeds,
        )

    def first_problem(self) -> Problem:
        """The first target's first problem."""
        from studies.problems.few_shot import draw_problem

        preprocessing = self.engine.backbone.preprocessing
        return draw_problem(self.folders[0], preprocessing, settings=self.settings, seed=0)

    def print_report(
        self, tables: Sequence[ResultTable], trials: Sequence[Trial], more: dict[str, Any]
    ) -> None:
        """Write what was asked for, and print the tables."""
        data = {**self.facts(), "trials": [one.as_dict() for one in trials], **more}
        print_report(self.files, data, tables, self.about())

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""
        bank = self.engine.bank
        return {
            "model": self.engine.backbone.name,
            "model_fingerprint": self.engine.fingerprint,
            "bank_fingerprint": bank.fingerprint,
            "storage": bank.storage,
            "vectors": list(bank.tasks),
            "targets": [folder.name for folder in self.folders],
            "settings": self.settings.as_dict(),
        }

    def about(self) -> str:
        """The same in words, to stand below a table."""
        chosen = self.settings
        return (
            f"{describe_model(self.engine, self.engine.bank)}; {chosen.shots} shots, {chosen.seeds} seed(s), "
            f"at most {chosen.max_classes} classes and {chosen.max_test} test images a target, "
            f"{chosen.steps} steps of {chosen.batch} at lr {chosen.lr:g}. ± is the standard deviation over "
            "seeds."
        )
