"""Coefficients and contributions as grids to draw: donors × layers, or × kinds of block.

    grid = heat_grid(recipe.coefficients)                                      # mean λ by donor and layer
    grid = heat_grid(contributions(recipe.coefficients, bank), kind="conv")    # ‖λτ‖ of the conv blocks
    heat_map(grid), as_text(grid)                                              # see `figures`

Pure; knows nothing of how a grid is drawn.
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

__all__ = ["BY", "MOST_DONORS", "heat_grid", "kinds_in", "layer_name", "similarities", "similarity_grid"]

BY = ("layer", "kind")
"""What the columns of a heat map can be."""

MOST_DONORS = 25
"""Rows of a heat map: of more donors, those that weigh most are shown."""

_WHERE = {"layer": "in each layer, from the stem to the end", "kind": "in each kind of block"}


def heat_grid(
    of: Coefficients | Contributions, *, by: str = "layer", kind: str | None = None, most: int = MOST_DONORS
) -> Grid:
    """Donors × layers or kinds, of all blocks or only those of one `kind`; no number where there is none.

    A cell of coefficients is the mean of its free λ; one of contributions the root of the sum of squares.
    """
    if by not in BY:
        raise ConfigError(unknown_name("column", by, BY))
    if kind is not None and kind not in kinds_in(of):
        raise ConfigError(unknown_name("kind of block", kind, kinds_in(of)))
    look = _moves(of) if isinstance(of, Contributions) else _mixes(of)
    groups = _groups(of, by=by, kind=kind)
    columns = [look.cells(blocks) for blocks in groups.values()]
    rows = _heaviest(look.weights, most)
    values = tuple(tuple(column[t] for column in columns) for t in rows)
    only = f", {kind} blocks only" if kind else ""
    rest = f" The {len(rows)} heaviest of {len(of.tasks)} donors." if len(rows) < len(of.tasks) else ""
    return Grid(
        look.title,
        tuple(of.tasks[t] for t in rows),
        tuple(groups),
        values,
        number=look.sign + _decimals([value for row in values for value in row if value is not None]),
        about=f"{look.what} of each donor {_WHERE[by]}{only}.{rest}",
    )


def kinds_in(of: Coefficients | Contributions) -> tuple[str, ...]:
    """The kinds of block that can be asked for, in the order of the tower."""
    return tuple(dict.fromkeys(block.kind for block in of.blocks))


def layer_name(layer: int) -> str:
    """A layer as a reader sees it: its number, or `stem` for what comes before the first."""
    return str(layer) if layer else "stem"


@dataclass(frozen=True)
class _Look:
    """What a map shows: its words, how much each donor weighs, and one number a donor for some blocks."""

    title: str
    what: str
    sign: str
    weights: Tensor  # (T)
    cells: Callable[[list[int]], Sequence[float | None]]


def _mixes(of: Coefficients) -> _Look:
    def spread(values: Tensor) -> Tensor:
        return of.layout.expand(values.detach().cpu().double(), of.blocks)

    lam, free = spread(of.values), spread(torch.ones_like(of.values))  # (T M) or (T M K)

    def mean(blocks: list[int]) -> Sequence[float | None]:
        count = int(free[0, blocks].sum())
        total: list[float] = lam[:, blocks].flatten(1).sum(1).tolist()
        return [value / count if count else None for value in total]

    weights = lam.abs().flatten(1).mean(1)
    return _Look("How much of each donor is mixed in", "Mean coefficient λ", "+", weights, mean)


def _moves(of: Contributions) -> _Look:
    def length(blocks: list[int]) -> Sequence[float | None]:
        total: list[float] = of.values[:, blocks].square().sum(1).sqrt().tolist()
        return [value if blocks else None for value in total]

    return _Look("How far each donor moves the model", "Length of λτ", "", of.by_task, length)


def _groups(of: Coefficients | Contributions, *, by: str, kind: str | None) -> dict[str, list[int]]:
    """Positions of the blocks in each column, by its name; a layer without blocks of `kind` has none."""
    kept = [(m, block) for m, block in enumerate(of.blocks) if kind in (None, block.kind)]
    if by == "kind":
        kinds = kinds_in(of) if kind is None else (kind,)
        return {name: [m for m, block in kept if block.kind == name] for name in kinds}
    layers = sorted({block.layer for block in of.blocks})
    return {layer_name(layer): [m for m, block in kept if block.layer == layer] for layer in layers}


def _heaviest(weights: Tensor, most: int) -> list[int]:
    """Positions of the donors that weigh most, in the bank's order, so that rows stay where they are."""
    return sorted(weights.argsort(descending=True, stable=True)[:most].tolist())


def _decimals(values: Sequence[float]) -> str:
    """A format in which two or three digits of the largest number can be read."""
    largest = max(map(abs, values), default=0.0)
    power = math.floor(math.log10(largest)) if largest else 0
    if power > 4:
        return ".0e"
    return f".{max(2 - power, 0) if power >= 0 else min(1 - power, 6)}f"


# ---- How alike the vectors of a bank are, as a grid to draw. Pure; knows nothing of how a grid is drawn.
# grid = similarity_grid(similarities(bank)) # donors × donors, neighbours beside each other
# heat_map(grid), as_text(grid) # see `figures`
def similarity_grid(alike: Similarities) -> Grid:
    """The cosine of every two vectors; none with itself, a 1 that would take the colour from the rest."""
    ordered = alike.in_order()
    values = tuple(
        tuple(None if row == column else value for column, value in enumerate(cosines))
        for row, cosines in enumerate(ordered.values.tolist())
    )
    return Grid(
        "How alike the donors are",
        ordered.tasks,
        ordered.tasks,
        values,
        number="+.2f",
        about="Cosine of every two task vectors: 1 is the same direction, 0 nothing in common.",
    )
