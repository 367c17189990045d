"""Coefficients, contributions and similarities of task vectors as grids to draw.

grid = heat_grid(recipe.coefficients)                                    # mean λ by task vector and layer
grid = heat_grid(contributions(recipe.coefficients, bank), kind="conv")  # ‖λτ‖ of the conv blocks
grid = similarity_grid(similarities(bank))                               # cosines of the task vectors
heat_map(grid), as_text(grid)                                            # see `views.heatmap`

"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.compose.contributions import Contributions, Similarities, similarities
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.views.heatmap import Grid

__all__ = ["BY", "MAX_ROWS", "heat_grid", "kinds_in", "layer_name", "similarities", "similarity_grid"]

BY = ("layer", "kind")
"""What the columns of a heat map can be."""

MAX_ROWS = 25
"""Rows of a heat map: of more task vectors, the ones with the largest weights are shown."""

_WHERE = {"layer": "in each layer, from the stem to the end", "kind": "in each kind of block"}


def heat_grid(
    of: Coefficients | Contributions, *, by: str = "layer", kind: str | None = None, most: int = MAX_ROWS
) -> Grid:
    """Task vectors × layers or kinds of block, of all blocks or of one `kind`; None in a cell without blocks.

    A cell of coefficients is the mean of its free λ; one of contributions is √Σ‖λτ‖² over its blocks.
    """
    if by not in BY:
        raise ConfigError(unknown_name("column", by, BY))
    if kind is not None and kind not in kinds_in(of):
        raise ConfigError(unknown_name("kind of block", kind, kinds_in(of)))
    measure = _contribution_measure(of) if isinstance(of, Contributions) else _coefficient_measure(of)
    blocks_of = _blocks_by_column(of, by=by, kind=kind)
    columns = [measure.cells(blocks) for blocks in blocks_of.values()]
    rows = _largest(measure.weights, most)
    values = tuple(tuple(column[t] for column in columns) for t in rows)
    only = f", {kind} blocks only" if kind else ""
    rest = f" The {len(rows)} heaviest of {len(of.tasks)} task vectors." if len(rows) < len(of.tasks) else ""
    return Grid(
        measure.title,
        tuple(of.tasks[t] for t in rows),
        tuple(blocks_of),
        values,
        number=measure.sign + _decimals([value for row in values for value in row if value is not None]),
        about=f"{measure.what} of each task vector {_WHERE[by]}{only}.{rest}",
    )


def similarity_grid(alike: Similarities) -> Grid:
    """Task vectors × task vectors: their cosines, similar ones next to each other.

    The diagonal is None: its ones would leave no colour for the other cells.
    """
    ordered = alike.in_order()
    values = tuple(
        tuple(None if row == column else value for column, value in enumerate(cosines))
        for row, cosines in enumerate(ordered.values.tolist())
    )
    return Grid(
        "How similar the task vectors are",
        ordered.tasks,
        ordered.tasks,
        values,
        number="+.2f",
        about="Cosine of every two task vectors: 1 is the same direction, 0 nothing in common.",
    )


def kinds_in(of: Coefficients | Contributions) -> tuple[str, ...]:
    """The kinds of block that `heat_grid` can be asked for, in the order of the tower."""
    return tuple(dict.fromkeys(block.kind for block in of.blocks))


def layer_name(layer: int) -> str:
    """A layer's name in figures: its number, or `stem` for what comes before the first."""
    return str(layer) if layer else "stem"


@dataclass(frozen=True)
class _Measure:
    """What a heat map shows: its words, the weight of each task vector (T), and its cells by column."""

    title: str
    what: str
    sign: str  # of the number format
    weights: Tensor  # (T)
    cells: Callable[[list[int]], Sequence[float | None]]  # positions of blocks -> one number per task vector


def _coefficient_measure(of: Coefficients) -> _Measure:
    def expand(values: Tensor) -> Tensor:
        return of.layout.expand(values.detach().cpu().double(), of.blocks)

    lam, free = expand(of.values), expand(torch.ones_like(of.values))  # (T M) or (T M K)

    def mean(blocks: list[int]) -> Sequence[float | None]:
        count = int(free[0, blocks].sum())
        totals: list[float] = lam[:, blocks].flatten(1).sum(1).tolist()
        return [total / count if count else None for total in totals]

    weights = lam.abs().flatten(1).mean(1)
    return _Measure("How much of each task vector is mixed in", "Mean coefficient λ", "+", weights, mean)


def _contribution_measure(of: Contributions) -> _Measure:
    def length(blocks: list[int]) -> Sequence[float | None]:
        lengths: list[float] = of.values[:, blocks].square().sum(1).sqrt().tolist()
        return [value if blocks else None for value in lengths]

    return _Measure("How far each task vector moves the model", "Length of λτ", "", of.by_task, length)


def _blocks_by_column(of: Coefficients | Contributions, *, by: str, kind: str | None) -> dict[str, list[int]]:
    """The positions of the blocks in each column; a layer without blocks of `kind` has none."""
    kept = [(m, block) for m, block in enumerate(of.blocks) if kind in (None, block.kind)]
    if by == "kind":
        kinds = kinds_in(of) if kind is None else (kind,)
        return {name: [m for m, block in kept if block.kind == name] for name in kinds}
    layers = sorted({block.layer for block in of.blocks})
    return {layer_name(layer): [m for m, block in kept if block.layer == layer] for layer in layers}


def _largest(weights: Tensor, most: int) -> list[int]:
    """(T) -> positions of the largest weights, in the bank's order, so that rows keep their places."""
    return sorted(weights.argsort(descending=True, stable=True)[:most].tolist())


def _decimals(values: Sequence[float]) -> str:
    """A number format that shows two or three digits of the largest value."""
    largest = max(map(abs, values), default=0.0)
    power = math.floor(math.log10(largest)) if largest else 0
    if power > 4:
        return ".0e"
    return f".{max(2 - power, 0) if power >= 0 else min(1 - power, 6)}f"
