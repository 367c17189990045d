"""`atlas eval donors|bits|selection`: what a bank's vectors are good for, in how few bits, which to use."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atlas_engine.cli.arguments import (
    add_bank,
    add_folders,
    add_markdown_file,
    add_model,
    add_track_pattern,
    positive,
    word_list,
)
from atlas_engine.cli.command import Command
from atlas_engine.cli.figure import add_figure_flag, write_figure
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_file
from studies.cli.eval_options import KEPT, bank_words, followed, ledger_beside, tell

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas
    from studies.banks.trials import BankVariant, Trial
    from studies.grid import Ledger
    from studies.problems.few_shot import Problem, StudySettings
    from studies.tables import ResultTable

__all__ = ["BITS", "DONORS", "SELECTION"]


def donor_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, a bank, settings, and a figure."""
    _arguments(parser)
    add_figure_flag(parser, about="also draw the gains, and beside it cosines and norms")


def run_donors(args: argparse.Namespace) -> int:
    """Measure each vector alone on every target, and all together; print gains, cosines and norms."""
    from studies.banks.task_vectors import (
        bank_geometry,
        cosine_grid,
        gain_grid,
        norm_grid,
        single_vector_variants,
        target_table,
    )
    from studies.tables import ResultTable

    with _opened(args) as study:
        trials = study.trials(single_vector_variants(study.engine.bank))
        parts = bank_geometry(study.engine.bank)
        grids = [gain_grid(trials), cosine_grid(parts), norm_grid(parts)]
        if args.figure:
            for grid, ending in zip(grids, ("", "-cosines", "-norms"), strict=True):
                write_figure(args.figure.with_name(f"{args.figure.stem}{ending}.svg"), grid)
        sheets = [target_table(trials), *map(ResultTable.of, grids)]
        return study.tell(args, sheets, trials, {"anatomy": parts.as_dict()})


def bit_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, a bank, settings, and the formats."""
    from studies.banks.bits import STORAGES

    _arguments(parser)
    parser.add_argument(
        "--storages",
        type=word_list,
        default=STORAGES,
        metavar="S,S",
        help=f"formats to compare (default {','.join(STORAGES)})",
    )


def run_bits(args: argparse.Namespace) -> int:
    """Measure the bank in each format on every target, and time the formats; print a row for each."""
    from studies.banks.bits import bits_table, cost_table, measure_costs, storage_variants, store_in_formats

    with _opened(args) as study:
        stored = store_in_formats(study.engine.bank, args.storages)
        trials = study.trials(storage_variants(stored))
        found = measure_costs(study.engine, stored, study.problem(), ledger=study.ledger)
        sheets = [cost_table(found), bits_table(trials)]
        return study.tell(args, sheets, trials, {"costs": [one.as_dict() for one in found]})


def selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, a bank, settings, and the budgets."""
    from studies.banks.selection import BUDGETS

    _arguments(parser)
    parser.add_argument(
        "--budgets",
        type=_numbers,
        default=BUDGETS,
        metavar="N,N",
        help=f"how many vectors may be used, besides all (default {','.join(map(str, BUDGETS))})",
    )


def run_selection(args: argparse.Namespace) -> int:
    """Measure every strategy at every budget on every target; print the means over targets, then each."""
    from studies.banks.selection import selection_tables, selection_variants

    with _opened(args) as study:
        arms = selection_variants(study.engine, study.engine.bank, budgets=args.budgets)
        trials = study.trials(arms)
        return study.tell(args, selection_tables(trials), trials, {})


# ---- what the three share


def _arguments(parser: argparse.ArgumentParser) -> None:
    from studies.problems.few_shot import StudySettings

    add_folders(parser)
    add_bank(parser)
    add_model(parser)
    add_track_pattern(parser)
    add_markdown_file(parser)
    add_settings(parser, StudySettings)
    add_json_file(parser)


@contextmanager
def _opened(args: argparse.Namespace) -> Iterator[_Study]:
    """The engine with its bank, and the trials done before."""
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.problems.few_shot import StudySettings

    settings = settings_from(args, StudySettings)
    folders = [read_folder(path, track_pattern=args.track_pattern) for path in args.folders]
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        yield _Study(engine, folders, settings, ledger)


@dataclass(frozen=True, eq=False)
class _Study:
    """A command at work: its engine, targets, settings, and the trials that are done already."""

    engine: Atlas
    folders: Sequence[ClassFolder]
    settings: StudySettings
    ledger: Ledger

    def trials(self, arms: Sequence[BankVariant]) -> list[Trial]:
        """Every arm on every target and seed."""
        from studies.banks.trials import run_trials

        return followed(
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

    def problem(self) -> Problem:
        """The first target's first problem."""
        from studies.problems.few_shot import draw_problem

        shape = self.engine.backbone.preprocessing
        return draw_problem(self.folders[0], shape, settings=self.settings, seed=0)

    def tell(
        self,
        args: argparse.Namespace,
        sheets: Sequence[ResultTable],
        trials: Sequence[Trial],
        more: dict[str, Any],
    ) -> int:
        """Write what was asked for, and print the tables."""
        data = {**self.facts(), "trials": [one.as_dict() for one in trials], **more}
        return tell(args, data, sheets, self.about())

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
            f"{bank_words(self.engine, self.engine.bank)}; {chosen.shots} shots, {chosen.seeds} seed(s), at "
            f"most {chosen.max_classes} classes and {chosen.max_test} test images a target, {chosen.steps} "
            f"steps of {chosen.batch} at lr {chosen.lr:g}. ± is the standard deviation over seeds."
        )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(positive, word_list(text)))


DONORS = Command(
    donor_arguments,
    run_donors,
    examples=(
        "atlas eval donors photos/pets photos/plants --bank bank.safetensors --json donors.json",
        "atlas eval donors photos/pets --bank bank.safetensors --figure donors.svg --markdown donors.md",
    ),
    about=f"Each vector alone, with coefficients learned from a few shots, and then all together.\n{KEPT}",
)
BITS = Command(
    bit_arguments,
    run_bits,
    examples=(
        "atlas eval bits photos/pets photos/plants --bank bank.safetensors --json bits.json",
        "atlas eval bits photos/pets --bank bank.safetensors --storages float16,int8 --markdown bits.md",
    ),
    about=f"The bank must be stored as float32; the other formats are made from it.\n{KEPT}",
)
SELECTION = Command(
    selection_arguments,
    run_selection,
    examples=(
        "atlas eval selection photos/pets photos/plants --bank bank.safetensors --json selection.json",
        "atlas eval selection photos/pets --bank bank.safetensors --budgets 1,3 --shots 8",
    ),
    about=f"Strategies: at random, by features, by gradient, by gradient per block.\n{KEPT}",
)
