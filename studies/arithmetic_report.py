"""Forgetting and adding as tables and grids to draw. Pure; knows nothing of engines or files.

A cell says the mean over seeds and the standard deviation over them: `41.2 ± 1.3`. A mean over tasks is taken
within each seed first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from atlas_engine.adapt.arithmetic.addition import OWN
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.views.heatmap import Grid
from studies.arithmetic.addition import AdditionRow
from studies.arithmetic.negation import NegationRow
from studies.tables import MEAN, ResultTable, distinct, grid_values, seed_mean, where

__all__ = ["addition_grid", "addition_tables", "negation_grid", "negation_tables"]

Forgets = Sequence[NegationRow]
Adds = Sequence[AdditionRow]


def negation_tables(rows: Forgets) -> list[ResultTable]:
    """Means over targets, then the target and the control of each."""
    lines: list[tuple[object, ...]] = [
        (
            ZERO_SHOT,
            seed_mean(rows, lambda row: row.target_zero_shot).shown(),
            seed_mean(rows, lambda row: row.control_zero_shot).shown(),
            "100.0",
            "–",
            "–",
        )
    ]
    for method in distinct(rows, "method"):
        own = where(rows, method=method)
        lines.append(
            (
                method,
                seed_mean(own).shown(),
                seed_mean(own, lambda row: row.control).shown(),
                seed_mean(own, lambda row: row.kept_share).shown(),
                f"{sum(row.kept == ZERO_SHOT for row in own)} of {len(own)}",
                _seconds(own),
            )
        )
    count = len(distinct(rows, "dataset"))
    title = f"Forgetting: accuracy in %, mean over {count} target(s), each beside the control"
    columns = ("method", "target (lower)", "control", "control kept %", "nothing forgotten", "seconds")
    each = [
        _negations(f"{what} accuracy in %, by target", rows, now, before)
        for what, now, before in (
            ("Target", lambda row: row.target, lambda row: row.target_zero_shot),
            ("Control", lambda row: row.control, lambda row: row.control_zero_shot),
        )
    ]
    return [ResultTable(title, lines, columns), *each]


def negation_grid(rows: Forgets) -> Grid:
    """Methods × targets: points of target accuracy that are gone."""

    def gone(own: Forgets) -> float:
        return 100 * seed_mean(own, lambda row: row.target - row.target_zero_shot).mean

    seeds = len({row.seed for row in rows})
    return Grid(
        "What is forgotten",
        distinct(rows, "method"),
        (*distinct(rows, "dataset"), MEAN),
        grid_values(rows, gone, row="method", column="dataset"),
        about=f"Accuracy of the target against zero-shot in points; mean of {seeds} seed(s).",
    )


def addition_tables(rows: Adds) -> list[ResultTable]:
    """Means over tasks, then accuracy and normalised accuracy of each."""
    count = len(distinct(rows, "dataset"))
    lines: list[tuple[object, ...]] = [
        (
            method,
            seed_mean(where(rows, method=method)).shown(),
            seed_mean(where(rows, method=method), _normalised).shown(),
            _seconds(where(rows, method=method)),
        )
        for method in distinct(rows, "method")
    ]
    lines.append((f"{OWN} (a model each)", seed_mean(rows, lambda row: row.own).shown(), "100.0", "–"))
    return [
        ResultTable(
            f"One model for {count} tasks: means over the tasks in %",
            lines,
            ("method", "accuracy", "normalised", "seconds"),
        ),
        _additions("Accuracy in %, by task", rows, lambda row: row.accuracy, own=True),
        _additions("Normalised accuracy in %, by task", rows, _normalised),
    ]


def addition_grid(rows: Adds) -> Grid:
    """Methods × tasks: normalised accuracy in %."""

    def shown(own: Adds) -> float:
        return 100 * seed_mean(own, _normalised).mean

    seeds = len({row.seed for row in rows})
    return Grid(
        "One model for all tasks",
        distinct(rows, "method"),
        (*distinct(rows, "dataset"), MEAN),
        grid_values(rows, shown, row="method", column="dataset"),
        number=".1f",
        about=f"Accuracy in % of that of the task's own fine-tuned model; mean of {seeds} seed(s).",
    )


def _negations(
    title: str, rows: Forgets, now: Callable[[NegationRow], float], before: Callable[[NegationRow], float]
) -> ResultTable:
    targets, methods = distinct(rows, "dataset"), distinct(rows, "method")
    lines: list[tuple[object, ...]] = [
        (ZERO_SHOT, *(seed_mean(where(rows, dataset=target), before).shown() for target in targets))
    ]
    for method in methods:
        cells = (seed_mean(where(rows, dataset=target, method=method), now).shown() for target in targets)
        lines.append((method, *cells))
    return ResultTable(title, lines, ("method", *targets))


def _additions(
    title: str, rows: Adds, number: Callable[[AdditionRow], float], *, own: bool = False
) -> ResultTable:
    tasks = distinct(rows, "dataset")
    lines: list[tuple[object, ...]] = [
        (method, *(seed_mean(where(rows, dataset=task, method=method), number).shown() for task in tasks))
        for method in distinct(rows, "method")
    ]
    if own:
        each = (seed_mean(where(rows, dataset=task), lambda row: row.own).shown() for task in tasks)
        lines.append((OWN, *each))
    return ResultTable(title, lines, ("method", *tasks))


def _normalised(row: AdditionRow) -> float:
    return row.normalised


def _seconds(rows: Sequence[NegationRow] | Sequence[AdditionRow]) -> str:
    return f"{statistics.median(row.seconds for row in rows):.0f}"
