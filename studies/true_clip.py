"""Few-shot methods on a true CLIP image tower, with a bank of its own beside a random one.

    bank = train_bank(engine, bank_folders, work, settings=LateVectorSettings())
    settings = TrueClipSettings()
    rows = [row for row, _ in run_true_clip(engine, bank, targets, settings=settings, ledger=Ledger())]
    few_shot_tables(rows)                    # with what the real bank gains over the random one

The tower has no text tower: methods start from prototypes of the shots, and nothing here is zero-shot. The
random bank (`banks.random_bank`) has the norms of the real one in every block, so their difference is what
the vectors have learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from studies.few_shot import FewShotRow, FewShotStudySettings, run_few_shot
from studies.grid import Ledger, OnStart, ignore_note
from studies.late_vectors import LateVectorSettings
from studies.methods import STUDY_METHODS, ZERO_SHOT, Solver

__all__ = ["PROTOTYPES", "TrueClipSettings", "run_true_clip"]

PROTOTYPES = "prototypes"
"""The head before adaptation, where other studies have zero-shot."""

METHODS = (
    ZERO_SHOT,
    "tip",
    "lpp",
    "linear-probe",
    "text-probe",
    "finetune",
    "finetune-half+head",
    "atlas",
    "atlas+text-probe",
    "paper",
    "paper+tip",
    "paper+lpp",
)


@dataclass(frozen=True, kw_only=True)
class TrueClipSettings(FewShotStudySettings):
    """The same settings as those of every few-shot study, with fewer and smaller problems."""

    shots: tuple[int, ...] = setting((1, 4, 16), help="images of a class to learn from", low=1)
    seeds: int = setting(1, help="problems drawn from each folder", low=1)
    methods: tuple[str, ...] = setting(
        METHODS, help="methods to compare, with commas between them", choices=tuple(STUDY_METHODS)
    )
    max_classes: int | None = setting(10, help="most classes of a problem, drawn by seed", low=2)
    max_test: int | None = setting(200, help="most images to measure on, as many of each class", low=2)
    tune_lr: float | None = setting(
        LateVectorSettings().vector_lr,
        help="peak learning rate of fine-tuning and LoRA, as of the vectors",
        low=0.0,
    )
    control: bool = setting(
        True, help="measure what mixes task vectors with a random bank of the same norms too"
    )


def run_true_clip(
    engine: Atlas,
    bank: TaskVectorBank,
    folders: Mapping[str, ClassFolder],
    *,
    settings: TrueClipSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[FewShotRow, bool]]:
    """Every row, and whether it was measured now."""
    solver = Solver(engine, bank=bank, config=settings.budget(), tune_lr=settings.tune_lr)
    for row, fresh in run_few_shot(solver, folders, settings=settings, ledger=ledger, on_start=on_start):
        start = PROTOTYPES if row.method == ZERO_SHOT and not engine.reads_class_names else row.method
        yield replace(row, method=start), fresh
