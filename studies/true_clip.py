"""Few-shot methods on a true CLIP image tower, with a bank of its own beside a random one.

    bank = train_bank(engine, bank_folders, work, settings=LateVectorSettings())
    settings = TrueClipSettings()
    rows = [row for row, _ in run_true_clip(engine, bank, targets, settings=settings, ledger=Ledger())]
    true_clip_tables(rows)[0].plain()                    # what the real bank gains over the random one

The tower has no text tower: methods start from prototypes of the shots, and nothing here is zero-shot. The
random bank (`banks.random_bank`) has the norms of the real one in every block, so their difference is what
the vectors have learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from studies.banks.random_bank import random_bank
from studies.few_shot import FewShotRow, FewShotStudySettings, few_shot_tables, run_few_shot
from studies.grid import Ledger, OnStart, ignore_note
from studies.methods import STUDY_METHODS, ZERO_SHOT, Solver
from studies.tables import ResultTable, distinct, seed_mean, where

__all__ = ["PROTOTYPES", "RANDOM", "TrueClipSettings", "count_rows", "run_true_clip", "true_clip_tables"]

PROTOTYPES = "prototypes"
"""The head before adaptation, where other studies have zero-shot."""
RANDOM = ", random bank"
"""What the names of methods with the random bank end in."""

METHODS = (
    ZERO_SHOT,
    "tip",
    "lpp",
    "linear-probe",
    "text-probe",
    "finetune",
    "atlas",
    "atlas+text-probe",
    "paper",
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

    @property
    def mixing(self) -> tuple[str, ...]:
        """The methods that use task vectors, each measured with both banks."""
        return tuple(
            name
            for name in self.methods
            if name in FEW_SHOT_METHODS and FEW_SHOT_METHODS[name].uses_task_vectors
        )


def count_rows(settings: TrueClipSettings, *, targets: int) -> int:
    """How many rows `run_true_clip` gives."""
    problems = targets * settings.seeds * len(settings.shots)
    return problems * (len(settings.methods) + len(settings.mixing))


def run_true_clip(
    engine: Atlas,
    bank: TaskVectorBank,
    folders: Mapping[str, ClassFolder],
    *,
    settings: TrueClipSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[FewShotRow, bool]]:
    """Every row, and whether it was measured now: all methods with the real bank, then the random one."""
    variants = [("", bank, settings)]
    if settings.mixing:
        variants.append((RANDOM, random_bank(bank), replace(settings, methods=settings.mixing)))
    for ending, vectors, chosen in variants:
        solver = Solver(engine, bank=vectors, config=settings.budget())
        for row, fresh in run_few_shot(solver, folders, settings=chosen, ledger=ledger, on_start=on_start):
            start = PROTOTYPES if row.method == ZERO_SHOT and not engine.reads_class_names else row.method
            yield replace(row, method=start + ending), fresh


def true_clip_tables(rows: Sequence[FewShotRow]) -> list[ResultTable]:
    """What the real bank gains over the random one, then accuracies and costs, both banks side by side."""
    names = [name for name in distinct(rows, "method") if not name.endswith(RANDOM)]
    mixing = [name for name in names if where(rows, method=name + RANDOM)]
    side_by_side = [
        row for name in names for ending in ("", RANDOM) for row in where(rows, method=name + ending)
    ]
    return [*([_gain_table(rows, mixing)] if mixing else []), *few_shot_tables(side_by_side)]


def _gain_table(rows: Sequence[FewShotRow], mixing: Sequence[str]) -> ResultTable:
    """Accuracy with the real bank minus that with the random one, on the same problem."""
    control = {(r.dataset, r.method, r.shots, r.seed): r.accuracy for r in rows if r.method.endswith(RANDOM)}

    def gain(row: FewShotRow) -> float:
        return row.accuracy - control[row.dataset, row.method + RANDOM, row.shots, row.seed]

    shots = sorted({row.shots for row in rows})
    lines = [
        (name, *(seed_mean(where(rows, method=name, shots=k), gain).percent(sign=True) for k in shots))
        for name in mixing
    ]
    title = "Real bank above random bank of the same norms, in points"
    return ResultTable(title, lines, ("method", *(f"k = {k}" for k in shots)))
