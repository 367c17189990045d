"""`atlas eval few-shot`: methods that learn from a few images, compared on folders of classes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import add_track_pattern
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
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
    from studies.few_shot import FewShotStudySettings
    from studies.methods import Solver

__all__ = ["FEW_SHOT"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its bank, settings, and what to write."""
    from studies.few_shot import FewShotStudySettings

    add_comparison(parser)
    add_track_pattern(parser)
    add_settings(parser, FewShotStudySettings)


def run(args: argparse.Namespace) -> int:
    """Measure every method on every folder, number of shots and seed; print means, differences and each."""
    from atlas_engine.engine import open as open_atlas
    from studies.few_shot import (
        FewShotStudySettings,
        few_shot_grid,
        few_shot_tables,
        require_enough_images,
        run_few_shot,
    )
    from studies.methods import STUDY_METHODS, Solver

    settings = settings_from(args, FewShotStudySettings)
    folders = named_folders(args, track_pattern=args.track_pattern)
    require_enough_images(folders, settings)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        bank = donors_of(
            engine, folders, without=args.without, chosen=settings.methods, methods=STUDY_METHODS
        )
        solver = Solver(engine, bank=bank, config=settings.budget())
        rows = followed(
            lambda on_start: run_few_shot(
                solver, folders, settings=settings, ledger=ledger, on_start=on_start
            ),
            len(folders) * settings.seeds * len(settings.shots) * len(settings.methods),
        )
        about = _about(solver, settings)
        data = [row.as_dict() for row in rows]
        return tell(args, data, few_shot_tables(rows), about, grid=few_shot_grid(rows))


def _about(solver: Solver, settings: FewShotStudySettings) -> str:
    """What the numbers depend on, to stand below the tables."""
    budget = solver.budget
    classes = "all" if settings.max_classes is None else f"at most {settings.max_classes}"
    images = "all other" if settings.max_test is None else f"at most {settings.max_test}"
    return (
        f"{bank_words(solver.engine, solver.bank)}; {settings.seeds} seed(s), {classes} classes and {images} "
        f"images to measure on; what trains takes {budget.steps} steps of {budget.batch}. ± is the standard "
        "deviation over seeds."
    )


FEW_SHOT = Command(
    arguments,
    run,
    examples=(
        "atlas eval few-shot photos/pets photos/plants --shots 1,4,16 --json few-shot.json",
        "atlas eval few-shot photos/pets --methods zero-shot,tip,lpp --max-classes 20 --markdown pets.md",
    ),
    about=(
        "Each seed draws classes, shots and test images that no method has seen; all methods get the same.\n"
        f"{KEPT}"
    ),
)
