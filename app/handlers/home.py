"""What the first screen tells of the worked example: one image before and after, and one task vector off."""

from __future__ import annotations

from dataclasses import dataclass

import atlas_engine as atlas
from app.handlers.few_shot import SavedResult
from app.handlers.inside import list_task_vectors

__all__ = ["HomeExample", "build_home_example"]

Answer = tuple[str, float]  # a class and its probability


@dataclass(frozen=True)
class HomeExample:
    """An image of the example whose answer teaching mended, and what it says without one task vector."""

    path: str
    name: str
    label: str
    before: Answer
    after: Answer
    images: int  # that were taught
    borrowed_from: str  # the data of the task vector that its answer leans on most; '' where it has none
    without: Answer


def build_home_example(
    engine: atlas.Atlas, result: SavedResult | None, *, images: int = 16
) -> HomeExample | None:
    """The example's image whose right answer leans most on one task vector; None without an example."""
    if result is None or result.comparison is None:
        return None
    mended = list(result.comparison.fixed(result.labels)) or list(range(len(result.samples)))
    chosen = [result.samples[place] for place in mended]
    ranked = engine.effects(result.recipe, [one.image for one in chosen])
    before, after = (side.top(1) for side in (result.comparison.zero_shot, result.comparison.adapted))
    if not ranked:
        sample, answer = result.samples[mended[0]], after[mended[0]][0]
        return HomeExample(
            sample.path,
            sample.image.name,
            sample.label or "",
            before[mended[0]][0],
            answer,
            images,
            "",
            answer,
        )
    strongest = ranked[0]
    place = max(range(len(chosen)), key=lambda row: strongest.drops[row])
    sample, answered = chosen[place], mended[place]
    known = {facts.name: facts.dataset for facts in list_task_vectors(engine)}
    return HomeExample(
        sample.path,
        sample.image.name,
        sample.label or "",
        before[answered][0],
        after[answered][0],
        images,
        known[strongest.task],
        (result.recipe.classes[strongest.answers[place]], strongest.probs[place]),
    )
