"""`atlas eval negate` and `atlas eval add`: ways to forget and ways to add, compared on a bank's own sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.cli.options import (
    PATH,
    all_of,
    bank_option,
    command,
    folders_argument,
    model_option,
    settings,
    track_pattern_option,
)
from atlas_engine.cli.output import say
from studies.arithmetic.addition import AdditionSettings
from studies.arithmetic.negation import NegationSettings
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
    report_options,
)

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas
    from studies.problems.unseen import PoolSettings, VectorTask

__all__ = ["add", "negate"]

shared_options = all_of(
    model_option,
    bank_option(),
    track_pattern_option,
    report_options("also draw the differences", spreads=True),
)


@command(
    "atlas eval negate photos/clothing photos/dogs --control photos/objects --json negation.json",
    "atlas eval negate photos/clothing --control photos/objects --methods scalar,atlas --seeds 1",
    note=RESUMES,
)
@folders_argument("a set to forget, whose own vector is in the bank")
@shared_options
@click.option(
    "--control", type=PATH, required=True, metavar="DIR", help="a set to keep, one sub-folder a class"
)
@settings(NegationSettings)
@settings(NegateConfig, "learning")
def negate(
    *,
    folders: tuple[Path, ...],
    control: Path,
    model: str,
    bank: Path | None,
    track_pattern: str | None,
    config: NegationSettings,
    learning: NegateConfig,
    files: ReportFiles,
) -> None:
    """Compare ways to forget.

    Each target is forgotten with the control beside it: by one searched coefficient for its own vector, by
    learned ones per block, and by learned ones for the whole bank.
    """
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.arithmetic.negation import negation_grid, negation_tables, run_negation

    kept = read_folder(control)
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        targets = _find_vectors(engine, read_folders(folders, track_pattern=track_pattern))
        rows = measure_with_progress(
            lambda on_start: run_negation(
                engine, targets, kept, settings=config, config=learning, ledger=ledger, on_start=on_start
            ),
            config.seeds * len(targets) * len(config.methods),
        )
        about = (
            f"{_about(engine, config)} The control has at most {config.control_classes} classes and "
            f"{config.control_test} images to measure on; {learning.keep:.0%} of its zero-shot accuracy is "
            f"to stay. What learns takes {learning.steps} steps of {learning.batch} over the last "
            f"{learning.share:.0%} of the weights."
        )
    data = [row.as_dict() for row in rows]
    print_report(files, data, negation_tables(rows), about, grid=negation_grid(rows))


@command(
    "atlas eval add photos/mnist photos/gtsrb photos/intel --json addition.json",
    "atlas eval add photos/mnist photos/gtsrb --methods scalar,atlas --seeds 1 --markdown add.md",
    note=RESUMES,
)
@folders_argument("a task, whose own vector is in the bank; at least two")
@shared_options
@settings(AdditionSettings)
@settings(AddConfig, "learning")
def add(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    track_pattern: str | None,
    config: AdditionSettings,
    learning: AddConfig,
    files: ReportFiles,
) -> None:
    """Compare ways to add tasks.

    One model for all folders, made of their own vectors. An accuracy is normalised by that of the task's own
    fine-tuned model, on the same images.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.arithmetic.addition import addition_grid, addition_tables, run_addition

    if len(folders) < 2:
        raise click.UsageError("adding needs at least 2 tasks. Give two folders or more.")
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        tasks = _find_vectors(engine, read_folders(folders, track_pattern=track_pattern))
        by_method = measure_with_progress(
            lambda on_start: run_addition(
                engine, tasks, settings=config, config=learning, ledger=ledger, on_start=on_start
            ),
            config.seeds * len(config.methods),
        )
        rows = [row for several in by_method for row in several]
        about = (
            f"{_about(engine, config)} What learns takes {learning.steps} steps of {learning.batch} over the "
            f"last {learning.share:.0%} of the weights."
        )
    data = [row.as_dict() for row in rows]
    print_report(files, data, addition_tables(rows), about, grid=addition_grid(rows))


def _find_vectors(engine: Atlas, folders: dict[str, ClassFolder]) -> dict[str, VectorTask]:
    """The folders with their own vectors, and the images which those have not learned from."""
    from atlas_engine.adapt.arithmetic.tasks import vector_of
    from studies.problems.unseen import VectorTask, find_unseen

    targets = {}
    for name, folder in folders.items():
        vector = vector_of(engine.bank, folder.name)
        if vector is None:
            raise click.UsageError(
                f"the bank has no vector for {folder.name}. It has: {', '.join(engine.bank.tasks)}."
            )
        info = engine.bank.infos[engine.bank.tasks.index(vector)]
        pool = find_unseen(folder, info, engine.backbone.preprocessing)
        if pool is None:
            say(f"{name}: which images vector '{vector}' has learned from is not known, so it may know them.")
        targets[name] = VectorTask(folder, vector, pool)
    return targets


def _about(engine: Atlas, config: PoolSettings) -> str:
    return (
        f"{describe_model(engine, engine.bank)}; {config.seeds} seed(s), at most {config.max_classes} "
        f"classes a task, {config.learn} images of each to learn and choose from, and {config.max_test} "
        "of the task to measure on; its vector has learned from none of them. ± is the standard deviation "
        "over seeds."
    )
