"""What a recipe is made of: its task vectors, maps of them, and what happens when some are scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import SavedResult
from app.limits import LIMITS
from atlas_engine.views.coefficients import heat_grid, kinds_in, similarities, similarity_grid
from atlas_engine.views.heatmap import Grid

__all__ = [
    "MAPS",
    "MAX_STRENGTH",
    "RecipeContents",
    "Strengths",
    "TaskVectorFacts",
    "coefficient_map",
    "compare_scaled",
    "images_to_inspect",
    "inspect_recipe",
    "list_task_vectors",
    "parse_strengths",
    "similarity_map",
]

MAX_STRENGTH = 2.0  # times as learned: how far a task vector or a layer can be turned up

MAPS = ("mixed", "moved")
"""What a map can show: how much of a task vector is mixed in, or how far that moves the model."""


@dataclass(frozen=True)
class TaskVectorFacts:
    """What a task vector was trained on, and what it does in a recipe."""

    name: str
    dataset: str
    classes: str  # how many, and how many images, as its maker wrote it
    images: str
    before: float | None  # accuracy of zero-shot there, and after training
    after: float | None
    length: float = 0.0  # of λτ
    share: float = 0.0  # of all squared lengths
    effect: float = 0.0  # how far the answers shift without it, 0 … 1
    changed: int = 0  # images whose answer is another without it


@dataclass(frozen=True)
class RecipeContents:
    """A recipe's task vectors, the layers it moves, and its kinds of block.

    The task vectors are ranked by their effect on the answers to some images or, where there are no images,
    by how far they move the model.
    """

    task_vectors: tuple[TaskVectorFacts, ...] = ()
    images: int = 0  # that effects were measured on
    layers: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether it draws on task vectors at all; a head alone, or zero-shot, does not."""
        return bool(self.layers)


@dataclass(frozen=True)
class Strengths:
    """Factors for task vectors by name and for layers by number; 0 takes one out, 1 is as learned."""

    tasks: Mapping[str, float]
    layers: Mapping[int, float]


def inspect_recipe(
    engine: atlas.Atlas, recipe: atlas.Recipe, images: Sequence[atlas.Image] = ()
) -> RecipeContents:
    """What the recipe draws on, and what each part does to the answers to these images."""
    moved = atlas.contributions(recipe.coefficients, engine.bank)
    known = {facts.name: facts for facts in list_task_vectors(engine)}
    found = [replace(known[one.task], length=one.length, share=one.share) for one in moved.top()]
    lengths = moved.by_layer.sum(dim=0).tolist()
    layers = tuple(layer for layer, length in zip(moved.layers, lengths, strict=True) if length > 0)
    if images and layers:
        effects = {one.task: one for one in engine.effects(recipe, images)}
        found = [
            replace(facts, effect=effects[facts.name].effect, changed=effects[facts.name].changed)
            if facts.name in effects
            else facts
            for facts in found
        ]
        found.sort(key=lambda facts: -facts.effect)
    return RecipeContents(tuple(found), len(images) if layers else 0, layers, kinds_in(moved))


def images_to_inspect(result: SavedResult) -> list[atlas.Image]:
    """Images that effects are measured on: those to try and those that were taught, at most so many."""
    half = LIMITS.inspected_images // 2
    tried = [sample.image for sample in result.samples]
    taught = [sample.image for sample in result.learned]
    return [*_spread(tried, LIMITS.inspected_images - len(_spread(taught, half))), *_spread(taught, half)]


def _spread(images: Sequence[atlas.Image], most: int) -> list[atlas.Image]:
    """At most so many of the images, from all over."""
    if len(images) <= most:
        return list(images)
    return [images[place * len(images) // most] for place in range(most)]


def list_task_vectors(engine: atlas.Atlas) -> tuple[TaskVectorFacts, ...]:
    """Every task vector of the engine's bank, by name, whether a recipe draws on it or not."""
    found = [
        TaskVectorFacts(
            task,
            info.dataset,
            info.provenance.get("classes", ""),
            info.provenance.get("train_images", ""),
            info.accuracy_before,
            info.accuracy_after,
        )
        for task, info in zip(engine.bank.tasks, engine.bank.infos, strict=True)
    ]
    return tuple(sorted(found, key=lambda facts: atlas.natural_key(facts.name)))


def similarity_map(engine: atlas.Atlas) -> Grid:
    """The cosine between each two task vectors of the bank."""
    return similarity_grid(similarities(engine.bank))


def coefficient_map(
    engine: atlas.Atlas,
    recipe: atlas.Recipe,
    *,
    shows: str = MAPS[0],
    by: str = "layer",
    kind: str = "",
    order: Sequence[str] = (),
) -> Grid:
    """Task vectors × layers (or kinds of block), of all kinds or of one, without the columns of zeros.

    Rows are in the `order` given, then in the bank's.
    """
    of = recipe.coefficients if shows == MAPS[0] else atlas.contributions(recipe.coefficients, engine.bank)
    return _in_order(_without_zero_columns(heat_grid(of, by=by, kind=kind or None)), order)


def compare_scaled(engine: atlas.Atlas, result: SavedResult, strengths: Strengths) -> atlas.Comparison | None:
    """The samples by the recipe as it is, and with these strengths; None without samples."""
    if result.comparison is None:
        return None
    scaled = result.recipe.scaled(tasks=strengths.tasks, layers=strengths.layers)
    now = engine.compare([sample.image for sample in result.samples], scaled)
    return atlas.Comparison(result.comparison.adapted, now.adapted)


def parse_strengths(contents: RecipeContents, *, tasks: object, layers: object) -> Strengths:
    """Strengths from a program's JSON objects; unknown names and numbers out of range are refused."""
    tasks, layers = _as_mapping(tasks), _as_mapping(layers)
    known = tuple(facts.name for facts in contents.task_vectors)
    for name in tasks:
        if name not in known:
            raise atlas.AtlasError(text.api.unknown_task(name, known))
    try:
        by_task = {name: _factor(value) for name, value in tasks.items()}
        by_layer = {int(number): _factor(value) for number, value in layers.items()}
    except (TypeError, ValueError):
        raise atlas.AtlasError(text.api.bad_strengths({**tasks, **layers})) from None
    return Strengths(by_task, by_layer)


def _as_mapping(given: object) -> Mapping[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise atlas.AtlasError(text.api.bad_strengths(given))
    return given


def _factor(value: float) -> float:
    factor = float(value)
    if not 0 <= factor <= MAX_STRENGTH:
        raise ValueError
    return factor


def _in_order(grid: Grid, order: Sequence[str]) -> Grid:
    """The grid with its rows in this order; those that it does not name come last."""
    places = {name: place for place, name in enumerate(order)}
    rows = sorted(range(len(grid.rows)), key=lambda row: places.get(grid.rows[row], len(places)))
    return replace(
        grid, rows=tuple(grid.rows[row] for row in rows), values=tuple(grid.values[row] for row in rows)
    )


def _without_zero_columns(grid: Grid) -> Grid:
    """The grid without the layers that a recipe does not touch, and a word on how many those are."""
    moving = [place for place, column in enumerate(zip(*grid.values, strict=True)) if any(column)]
    if len(moving) in (0, len(grid.columns)):
        return grid
    return replace(
        grid,
        columns=tuple(grid.columns[place] for place in moving),
        values=tuple(tuple(row[place] for place in moving) for row in grid.values),
        about=f"{grid.about} {text.inside.zero_columns(len(grid.columns) - len(moving))}",
    )
