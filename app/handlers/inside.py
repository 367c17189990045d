"""What a recipe is made of: its donors, maps of them, and what happens when some are turned down.

Knows nothing of Gradio and nothing of HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import atlas_engine as atlas
from app import api_text, inside_text
from app.state import SavedResult
from atlas_engine.views.coefficients import heat_grid, kinds_in, similarities, similarity_grid
from atlas_engine.views.heatmap import Grid

__all__ = [
    "MAPS",
    "MOST",
    "Donor",
    "Inside",
    "alike",
    "donors_of",
    "heat",
    "look_inside",
    "strengths",
    "turned",
]

MOST = 2.0  # times as learned: how far a donor or a layer can be turned up

MAPS = ("mixed", "moved")
"""What a map can show: how much of a donor is mixed in, or how far that moves the model."""


@dataclass(frozen=True)
class Donor:
    """A task vector: what it was trained on, and what it does in a recipe."""

    name: str
    dataset: str
    classes: str  # how many, and how many pictures, as its maker wrote it
    images: str
    before: float | None  # accuracy of zero-shot there, and after training
    after: float | None
    length: float = 0.0  # of λτ
    share: float = 0.0  # of all squared lengths


@dataclass(frozen=True)
class Inside:
    """A recipe's donors, the one that moves most first, the layers it moves, and its kinds of block."""

    donors: tuple[Donor, ...]
    layers: tuple[int, ...]
    kinds: tuple[str, ...]

    @property
    def moves(self) -> bool:
        """Whether it draws on donors at all; a head alone, or zero-shot, does not."""
        return bool(self.layers)


def look_inside(engine: atlas.Atlas, recipe: atlas.Recipe) -> Inside:
    """Everything that stays the same while one plays with it."""
    moved = atlas.contributions(recipe.coefficients, engine.bank)
    known = {donor.name: donor for donor in donors_of(engine)}
    donors = tuple(replace(known[one.task], length=one.length, share=one.share) for one in moved.top())
    lengths = moved.by_layer.sum(dim=0).tolist()
    layers = tuple(layer for layer, length in zip(moved.layers, lengths, strict=True) if length > 0)
    return Inside(donors, layers, kinds_in(moved))


def donors_of(engine: atlas.Atlas) -> tuple[Donor, ...]:
    """Every donor that there is, by name, whether a recipe draws on it or not."""
    donors = [
        Donor(
            task,
            info.dataset,
            info.provenance.get("classes", ""),
            info.provenance.get("train_images", ""),
            info.accuracy_before,
            info.accuracy_after,
        )
        for task, info in zip(engine.bank.tasks, engine.bank.infos, strict=True)
    ]
    return tuple(sorted(donors, key=lambda donor: atlas.natural_key(donor.name)))


def alike(engine: atlas.Atlas) -> Grid:
    """The map of how alike the donors are."""
    return similarity_grid(similarities(engine.bank))


def heat(
    engine: atlas.Atlas, recipe: atlas.Recipe, *, shows: str = MAPS[0], by: str = "layer", kind: str = ""
) -> Grid:
    """The map of donors × layers (or kinds), of all kinds of block or of one, without what stays still."""
    of = recipe.coefficients if shows == MAPS[0] else atlas.contributions(recipe.coefficients, engine.bank)
    return _without_still(heat_grid(of, by=by, kind=kind or None))


def _without_still(grid: Grid) -> Grid:
    """The grid without its columns of zeros: layers that a recipe does not touch."""
    moving = [place for place, column in enumerate(zip(*grid.values, strict=True)) if any(column)]
    if len(moving) in (0, len(grid.columns)):
        return grid
    return replace(
        grid,
        columns=tuple(grid.columns[place] for place in moving),
        values=tuple(tuple(row[place] for place in moving) for row in grid.values),
        about=f"{grid.about} {inside_text.still(len(grid.columns) - len(moving))}",
    )


def strengths(
    engine: atlas.Atlas,
    recipe: atlas.Recipe,
    *,
    tasks: Mapping[str, float] | None,
    layers: Mapping[str, float] | None,
) -> dict[str, Mapping[Any, float]]:
    """What `turned` takes, from what a program says; strange names and numbers are refused."""
    for given in (tasks, layers):
        if not (given is None or isinstance(given, Mapping)):
            raise atlas.AtlasError(api_text.no_strengths(given))
    known = tuple(donor.name for donor in look_inside(engine, recipe).donors)
    for name in tasks or {}:
        if name not in known:
            raise atlas.AtlasError(api_text.no_donor(name, known))
    try:
        by_task = {name: _factor(value) for name, value in (tasks or {}).items()}
        by_layer = {int(number): _factor(value) for number, value in (layers or {}).items()}
    except (TypeError, ValueError):
        raise atlas.AtlasError(api_text.no_strengths({**(tasks or {}), **(layers or {})})) from None
    return {"tasks": by_task, "layers": by_layer}


def _factor(value: float) -> float:
    factor = float(value)
    if not 0 <= factor <= MOST:
        raise ValueError
    return factor


def turned(
    engine: atlas.Atlas, kept: SavedResult, *, tasks: Mapping[str, float], layers: Mapping[int, float]
) -> atlas.Comparison | None:
    """The samples by the recipe as it is, and with some donors or layers scaled; None without samples."""
    if kept.comparison is None:
        return None
    scaled = kept.recipe.scaled(tasks=tasks, layers=layers)
    now = engine.compare([sample.picture for sample in kept.samples], scaled)
    return atlas.Comparison(kept.comparison.adapted, now.adapted)
