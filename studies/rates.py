"""The learning rates of the baselines that fine-tune, searched on data sets of the bank: `atlas eval rates`.

    for row, fresh in search_rates(engine, folders, settings=RateSettings(), ledger=Ledger()): ...
    best_rates(rows)                                   # {"finetune-half+head": 3e-4, …}

The best rate has the highest mean accuracy over data sets, shots and seeds. No target may be among the
folders: `studies.methods.HALFWAY_RATES` counts for every target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from atlas_engine.bank.train import LEARNING_RATES
from atlas_engine.bank.vector import LORA, STANDARD
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from studies.few_shot import FewShotRow, FewShotStudySettings, run_few_shot
from studies.grid import Ledger, OnStart, drop_repeats, ignore_note
from studies.methods import HALFWAY_RATES, Solver
from studies.tables import ResultTable, clustered_mean, distinct, where

__all__ = ["RateRow", "RateSettings", "best_rates", "count_rate_rows", "rate_table", "search_rates"]

LORA_METHODS = ("lora-half+head",)


@dataclass(frozen=True, kw_only=True)
class RateSettings(FewShotStudySettings):
    """Which rates are tried, beside what every few-shot study sets."""

    shots: tuple[int, ...] = setting((1, 4), help="images of a class to learn from", low=1)
    seeds: int = setting(1, help="problems drawn from each folder", low=1)
    methods: tuple[str, ...] = setting(
        tuple(HALFWAY_RATES), help="methods to search a rate for", choices=tuple(HALFWAY_RATES)
    )
    max_classes: int | None = setting(10, help="most classes of a problem, drawn by seed", low=2)
    max_test: int | None = setting(100, help="most images to measure on, as many of each class", low=2)
    factors: tuple[float, ...] = setting(
        (0.3, 1.0, 3.0), help="rates to try, as factors of that of a task vector's training", low=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "factors", in_order=True)


@dataclass(frozen=True)
class RateRow(FewShotRow):
    """One method at one learning rate on one problem."""

    lr: float = 0.0


def search_rates(
    engine: Atlas,
    folders: Mapping[str, ClassFolder],
    *,
    settings: RateSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[RateRow, bool]]:
    """Every row, and whether it was measured now."""
    for factor in settings.factors:
        for method in settings.methods:
            lr = factor * LEARNING_RATES[LORA if method in LORA_METHODS else STANDARD]
            solver = Solver(engine, config=settings.budget(), tune_lr=lr)
            chosen = FewShotStudySettings.from_dict(
                {name: settings.as_dict()[name] for name in FewShotStudySettings().as_dict()}
                | {"methods": (method,)}
            )
            for row, fresh in run_few_shot(
                solver, folders, settings=chosen, ledger=ledger, on_start=on_start
            ):
                yield RateRow(**asdict(row), lr=lr), fresh


def count_rate_rows(settings: RateSettings, *, folders: int) -> int:
    """How many rows `search_rates` gives."""
    cells = len(settings.factors) * len(settings.methods) * len(settings.shots)
    return folders * settings.seeds * cells


def best_rates(rows: Sequence[RateRow]) -> dict[str, float]:
    """The rate of each method with the highest mean accuracy; of equal ones the lowest."""
    found = {}
    for method in distinct(rows, "method"):
        own = where(rows, method=method)
        rates = sorted({row.lr for row in own})
        found[method] = max(rates, key=lambda lr: clustered_mean(where(own, lr=lr)).mean)
    return found


def rate_table(rows: Sequence[RateRow]) -> ResultTable:
    """Methods and rates × shots: accuracy, and the mean over shots that a rate is chosen by."""
    best, shots = best_rates(rows), sorted({row.shots for row in rows})
    lines = []
    for method in distinct(rows, "method"):
        for lr in sorted({row.lr for row in where(rows, method=method)}):
            own = where(rows, method=method, lr=lr)
            cells = [clustered_mean(where(own, shots=k)).percent() for k in shots]
            chosen = "best" if best[method] == lr else ""
            lines.append((method, f"{lr:.2g}", *cells, clustered_mean(own).percent(), chosen))
    over = f"mean over {len(distinct(rows, 'dataset'))} data sets; ± is the standard error over them"
    return ResultTable(
        f"Accuracy in %, {over}", lines, ("method", "rate", *(f"k = {k}" for k in shots), "mean", "")
    )
