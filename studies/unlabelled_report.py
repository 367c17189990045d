"""Methods without labels compared, as tables and as a grid to draw.

A set is a data set under one corruption. It is shifted if it is corrupted, or if the caller says that the
data set is of another domain as it is. A change is accuracy minus zero-shot on the same images, in points; a
cell has its mean and standard deviation over seeds: `+2.1 ± 0.4`.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from atlas_engine.views.heatmap import Grid
from studies.methods import AUTO, ZERO_SHOT
from studies.problems.unlabelled import EVERY
from studies.tables import ResultTable, distinct, seed_mean, where
from studies.unlabelled import CLEAN, UnlabelledRow

__all__ = ["unlabelled_grid", "unlabelled_tables", "worst_sets"]

Rows = Sequence[UnlabelledRow]
CellText = Callable[[Rows], str]

LOW = 0.01  # sets below zero-shot by more than this are counted


@dataclass(frozen=True)
class SetChange:
    """The mean change on one set over seeds."""

    name: str
    change: float

    def __str__(self) -> str:
        return f"{100 * self.change:+.1f} ({self.name})"


def unlabelled_tables(rows: Rows, *, shifted: Collection[str] = ()) -> list[ResultTable]:
    """Changes on shifted and on clean sets, the worst set and problem, roll-backs, and each data set."""
    learned = [row for row in rows if row.method != ZERO_SHOT]
    tables = []
    if learned:
        for kind, own in _by_kind(learned, shifted).items():
            title = f"Change to zero-shot in points, mean over {len(_sets(own))} {kind} set(s)"
            tables.append(_table(title, own, _mean_change))
        for kind, cell in (("set", _worst_set), ("problem", _worst_problem)):
            below = f"worst {kind}, and how many are below zero-shot by more than {100 * LOW:.0f} point"
            tables.append(_table(f"Change to zero-shot in points on the {below}", learned, cell))
        chosen = [row for row in learned if row.method == AUTO and row.kept]
        if chosen:
            tables.append(_table("What was done, and on how many problems", chosen, _kept_counts))
        tables.append(_table("Seconds, median; how many were rolled back to zero-shot", learned, _cost))
    each = [_dataset_table(name, where(rows, dataset=name)) for name in distinct(rows, "dataset")]
    return [*tables, *each]


def worst_sets(rows: Rows) -> list[SetChange]:
    """The mean change on each set over seeds, the worst first."""
    found = [
        SetChange(_set_name(dataset, corruption), seed_mean(own, _change).mean)
        for dataset, corruption in _sets(rows)
        if (own := where(rows, dataset=dataset, corruption=corruption))
    ]
    return sorted(found, key=lambda one: one.change)


def unlabelled_grid(rows: Rows, *, shifted: Collection[str] = ()) -> Grid:
    """Methods, on shifted and on clean sets, × problems: mean change to zero-shot in points."""
    learned = [row for row in rows if row.method != ZERO_SHOT] or list(rows)
    problems, kinds = _problems(learned), _by_kind(learned, shifted)
    named = {
        (method if len(kinds) == 1 else f"{method}, {kind}"): where(own, method=method)
        for kind, own in kinds.items()
        for method in distinct(own, "method")
    }
    values = tuple(
        tuple(100 * seed_mean(where(own, size=n, present=present), _change).mean for n, present in problems)
        for own in named.values()
    )
    counts = " and ".join(f"{len(_sets(own))} {kind}" for kind, own in kinds.items())
    seeds = len({row.seed for row in rows})
    return Grid(
        "Test-time methods",
        tuple(named),
        tuple(_problem_name(size, present) for size, present in problems),
        values,
        about=f"Accuracy above zero-shot in points, by images of a problem; mean of {counts} set(s) and "
        f"{seeds} seed(s).",
    )


# ---- tables


def _table(title: str, rows: Rows, cell: CellText) -> ResultTable:
    """Methods × problems."""
    problems = _problems(rows)
    lines = [
        (
            method,
            *(cell(where(rows, method=method, size=size, present=present)) for size, present in problems),
        )
        for method in distinct(rows, "method")
    ]
    return ResultTable(title, lines, ("method", *(_problem_name(*problem) for problem in problems)))


def _dataset_table(name: str, rows: Rows) -> ResultTable:
    """For each corruption, the accuracy of zero-shot and below it what each method changes."""
    lines: list[Sequence[object]] = []
    problems = _problems(rows)
    for corruption in distinct(rows, "corruption"):
        own = where(rows, corruption=corruption)
        damage = "as it is" if corruption == CLEAN else corruption
        per_problem = [where(own, size=size, present=present) for size, present in problems]
        zero_shot = (seed_mean(some, lambda row: row.zero_shot).percent() for some in per_problem)
        lines.append((damage, f"{ZERO_SHOT} %", *zero_shot))
        for method in distinct(own, "method"):
            if method != ZERO_SHOT:
                changes = (_mean_change(where(some, method=method)) for some in per_problem)
                lines.append((damage, method, *changes))
    columns = ("damage", "method", *(_problem_name(*problem) for problem in problems))
    return ResultTable(f"{name}: accuracy of zero-shot in %, and changes to it in points", lines, columns)


def _mean_change(rows: Rows) -> str:
    return seed_mean(rows, _change).percent(sign=True)


def _worst_set(rows: Rows) -> str:
    worst = worst_sets(rows)
    return f"{worst[0]}, {_count_below([one.change for one in worst])}"


def _worst_problem(rows: Rows) -> str:
    changes = [row.change for row in rows]
    return f"{100 * min(changes):+.1f}, {_count_below(changes)}"


def _count_below(changes: Sequence[float]) -> str:
    low = sum(round(change, 9) < -LOW for change in changes)  # a point exactly is not more than a point
    return f"{low} of {len(changes)}"


def _kept_counts(rows: Rows) -> str:
    kept = Counter(row.kept for row in rows)
    return ", ".join(f"{name} {count}" for name, count in sorted(kept.items()))


def _cost(rows: Rows) -> str:
    seconds = f"{statistics.median(row.seconds for row in rows):.1f}"
    back = sum(row.rolled_back for row in rows)
    return f"{seconds}, {back} of {len(rows)}" if back else seconds


# ---- rows


def _by_kind(rows: Rows, shifted: Collection[str]) -> dict[str, list[UnlabelledRow]]:
    """The rows of shifted and of clean sets; a kind that has none is left out."""
    kinds: dict[str, list[UnlabelledRow]] = {"shifted": [], "clean": []}
    for row in rows:
        kinds["shifted" if row.corruption != CLEAN or row.dataset in shifted else "clean"].append(row)
    return {kind: own for kind, own in kinds.items() if own}


def _sets(rows: Rows) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.dataset, row.corruption) for row in rows))


def _problems(rows: Rows) -> list[tuple[int | str, str]]:
    """Sizes with `present`, as they were asked for: all sizes with every class, then with few."""
    return list(dict.fromkeys((row.size, row.present) for row in rows))


def _problem_name(size: int | str, present: str) -> str:
    return f"n = {size}" if present == EVERY else f"n = {size}, {present}"


def _set_name(dataset: str, corruption: str) -> str:
    return dataset if corruption == CLEAN else f"{dataset} {corruption}"


def _change(row: UnlabelledRow) -> float:
    return row.change
