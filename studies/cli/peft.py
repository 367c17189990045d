"""`atlas eval peft|disentangle`: coefficients × K against LoRA, and how task vectors get along."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from studies.cli.eval_options import (
    KEPT,
    add_comparison,
    bank_words,
    followed,
    ledger_beside,
    named_folders,
    tell,
)

if TYPE_CHECKING:
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.engine import Atlas
    from studies.problems.training_sets import TrainingSetSettings
    from studies.tower_training import TowerTrainer, TowerTrainingSettings

__all__ = ["DISENTANGLE", "PEFT"]

LOW_RANK = "low-rank-16"
"""How the bank's vectors are cut down where no bank of LoRA vectors is given."""


def peft_arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its banks, settings, and what to write."""
    from studies.peft import PeftSettings

    add_comparison(parser)
    parser.add_argument(
        "--lora-bank",
        type=Path,
        metavar="FILE",
        help=f"a bank of LoRA vectors (default: the bank's own in their best directions, {LOW_RANK})",
    )
    add_settings(parser, PeftSettings)


def run_peft_command(args: argparse.Namespace) -> int:
    """Measure every way to learn on every share of every training set; print the means, and each."""
    from atlas_engine.engine import open as open_atlas
    from studies.peft import PeftSettings, peft_grid, peft_tables, run_peft
    from studies.tower_training import TowerTrainer

    settings = settings_from(args, PeftSettings)
    folders = named_folders(args)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        bank = _bank(engine, args.without)
        banks = {"standard": bank, **_low_rank(TowerTrainer(engine, settings), bank, args)}
        rows = followed(
            lambda on_start: run_peft(
                engine, banks, folders, settings=settings, ledger=ledger, on_start=on_start
            ),
            len(folders) * settings.seeds * settings.cells(len(banks)),
        )
        data, about = [row.as_dict() for row in rows], _about(engine, bank, settings, settings)
        return tell(args, data, peft_tables(rows), about, grid=peft_grid(rows))


def disentangle_arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its bank, settings, and what to write."""
    from studies.disentangle import DisentangleSettings

    add_comparison(parser)
    add_settings(parser, DisentangleSettings)


def run_disentangle(args: argparse.Namespace) -> int:
    """Measure every two folders that have vectors, and every number of coefficients; print both."""
    from atlas_engine.engine import open as open_atlas
    from studies.dimension import dimension_tables, run_dimensions
    from studies.disentangle import (
        SCALINGS,
        DisentangleSettings,
        error_grid,
        own_vector_of,
        pair_tables,
        run_pairs,
    )
    from studies.tower_training import StudyTasks, TowerTrainer

    settings = settings_from(args, DisentangleSettings)
    folders = named_folders(args)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        bank = _bank(engine, args.without)
        named = len(own_vector_of(bank, folders))
        if named < 2:
            raise MisuseError(
                f"{named} of the folders has a vector in the bank, but a pair needs 2. Name folders after "
                "vectors (`atlas bank show`)."
            )
        sittings, parts = StudyTasks(TowerTrainer(engine, settings), folders, settings), settings.partitions
        pairs = followed(
            lambda on_start: run_pairs(sittings, bank, ledger=ledger, on_start=on_start),
            settings.seeds * len(SCALINGS) * named * (named - 1) // 2,
        )
        dimensions = followed(
            lambda on_start: run_dimensions(
                sittings, bank, partitions=parts, ledger=ledger, on_start=on_start
            ),
            settings.seeds * len(folders) * (2 * (1 + len(parts)) + 1),
        )
        rows = [*(row.as_dict() for row in pairs), *(row.as_dict() for row in dimensions)]
        sheets = [*pair_tables(pairs), *dimension_tables(dimensions)]
        return tell(args, rows, sheets, _about(engine, bank, settings, settings), grid=error_grid(pairs))


def _bank(engine: Atlas, without: tuple[str, ...]) -> TaskVectorBank:
    if engine.bank_path is None:
        raise MisuseError(f"{engine.backbone.name} has no bank of task vectors. Give --bank FILE.")
    return engine.bank.without(without) if without else engine.bank


def _low_rank(
    stage: TowerTrainer, bank: TaskVectorBank, args: argparse.Namespace
) -> dict[str, TaskVectorBank]:
    """Vectors of low rank: trained so, or the bank's own cut down to their best directions."""
    from atlas_engine.bank.bank_file import load_bank

    if args.lora_bank is None:
        return {"rank 16": bank.over(stage.blocks.names).stored_as(LOW_RANK)}
    lora = load_bank(args.lora_bank, device=stage.engine.backbone.device)
    gone = [name for name in args.without if name in lora.tasks]
    return {"LoRA vectors": lora.without(gone) if gone else lora}


def _about(
    engine: Atlas, bank: TaskVectorBank, drawn: TrainingSetSettings, learned: TowerTrainingSettings
) -> str:
    """What the numbers depend on, to stand below the tables."""
    return (
        f"{bank_words(engine, bank)}, without what was made from a folder; {drawn.seeds} seed(s), at most "
        f"{drawn.max_classes} classes, {drawn.max_train} images to learn from and about {drawn.max_test} to "
        f"measure on; the last {100 * learned.share:.0f} % of the tower's weights or more learn, "
        f"{learned.steps} steps of {learned.batch} at lr {learned.lr:g}. ± is the standard deviation over "
        "seeds."
    )


PEFT = Command(
    peft_arguments,
    run_peft_command,
    examples=(
        "atlas eval peft photos/pets photos/plants --percents 1,10,100 --json peft.json",
        "atlas eval peft photos/pets --partitions 1,20 --lora-bank lora.safetensors --markdown peft.md",
    ),
    about=(
        "Each seed draws a training set and images to measure on. Coefficients of vectors split in K parts\n"
        "are learned from shares of it, and LoRA with as many numbers. A vector that was made from a DIR\n"
        f"is left out there.\n{KEPT}"
    ),
)

DISENTANGLE = Command(
    disentangle_arguments,
    run_disentangle,
    examples=(
        "atlas eval disentangle sets/mnist sets/cifar10 --json disentangle.json",
        "atlas eval disentangle sets/mnist sets/cifar10 --seeds 1 --partitions 1,20 --markdown d.md",
    ),
    about=(
        "Of every two DIRs that a vector of the bank is named after: how alike the two vectors are, and how\n"
        "many answers one changes for the other's images, scaled by one number each or one a block. Then\n"
        "accuracy on each DIR by the number of coefficients, with the vectors of the others and with random\n"
        f"directions as long.\n{KEPT}"
    ),
)
