"""`atlas eval true-clip`: few-shot methods on CLIP's own image tower, with a real and a random bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    PATH,
    SeveralValues,
    command,
    folders_argument,
    model_option,
    settings,
)
from atlas_engine.cli.output import emit, say
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.views.tables import table
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
    report_options,
)
from studies.late_vectors import LateVectorSettings
from studies.true_clip import TrueClipSettings

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.bank.train import FineTuneStep
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.engine import Atlas

__all__ = ["true_clip"]


@command(
    "atlas eval true-clip photos/pets --bank-sets photos/food photos/signs --work vectors --json clip.json",
    "atlas eval true-clip photos/pets --bank-sets photos/food photos/signs --work vectors --train-only",
    note=RESUMES + " So does the training of vectors, in --work.",
)
@folders_argument()
@click.option(
    "--bank-sets", cls=SeveralValues, multiple=True, required=True, type=PATH, metavar="DIR...",
    help="folders that the vectors of the bank are made from",
)  # fmt: skip
@click.option("--work", type=PATH, required=True, metavar="DIR", help="where each vector's file is kept")
@click.option("--train-only", is_flag=True, help="make the vectors, and measure nothing else")
@model_option
@settings(LateVectorSettings, name="training")
@settings(TrueClipSettings)
@report_options(None)
def true_clip(
    *,
    folders: tuple[Path, ...],
    bank_sets: tuple[Path, ...],
    work: Path,
    train_only: bool,
    model: str,
    training: LateVectorSettings,
    config: TrueClipSettings,
    files: ReportFiles,
) -> None:
    """Compare few-shot methods on a true CLIP tower.

    Makes a bank for the tower from folders of images, and measures each method with it beside a random bank
    of the same norms. Give --model clip-vit-b-16-visual-128 after `atlas model fetch`.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.few_shot import count_rows, few_shot_tables, require_enough_images
    from studies.true_clip import run_true_clip

    targets, sources = read_folders(folders), read_folders(bank_sets)
    if not train_only:
        require_enough_images(targets, config)
    ledger = files.ledger()
    with open_atlas(model, bank=None) as engine:
        bank = _train(engine, sources, work, training)
        if train_only:
            emit(_bank_table(bank))
            return
        rows = measure_with_progress(
            lambda on_start: run_true_clip(
                engine, bank, targets, settings=config, ledger=ledger, on_start=on_start
            ),
            count_rows(config, folders=len(targets)),
        )
        about = f"{describe_model(engine, bank)}; {config.seeds} seed(s)."
    print_report(files, [row.as_dict() for row in rows], few_shot_tables(rows), about)


def _train(
    engine: Atlas, folders: dict[str, ClassFolder], work: Path, training: LateVectorSettings
) -> TaskVectorBank:
    """The bank of all folders, with a bar over the steps of all vectors."""
    from studies.late_vectors import train_bank

    with ProgressBar(len(folders) * training.vector_steps, "training") as progress:

        def on_step(name: str, step: FineTuneStep) -> None:
            progress.advance(1, note=f"{name}: step {step.index} of {step.of}, loss {step.loss:.3f}")
            if step.index == step.of:
                say(f"{name}: {step.of} steps, last loss {step.loss:.3f}")

        return train_bank(engine, folders, work, settings=training, on_step=on_step)


def _bank_table(bank: TaskVectorBank) -> str:
    """The vectors, with their accuracies on images held out."""
    rows = [
        (
            task,
            *(
                None if share is None else 100 * share
                for share in (info.accuracy_before, info.accuracy_after)
            ),
        )
        for task, info in zip(bank.tasks, bank.infos, strict=True)
    ]
    return table(rows, ("vector", "before %", "after %"))
