"""What the reports of all studies share: titled tables, means over seeds, and rows picked by their fields.

    rows = where(rows, method="tip", dataset="pets")
    seed_mean(rows).percent()                            # '41.2 ± 1.3'

A mean over data sets is taken within each seed first, so ± is the standard deviation over seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from atlas_engine.errors import EvalError
from atlas_engine.views.heatmap import Grid
from atlas_engine.views.tables import markdown_table, table

__all__ = [
    "MEAN",
    "ClusteredRow",
    "Mean",
    "ResultTable",
    "ScoredRow",
    "clustered_mean",
    "count_range",
    "distinct",
    "grid_values",
    "seed_mean",
    "where",
]

MEAN = "mean"
"""The heading of a column of means."""


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


@dataclass(frozen=True)
class Mean:
    """A mean and its spread: the deviation over seeds, or the error over data sets; None for a single one."""

    mean: float
    spread: float | None

    def percent(self, *, sign: bool = False) -> str:
        """In percent: `41.2 ± 1.3`."""
        mean = f"{100 * self.mean:{'+' if sign else ''}.1f}"
        return mean if self.spread is None else f"{mean} ± {100 * self.spread:.1f}"


class ScoredRow(Protocol):
    """What a mean is taken of: an accuracy, and the seed that drew its problem."""

    @property
    def seed(self) -> int:
        """Of the problem."""
        ...

    @property
    def accuracy(self) -> float:
        """A fraction of 1."""
        ...


class ClusteredRow(ScoredRow, Protocol):
    """A scored row of a named data set."""

    @property
    def dataset(self) -> str:
        """The data set's name."""
        ...


Scored = TypeVar("Scored", bound=ScoredRow)
Clustered = TypeVar("Clustered", bound=ClusteredRow)
Line = TypeVar("Line")


def seed_mean(rows: Sequence[Scored], number: Callable[[Scored], float] = lambda row: row.accuracy) -> Mean:
    """Mean and deviation over seeds of a number's mean within each seed; by default of the accuracy."""
    if not rows:
        raise EvalError("there is no row to take the mean of. Name what was measured.")
    seeds = sorted({row.seed for row in rows})
    means = [statistics.fmean(number(row) for row in rows if row.seed == seed) for seed in seeds]
    return Mean(statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None)


def clustered_mean(
    rows: Sequence[Clustered], number: Callable[[Clustered], float] = lambda row: row.accuracy
) -> Mean:
    """Mean over data sets of a number's mean within each; the spread is the standard error of that mean.

    Problems of one data set resemble each other, so data sets are counted, not problems.
    """
    if not rows:
        raise EvalError("there is no row to take the mean of. Name what was measured.")
    names = distinct(rows, "dataset")
    means = [statistics.fmean(number(row) for row in rows if row.dataset == name) for name in names]
    error = statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
    return Mean(statistics.fmean(means), error)


def distinct(rows: Sequence[object], field: str) -> tuple[str, ...]:
    """The values of a field, each once, in the order of appearance."""
    return tuple(dict.fromkeys(getattr(row, field) for row in rows))


def where(rows: Sequence[Line], **wanted: object) -> list[Line]:
    """The rows whose fields have these values."""
    return [one for one in rows if all(getattr(one, name) == value for name, value in wanted.items())]


def grid_values(
    rows: Sequence[Line], number: Callable[[Sequence[Line]], float], *, row: str, column: str
) -> tuple[tuple[float, ...], ...]:
    """A number for each pair of values of two fields, lines of columns; a line's last is for all of it."""
    columns = distinct(rows, column)
    lines = [where(rows, **{row: name}) for name in distinct(rows, row)]
    return tuple((*(number(where(own, **{column: name})) for name in columns), number(own)) for own in lines)


def count_range(counts: Sequence[int]) -> str:
    """The smallest and the largest count, `34–1,200`, or one number where they are equal."""
    return "–".join(f"{count:,}" for count in dict.fromkeys((min(counts), max(counts))))
