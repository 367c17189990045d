"""`atlas eval negate` and `atlas eval add`: ways to forget and ways to add, compared on a bank's own sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import (
    add_bank,
    add_folders,
    add_markdown_file,
    add_model,
    add_track_pattern,
)
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.figure import add_figure_flag
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_file, say
from studies.cli.eval_options import KEPT, bank_words, followed, ledger_beside, named_folders, tell

if TYPE_CHECKING:
    from atlas_engine.engine import Atlas
    from studies.problems.unseen import PoolSettings, VectorTask

__all__ = ["ADD", "NEGATE"]


def _shared_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    add_folders(parser, what)
    add_model(parser)
    add_bank(parser)
    add_track_pattern(parser)
    add_markdown_file(parser)
    add_figure_flag(parser, about="also draw the differences")
    add_json_file(parser)


def negate_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, a control, a model and its bank, settings, and what to write."""
    from studies.arithmetic.negation import NegationSettings

    _shared_arguments(parser, "a set to forget, whose own vector is in the bank")
    parser.add_argument(
        "--control", type=Path, required=True, metavar="DIR", help="a set to keep, one sub-folder a class"
    )
    add_settings(parser, NegationSettings)


def negate(args: argparse.Namespace) -> int:
    """Measure every way to forget on every target and seed; print means, targets and controls."""
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.arithmetic.negation import NegationSettings, negation_grid, negation_tables, run_negation

    settings = settings_from(args, NegationSettings)
    control = read_folder(args.control)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        targets = _targets(engine, args)
        rows = followed(
            lambda on_start: run_negation(
                engine, targets, control, settings=settings, ledger=ledger, on_start=on_start
            ),
            settings.seeds * len(targets) * len(settings.methods),
        )
        config = settings.config()
        about = (
            f"{_about(engine, settings)} The control has at most {settings.control_classes} classes and "
            f"{settings.control_test} images to measure on; {config.keep:.0%} of its zero-shot accuracy is "
            f"to stay. What learns takes {config.steps} steps of {config.batch} over the last "
            f"{config.share:.0%} of the weights."
        )
    data = [row.as_dict() for row in rows]
    return tell(args, data, negation_tables(rows), about, grid=negation_grid(rows))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Tasks, a model and its bank, settings, and what to write."""
    from studies.arithmetic.addition import AdditionSettings

    _shared_arguments(parser, "a task, whose own vector is in the bank; at least two")
    add_settings(parser, AdditionSettings)


def add(args: argparse.Namespace) -> int:
    """Make one model for all folders in every way, seed by seed; print means and each task."""
    from atlas_engine.engine import open as open_atlas
    from studies.arithmetic.addition import AdditionSettings, addition_grid, addition_tables, run_addition

    settings = settings_from(args, AdditionSettings)
    if len(args.folders) < 2:
        raise MisuseError("adding needs at least 2 tasks. Give two folders or more.")
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        targets = _targets(engine, args)
        by_way = followed(
            lambda on_start: run_addition(
                engine, targets, settings=settings, ledger=ledger, on_start=on_start
            ),
            settings.seeds * len(settings.methods),
        )
        rows = [row for way in by_way for row in way]
        config = settings.config()
        about = (
            f"{_about(engine, settings)} What learns takes {config.steps} steps of {config.batch} over the "
            f"last {config.share:.0%} of the weights."
        )
    data = [row.as_dict() for row in rows]
    return tell(args, data, addition_tables(rows), about, grid=addition_grid(rows))


def _targets(engine: Atlas, args: argparse.Namespace) -> dict[str, VectorTask]:
    """The folders with their own vectors, and what those have not learned from."""
    from atlas_engine.adapt.arithmetic.scene import vector_of
    from studies.problems.unseen import VectorTask, find_unseen

    targets = {}
    for name, folder in named_folders(args, track_pattern=args.track_pattern).items():
        vector = vector_of(engine.bank, folder.name)
        if vector is None:
            raise MisuseError(
                f"the bank has no vector for {folder.name}. It has: {', '.join(engine.bank.tasks)}."
            )
        info = engine.bank.infos[engine.bank.tasks.index(vector)]
        pool = find_unseen(folder, info, engine.backbone.preprocessing)
        if pool is None:
            say(f"{name}: which images vector '{vector}' has learned from is not known, so it may know them.")
        targets[name] = VectorTask(folder, vector, pool)
    return targets


def _about(engine: Atlas, settings: PoolSettings) -> str:
    return (
        f"{bank_words(engine, engine.bank)}; {settings.seeds} seed(s), at most {settings.max_classes} "
        f"classes a task, {settings.learn} images of each to learn and choose from, and {settings.max_test} "
        "of the task to measure on; its vector has learned from none of them. ± is the standard deviation "
        "over seeds."
    )


NEGATE = Command(
    negate_arguments,
    negate,
    examples=(
        "atlas eval negate photos/clothing photos/dogs --control photos/objects --json negation.json",
        "atlas eval negate photos/clothing --control photos/objects --methods scalar,atlas --seeds 1",
    ),
    about="Each target is forgotten with the control beside it: by one searched coefficient for its own\n"
    "vector, by learned ones per block, and by learned ones for the whole bank.\n" + KEPT,
)
ADD = Command(
    add_arguments,
    add,
    examples=(
        "atlas eval add photos/mnist photos/gtsrb photos/intel --json addition.json",
        "atlas eval add photos/mnist photos/gtsrb --methods scalar,atlas --seeds 1 --markdown add.md",
    ),
    about="One model for all folders, made of their own vectors. An accuracy is normalised by that of the\n"
    "task's own fine-tuned model, on the same images.\n" + KEPT,
)
