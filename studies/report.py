"""Trials as tables and grids to draw. Pure; knows nothing of engines, files or terminals.

A cell says the mean over seeds and the standard deviation over them: `41.2 ± 1.3`. A mean over targets is
taken within each seed first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from atlas_engine.views.heatmap import Grid
from atlas_engine.views.tables import markdown_table, table
from studies.bits import Cost, loss_of
from studies.donors import Anatomy
from studies.selection import STRATEGIES
from studies.trials import ALL, Trial, mean_of

__all__ = [
    "ResultTable",
    "bit_sheet",
    "cells_and_mean",
    "cosine_grid",
    "cost_sheet",
    "gain_grid",
    "names_in",
    "norm_grid",
    "selection_sheets",
    "target_sheet",
    "those",
]

MEAN = "mean"

Line = TypeVar("Line")


@dataclass(frozen=True)
class ResultTable:
    """A table with a title, for a terminal or for a document."""

    title: str
    rows: Sequence[Sequence[object]]
    columns: Sequence[str]

    @classmethod
    def of(cls, grid: Grid) -> ResultTable:
        """The numbers of a figure."""
        rows = [
            (name, *map(grid.format_value, values))
            for name, values in zip(grid.rows, grid.values, strict=True)
        ]
        return cls(f"{grid.title}. {grid.about}", rows, ("vector", *grid.columns))

    def plain(self) -> str:
        """As aligned text."""
        return f"{self.title}\n{table(self.rows, self.columns)}"

    def markdown(self) -> str:
        """As markdown."""
        return f"**{self.title}**\n\n{markdown_table(self.rows, self.columns)}"


def target_sheet(trials: Sequence[Trial]) -> ResultTable:
    """The targets, and what zero-shot gives there."""
    rows = []
    for target in names_in(trials, "target"):
        own = those(trials, target=target)
        zero_shot = mean_of(own, _zero_shot)
        rows.append((target, own[0].classes, own[0].n_test, zero_shot.shown()))
    return ResultTable("Targets", rows, ("target", "classes", "test images", "zero-shot %"))


def gain_grid(trials: Sequence[Trial]) -> Grid:
    """Gain over zero-shot in points: donors × targets, and the mean over targets."""
    targets = names_in(trials, "target")

    def points(own: Sequence[Trial]) -> float:
        return 100 * mean_of(own, lambda trial: trial.gain).mean

    seeds = len({trial.seed for trial in trials})
    return Grid(
        "What each vector is good for",
        names_in(trials, "arm"),
        (*targets, MEAN),
        cells_and_mean(trials, points, row="arm", column="target"),
        about=f"Accuracy above zero-shot in points: {trials[0].shots} shots, that vector alone "
        f"(“{ALL}”: every vector); mean of {seeds} seed(s).",
    )


def cosine_grid(parts: Anatomy) -> Grid:
    """How like each other the vectors are."""
    return Grid(
        "How like each other the vectors are",
        parts.tasks,
        parts.tasks,
        parts.cosine,
        number="+.2f",
        about="Cosine of two vectors over all blocks.",
        limit=1.0,
    )


def norm_grid(parts: Anatomy) -> Grid:
    """Where in the tower each vector has its length."""
    return Grid(
        "Where each vector has its length",
        parts.tasks,
        parts.layers,
        parts.norms,
        number=".2f",
        about="Norm of each vector in each layer of the image tower.",
    )


def cost_sheet(costs: Sequence[Cost]) -> ResultTable:
    """Bytes, time and nearness, a row a format; the first is what the others are compared with."""
    rows = [
        (
            one.storage,
            f"{one.nbytes / 2**20:.1f}",
            f"{one.nbytes / costs[0].nbytes:.2f}",
            f"{1e3 * one.seconds:.1f}",
            f"{one.time_ratio:.2f}",
            f"{one.cosine:.5f}",
            f"{100 * one.relative_error:.2f}",
            f"{one.gradient_cosine:.5f}",
        )
        for one in costs
    ]
    columns = (
        "storage",
        "MiB",
        "size ratio",
        "compose + gradient, ms",
        "time ratio",
        "cosine",
        "error %",
        "cosine of ∂L/∂λ",
    )
    return ResultTable("What a format costs", rows, columns)


def bit_sheet(trials: Sequence[Trial]) -> ResultTable:
    """Accuracy in each format on each target, and the difference to float32 on the same problems."""
    targets, storages = names_in(trials, "target"), names_in(trials, "arm")
    rows = [
        (
            name,
            *(mean_of(those(trials, arm=name, target=target)).shown() for target in targets),
            mean_of(those(trials, arm=name)).shown(),
            loss_of(trials, name).shown(sign=True),
        )
        for name in storages
    ]
    zero_shot = [mean_of(those(trials, target=target), _zero_shot).shown() for target in targets]
    rows.append(("zero-shot", *zero_shot, mean_of(trials, _zero_shot).shown(), "–"))
    title = f"Accuracy in %, {trials[0].shots} shots, all vectors"
    return ResultTable(title, rows, ("storage", *targets, MEAN, "against float32"))


def selection_sheets(trials: Sequence[Trial]) -> list[ResultTable]:
    """Strategies × budgets: the mean over targets and, where there are several, each target."""
    targets = names_in(trials, "target")
    each = [_selection_sheet(target, those(trials, target=target)) for target in targets]
    return each if len(targets) == 1 else [_selection_sheet("mean over targets", trials), *each]


def _selection_sheet(where: str, trials: Sequence[Trial]) -> ResultTable:
    """The whole bank is one column, the same for every strategy."""
    whole = those(trials, arm=ALL)
    budgets = sorted({trial.vectors for trial in trials if trial.arm != ALL})
    rows = [
        (
            name,
            *(mean_of(those(trials, arm=name, vectors=b)).shown() for b in budgets),
            mean_of(whole).shown(),
        )
        for name in STRATEGIES
    ]
    zero_shot = mean_of(whole, _zero_shot)
    title = f"Accuracy in %, {whole[0].shots} shots, {where} (zero-shot {zero_shot.shown()})"
    return ResultTable(title, rows, ("strategy", *(f"b = {b}" for b in budgets), f"all {whole[0].vectors}"))


def _zero_shot(trial: Trial) -> float:
    return trial.zero_shot


def cells_and_mean(
    lines: Sequence[Line], number: Callable[[Sequence[Line]], float], *, row: str, column: str
) -> tuple[tuple[float, ...], ...]:
    """A number for the lines of each row and column of a grid, and one for each row as a whole at its end."""
    columns = names_in(lines, column)
    rows = [those(lines, **{row: name}) for name in names_in(lines, row)]
    return tuple((*(number(those(own, **{column: name})) for name in columns), number(own)) for own in rows)


def names_in(lines: Sequence[object], field: str) -> tuple[str, ...]:
    """What stands in a field, in the order of appearance."""
    return tuple(dict.fromkeys(getattr(line, field) for line in lines))


def those(lines: Sequence[Line], **wanted: object) -> list[Line]:
    """The lines whose fields have these values."""
    return [one for one in lines if all(getattr(one, name) == value for name, value in wanted.items())]
