"""`atlas eval peft|disentangle`: coefficients × K against LoRA, and how task vectors get along."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import PATH, command, settings
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    comparison_options,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
)
from studies.disentangle import DisentangleSettings
from studies.peft import PeftSettings

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.engine import Atlas
    from studies.problems.training_sets import TrainingSetSettings
    from studies.tower_training import TowerTrainer, TowerTrainingSettings

__all__ = ["disentangle", "peft"]

LOW_RANK = "low-rank-16"
"""How the bank's vectors are cut down where no bank of LoRA vectors is given."""


@command(
    "atlas eval peft photos/pets photos/plants --percents 1,10,100 --json peft.json",
    "atlas eval peft photos/pets --partitions 1,20 --lora-bank lora.safetensors --markdown peft.md",
    note=RESUMES,
)
@comparison_options
@click.option(
    "--lora-bank",
    type=PATH,
    metavar="FILE",
    help=f"a bank of LoRA vectors (default: the bank's own in their best directions, {LOW_RANK})",
)
@settings(PeftSettings)
def peft(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    without: tuple[str, ...] | None,
    lora_bank: Path | None,
    config: PeftSettings,
    files: ReportFiles,
) -> None:
    """Compare coefficients in K parts with LoRA.

    Each seed draws a training set and images to measure on. Coefficients of vectors split in K parts are
    learned from shares of it, and LoRA with as many numbers. A vector that was made from a DIR is left out
    there.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.peft import peft_grid, peft_tables, run_peft
    from studies.tower_training import TowerTrainer

    named = read_folders(folders)
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        vectors = _bank_without(engine, without or ())
        low_rank = _low_rank_bank(TowerTrainer(engine, config), vectors, lora_bank, without or ())
        banks = {"standard": vectors, **low_rank}
        rows = measure_with_progress(
            lambda on_start: run_peft(
                engine, banks, named, settings=config, ledger=ledger, on_start=on_start
            ),
            len(named) * config.seeds * config.cells(len(banks)),
        )
        data, about = [row.as_dict() for row in rows], _about(engine, vectors, config, config)
    print_report(files, data, peft_tables(rows), about, grid=peft_grid(rows))


@command(
    "atlas eval disentangle sets/mnist sets/cifar10 --json disentangle.json",
    "atlas eval disentangle sets/mnist sets/cifar10 --seeds 1 --partitions 1,20 --markdown d.md",
    note=RESUMES,
)
@comparison_options
@settings(DisentangleSettings)
def disentangle(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    without: tuple[str, ...] | None,
    config: DisentangleSettings,
    files: ReportFiles,
) -> None:
    """How vectors get along, and how few numbers do.

    Of every two DIRs that a vector of the bank is named after: how alike the two vectors are, and how many
    answers one changes for the other's images, scaled by one number each or one a block. Then accuracy on
    each DIR by the number of coefficients, with the vectors of the others and with random directions as long.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.dimension import dimension_tables, run_dimensions
    from studies.disentangle import SCALINGS, error_grid, own_vector_of, pair_tables, run_pairs
    from studies.tower_training import StudyTasks, TowerTrainer

    named = read_folders(folders)
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        vectors = _bank_without(engine, without or ())
        count = len(own_vector_of(vectors, named))
        if count < 2:
            raise click.UsageError(
                f"{count} of the folders has a vector in the bank, but a pair needs 2. Name folders after "
                "vectors (`atlas bank show`)."
            )
        tasks, parts = StudyTasks(TowerTrainer(engine, config), named, config), config.partitions
        pairs = measure_with_progress(
            lambda on_start: run_pairs(tasks, vectors, ledger=ledger, on_start=on_start),
            config.seeds * len(SCALINGS) * count * (count - 1) // 2,
        )
        dimensions = measure_with_progress(
            lambda on_start: run_dimensions(
                tasks,
                vectors,
                partitions=parts,
                split_by=config.split_by,
                ledger=ledger,
                on_start=on_start,
            ),
            config.seeds * len(named) * (2 * (1 + len(parts)) + 1),
        )
        about = _about(engine, vectors, config, config)
    data = [*(row.as_dict() for row in pairs), *(row.as_dict() for row in dimensions)]
    tables = [*pair_tables(pairs), *dimension_tables(dimensions)]
    print_report(files, data, tables, about, grid=error_grid(pairs))


def _bank_without(engine: Atlas, without: tuple[str, ...]) -> TaskVectorBank:
    """The engine's bank less some vectors; that there is none is misuse."""
    if engine.bank_path is None:
        raise click.UsageError(f"{engine.backbone.name} has no bank of task vectors. Give --bank FILE.")
    return engine.bank.without(without) if without else engine.bank


def _low_rank_bank(
    bench: TowerTrainer, bank: TaskVectorBank, lora_bank: Path | None, without: tuple[str, ...]
) -> dict[str, TaskVectorBank]:
    """Vectors of low rank: trained so, or the bank's own cut down to their best directions."""
    from atlas_engine.bank.bank_file import load_bank

    if lora_bank is None:
        return {"rank 16": bank.select_blocks(bench.blocks.names).stored_as(LOW_RANK)}
    lora = load_bank(lora_bank, device=bench.engine.backbone.device)
    left_out = [name for name in without if name in lora.tasks]
    return {"LoRA vectors": lora.without(left_out) if left_out else lora}


def _about(
    engine: Atlas, bank: TaskVectorBank, drawn: TrainingSetSettings, learned: TowerTrainingSettings
) -> str:
    """What the numbers depend on, to stand below the tables."""
    return (
        f"{describe_model(engine, bank)}, without what was made from a folder; {drawn.seeds} seed(s), at "
        f"most {drawn.max_classes} classes, {drawn.max_train} images to learn from and about "
        f"{drawn.max_test} to measure on; the last {100 * learned.share:.0f} % of the tower's weights "
        f"or more learn, {learned.steps} steps of {learned.batch} at lr {learned.lr:g}. ± is the "
        "standard deviation over seeds."
    )
