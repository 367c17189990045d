"""Test-time methods compared, as tables and a grid to draw. Pure; knows nothing of engines or files.

A set is a data set under one damage. It is shifted if it is damaged, or if it is said to be of another domain
as it is. A change is accuracy minus zero-shot on the same pictures, in points; a cell says its mean and
standard deviation over seeds: `+2.1 ± 0.4`. A mean over sets is taken within each seed first.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from atlas_engine.views.heatmap import Grid
from studies.methods import AUTO, ZERO_SHOT
from studies.problems.rolls import EVERY
from studies.tables import ResultTable, distinct, seed_mean, where
from studies.unlabelled import CLEAN, UnlabelledRow

__all__ = ["unlabelled_grid", "unlabelled_tables", "worst_sets"]

Rows = Sequence[UnlabelledRow]
Cell = Callable[[Rows], str]

LOW = 0.01  # a set below zero-shot by more than this is told


@dataclass(frozen=True)
class Worst:
    """The set on which a method changes zero-shot least, or most for the worse; its mean over seeds."""

    where: str
    change: float

    def __str__(self) -> str:
        return f"{100 * self.change:+.1f} ({self.where})"


def unlabelled_tables(rows: Rows, *, shifted: Collection[str] = ()) -> list[ResultTable]:
    """Changes on shifted and on clean sets, the worst set and roll, roll-backs, and each set."""
    learned = [row for row in rows if row.method != ZERO_SHOT]
    sheets = []
    if learned:
        for kind, own in _kinds(learned, shifted).items():
            title = f"Change to zero-shot in points, mean over {len(_sets(own))} {kind} set(s)"
            sheets.append(_sheet(title, own, _change))
        for kind, cell in (("set", _worst_cell), ("roll", _worst_roll)):
            below = f"worst {kind}, and how many are below zero-shot by more than {100 * LOW:.0f} point"
            sheets.append(_sheet(f"Change to zero-shot in points on the {below}", learned, cell))
        chosen = [row for row in learned if row.method == AUTO and row.kept]
        if chosen:
            sheets.append(_sheet("What was done, and on how many rolls", chosen, _done))
        sheets.append(_sheet("Seconds, median; how many were rolled back to zero-shot", learned, _cost))
    return [*sheets, *(_dataset_sheet(name, where(rows, dataset=name)) for name in distinct(rows, "dataset"))]


def worst_sets(rows: Rows) -> list[Worst]:
    """Every set's mean change over seeds, the worst first."""
    found = [
        Worst(_called(dataset, corruption), seed_mean(own, _gain).mean)
        for dataset, corruption in _sets(rows)
        if (own := where(rows, dataset=dataset, corruption=corruption))
    ]
    return sorted(found, key=lambda one: one.change)


def unlabelled_grid(rows: Rows, *, shifted: Collection[str] = ()) -> Grid:
    """Methods, on shifted and on clean sets, × rolls: mean change to zero-shot in points."""
    learned = [row for row in rows if row.method != ZERO_SHOT] or list(rows)
    rolls, kinds = _rolls(learned), _kinds(learned, shifted)
    named = {
        (method if len(kinds) == 1 else f"{method}, {kind}"): where(own, method=method)
        for kind, own in kinds.items()
        for method in distinct(own, "method")
    }
    values = tuple(
        tuple(100 * seed_mean(where(own, size=size, present=present), _gain).mean for size, present in rolls)
        for own in named.values()
    )
    counts = " and ".join(f"{len(_sets(own))} {kind}" for kind, own in kinds.items())
    seeds = len({row.seed for row in rows})
    return Grid(
        "Test-time methods",
        tuple(named),
        tuple(_roll_name(size, present) for size, present in rolls),
        values,
        about=f"Accuracy above zero-shot in points, by pictures of a roll; mean of {counts} set(s) and "
        f"{seeds} seed(s).",
    )


# ---- tables


def _sheet(title: str, rows: Rows, cell: Cell) -> ResultTable:
    """Methods × rolls."""
    rolls = _rolls(rows)
    lines = [
        (method, *(cell(where(rows, method=method, size=size, present=present)) for size, present in rolls))
        for method in distinct(rows, "method")
    ]
    return ResultTable(title, lines, ("method", *(_roll_name(*roll) for roll in rolls)))


def _dataset_sheet(name: str, rows: Rows) -> ResultTable:
    """Accuracy of zero-shot, and below it what each method changes; for each damage in turn."""
    lines: list[Sequence[object]] = []
    rolls = _rolls(rows)
    for corruption in distinct(rows, "corruption"):
        own = where(rows, corruption=corruption)
        damage = "as it is" if corruption == CLEAN else corruption
        per_roll = [where(own, size=size, present=present) for size, present in rolls]
        lines.append((damage, f"{ZERO_SHOT} %", *(seed_mean(some, _zero_shot).shown() for some in per_roll)))
        for method in distinct(own, "method"):
            if method != ZERO_SHOT:
                lines.append((damage, method, *(_change(where(some, method=method)) for some in per_roll)))
    columns = ("damage", "method", *(_roll_name(*roll) for roll in rolls))
    return ResultTable(f"{name}: accuracy of zero-shot in %, and changes to it in points", lines, columns)


def _change(rows: Rows) -> str:
    return seed_mean(rows, _gain).shown(sign=True)


def _worst_cell(rows: Rows) -> str:
    worst = worst_sets(rows)
    return f"{worst[0]}, {_below([one.change for one in worst])}"


def _worst_roll(rows: Rows) -> str:
    changes = [row.change for row in rows]
    return f"{100 * min(changes):+.1f}, {_below(changes)}"


def _below(changes: Sequence[float]) -> str:
    low = sum(round(change, 9) < -LOW for change in changes)  # a point exactly is not more than a point
    return f"{low} of {len(changes)}"


def _done(rows: Rows) -> str:
    kept = Counter(row.kept for row in rows)
    return ", ".join(f"{name} {count}" for name, count in sorted(kept.items()))


def _cost(rows: Rows) -> str:
    seconds = f"{statistics.median(row.seconds for row in rows):.1f}"
    back = sum(row.rolled_back for row in rows)
    return f"{seconds}, {back} of {len(rows)}" if back else seconds


# ---- rows


def _kinds(rows: Rows, shifted: Collection[str]) -> dict[str, list[UnlabelledRow]]:
    """The rows of shifted and of clean sets; a kind that has none is left out."""
    kinds: dict[str, list[UnlabelledRow]] = {"shifted": [], "clean": []}
    for row in rows:
        kinds["shifted" if row.corruption != CLEAN or row.dataset in shifted else "clean"].append(row)
    return {kind: own for kind, own in kinds.items() if own}


def _sets(rows: Rows) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.dataset, row.corruption) for row in rows))


def _rolls(rows: Rows) -> list[tuple[int | str, str]]:
    """Sizes with who is present, as they are asked for: all sizes with every class, then with few."""
    return list(dict.fromkeys((row.size, row.present) for row in rows))


def _roll_name(size: int | str, present: str) -> str:
    return f"n = {size}" if present == EVERY else f"n = {size}, {present}"


def _called(dataset: str, corruption: str) -> str:
    return dataset if corruption == CLEAN else f"{dataset} {corruption}"


def _gain(row: UnlabelledRow) -> float:
    return row.change


def _zero_shot(row: UnlabelledRow) -> float:
    return row.zero_shot
