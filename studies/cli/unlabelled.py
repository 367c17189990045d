"""`atlas eval test-time`: methods that learn from unlabelled images, compared on folders of classes."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import word_list
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.errors import ConfigError, unknown_name
from studies.cli.eval_options import (
    KEPT,
    add_comparison,
    bank_words,
    donors_of,
    followed,
    ledger_beside,
    named_folders,
    tell,
)

if TYPE_CHECKING:
    from studies.corruptions import Corruption
    from studies.methods import UnlabelledSolver
    from studies.unlabelled import UnlabelledStudySettings

__all__ = ["TEST_TIME"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its bank, damage, settings, and what to write."""
    from studies.unlabelled import CLEAN, UnlabelledStudySettings

    add_comparison(parser)
    parser.add_argument(
        "--corrupt",
        type=_corruptions,
        action="extend",
        metavar="NAME:SEVERITY,…",
        help=f"damage the images, as fog:3, and {CLEAN} for as they are (default {CLEAN}); may be repeated",
    )
    parser.add_argument(
        "--shifted",
        type=word_list,
        default=(),
        metavar="NAME,NAME",
        help="folders that are of a shifted domain as they are: the tables count them among the shifted",
    )
    add_settings(parser, UnlabelledStudySettings)


def run(args: argparse.Namespace) -> int:
    """Measure every method on rolls of every folder, damage, size and seed; print changes to zero-shot."""
    from atlas_engine.engine import open as open_atlas
    from studies.methods import UNLABELLED_STUDY_METHODS, UnlabelledSolver
    from studies.unlabelled import UnlabelledStudySettings, run_unlabelled
    from studies.unlabelled_report import unlabelled_grid, unlabelled_tables

    settings = settings_from(args, UnlabelledStudySettings)
    corruptions = list(dict.fromkeys(args.corrupt or [None]))
    folders = named_folders(args)
    _check_shifted(args.shifted, folders)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        bank = donors_of(
            engine, folders, without=args.without, chosen=settings.methods, methods=UNLABELLED_STUDY_METHODS
        )
        learner = UnlabelledSolver(engine, bank, settings.budget())
        rows = followed(
            lambda on_start: run_unlabelled(
                learner,
                folders,
                corruptions=corruptions,
                settings=settings,
                ledger=ledger,
                on_start=on_start,
            ),
            len(folders) * len(corruptions) * settings.cells,
        )
        return tell(
            args,
            [row.as_dict() for row in rows],
            unlabelled_tables(rows, shifted=args.shifted),
            _about(learner, settings, args.shifted),
            grid=unlabelled_grid(rows, shifted=args.shifted),
        )


def _corruptions(text: str) -> list[Corruption | None]:
    """Damages with commas between them; none stands for images as they are."""
    from studies.corruptions import Corruption
    from studies.unlabelled import CLEAN

    try:
        return [None if word == CLEAN else Corruption.parse(word) for word in word_list(text)]
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _check_shifted(names: Collection[str], folders: Collection[str]) -> None:
    for name in names:
        if name not in folders:
            raise MisuseError(f"--shifted: {unknown_name('folder', name, folders)}")


def _about(learner: UnlabelledSolver, settings: UnlabelledStudySettings, shifted: Collection[str]) -> str:
    """What the numbers depend on, to stand below the tables."""
    classes = "all" if settings.max_classes is None else f"at most {settings.max_classes}"
    whole = "every image" if settings.max_size is None else f"at most {settings.max_size} images"
    domains = f" Shifted as they are: {', '.join(shifted)}." if shifted else ""
    return (
        f"{bank_words(learner.engine, learner.bank)}; {settings.seeds} seed(s), {classes} classes; n = all "
        f"is {whole}; few: a third of the classes is among the images, all are asked for. What trains takes "
        f"{learner.budget.steps} steps. ± is the standard deviation over seeds.{domains}"
    )


TEST_TIME = Command(
    arguments,
    run,
    examples=(
        "atlas eval test-time photos/pets photos/plants --corrupt none,fog:3 --json test-time.json",
        "atlas eval test-time photos/pets --methods zero-shot,auto --sizes 20,all --present few",
    ),
    about=(
        "Each seed draws classes and an order of images; a method sees the first n without labels, and is\n"
        f"scored on the same. All methods get the same, and larger rolls begin with smaller ones.\n{KEPT}"
    ),
)
