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
from studies.banks.bits import StorageCost, accuracy_loss
from studies.banks.selection import STRATEGIES
from studies.banks.task_vectors import BankGeometry
from studies.banks.trials import ALL, Trial
from studies.tables import seed_mean

__all__ = [
    "ResultTable",
    "bits_table",
    "cosine_grid",
    "cost_table",
    "distinct",
    "gain_grid",
    "grid_values",
    "norm_grid",
    "selection_tables",
    "target_table",
    "where",
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
        rows = [(name, *map(grid.shown, values)) for name, values in zip(grid.rows, grid.values, strict=True)]
        return cls(f"{grid.title}. {grid.about}", rows, ("vector", *grid.columns))

    def plain(self) -> str:
        """As aligned text."""
        return f"{self.title}\n{table(self.rows, self.columns)}"

    def markdown(self) -> str:
        """As markdown."""
        return f"**{self.title}**\n\n{markdown_table(self.rows, self.columns)}"


def target_table(trials: Sequence[Trial]) -> ResultTable:
    """The targets, and what zero-shot gives there."""
    rows = []
    for target in distinct(trials, "target"):
        own = where(trials, target=target)
        zero_shot = seed_mean(own, _zero_shot)
        rows.append((target, own[0].classes, own[0].n_test, zero_shot.shown()))
    return ResultTable("Targets", rows, ("target", "classes", "test images", "zero-shot %"))


def gain_grid(trials: Sequence[Trial]) -> Grid:
    """Gain over zero-shot in points: donors × targets, and the mean over targets."""
    targets = distinct(trials, "target")

    def points(own: Sequence[Trial]) -> float:
        return 100 * seed_mean(own, lambda trial: trial.gain).mean

    seeds = len({trial.seed for trial in trials})
    return Grid(
        "What each vector is good for",
        distinct(trials, "arm"),
        (*targets, MEAN),
        grid_values(trials, points, row="arm", column="target"),
        about=f"Accuracy above zero-shot in points: {trials[0].shots} shots, that vector alone "
        f"(“{ALL}”: every vector); mean of {seeds} seed(s).",
    )


def cosine_grid(parts: BankGeometry) -> Grid:
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


def norm_grid(parts: BankGeometry) -> Grid:
    """Where in the tower each vector has its length."""
    return Grid(
        "Where each vector has its length",
        parts.tasks,
        parts.layers,
        parts.norms,
        number=".2f",
        about="Norm of each vector in each layer of the image tower.",
    )


def cost_table(costs: Sequence[StorageCost]) -> ResultTable:
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


def bits_table(trials: Sequence[Trial]) -> ResultTable:
    """Accuracy in each format on each target, and the difference to float32 on the same problems."""
    targets, storages = distinct(trials, "target"), distinct(trials, "arm")
    rows = [
        (
            name,
            *(seed_mean(where(trials, arm=name, target=target)).shown() for target in targets),
            seed_mean(where(trials, arm=name)).shown(),
            accuracy_loss(trials, name).shown(sign=True),
        )
        for name in storages
    ]
    zero_shot = [seed_mean(where(trials, target=target), _zero_shot).shown() for target in targets]
    rows.append(("zero-shot", *zero_shot, seed_mean(trials, _zero_shot).shown(), "–"))
    title = f"Accuracy in %, {trials[0].shots} shots, all vectors"
    return ResultTable(title, rows, ("storage", *targets, MEAN, "against float32"))


def selection_tables(trials: Sequence[Trial]) -> list[ResultTable]:
    """Strategies × budgets: the mean over targets and, where there are several, each target."""
    targets = distinct(trials, "target")
    each = [_selection_sheet(target, where(trials, target=target)) for target in targets]
    return each if len(targets) == 1 else [_selection_sheet("mean over targets", trials), *each]


def _selection_sheet(where: str, trials: Sequence[Trial]) -> ResultTable:
    """The whole bank is one column, the same for every strategy."""
    whole = where(trials, arm=ALL)
    budgets = sorted({trial.vectors for trial in trials if trial.arm != ALL})
    rows = [
        (
            name,
            *(seed_mean(where(trials, arm=name, vectors=b)).shown() for b in budgets),
            seed_mean(whole).shown(),
        )
        for name in STRATEGIES
    ]
    zero_shot = seed_mean(whole, _zero_shot)
    title = f"Accuracy in %, {whole[0].shots} shots, {where} (zero-shot {zero_shot.shown()})"
    return ResultTable(title, rows, ("strategy", *(f"b = {b}" for b in budgets), f"all {whole[0].vectors}"))


def _zero_shot(trial: Trial) -> float:
    return trial.zero_shot


def grid_values(
    lines: Sequence[Line], number: Callable[[Sequence[Line]], float], *, row: str, column: str
) -> tuple[tuple[float, ...], ...]:
    """A number for the lines of each row and column of a grid, and one for each row as a whole at its end."""
    columns = distinct(lines, column)
    rows = [where(lines, **{row: name}) for name in distinct(lines, row)]
    return tuple((*(number(where(own, **{column: name})) for name in columns), number(own)) for own in rows)


def distinct(lines: Sequence[object], field: str) -> tuple[str, ...]:
    """What stands in a field, in the order of appearance."""
    return tuple(dict.fromkeys(getattr(line, field) for line in lines))


def where(lines: Sequence[Line], **wanted: object) -> list[Line]:
    """The lines whose fields have these values."""
    return [one for one in lines if all(getattr(one, name) == value for name, value in wanted.items())]
