"""The worked examples: few-shot examples that ship with their result, so that the page opens on one.

    python -m app.prepared_examples    compute them anew with the bundled model and bank, into assets/examples

A result is a recipe, and beside it a JSON file with its sentence and numbers. It is shown only where the
model and the bank are those it was made with; the comparison is always computed afresh.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app.examples import FEW_SHOT_EXAMPLES, FORGET_EXAMPLE, FewShotExample, ForgetExample
from app.handlers.few_shot import SavedResult, adapt_few_shot, compare_samples
from app.handlers.forget import ForgetRequest, ForgetResult, forget, read_sides
from app.handlers.settings import FewShotSettings
from app.handlers.takeaway import fits
from app.handlers.uploads import read_samples

__all__ = ["RECIPE", "load_few_shot", "load_forget", "make_few_shot", "make_forget"]

RECIPE, STORY = "recipe.atlas.safetensors", "story.json"
FORGET_RECIPE, FORGET_STORY = "forget.atlas.safetensors", "forget.json"


def load_few_shot(engine: atlas.Atlas, example: FewShotExample) -> SavedResult | None:
    """The example's result; None if it was made with another model or bank."""
    loaded = _load(engine, example.path / RECIPE, example.path / STORY)
    if loaded is None:
        return None
    recipe, story = loaded
    samples, _ = read_samples(example.request.samples, recipe.classes)
    return SavedResult(
        recipe,
        story["sentence"],
        settings=FewShotSettings(**story["choices"]),
        helped=story["helped"],
        estimates=tuple(atlas.Estimate(**one) for one in story["estimates"]),
        losses=tuple(story["losses"]),
        seconds=story["seconds"],
        samples=samples,
        comparison=compare_samples(engine, recipe, samples),
        example=True,
    )


def make_few_shot(engine: atlas.Atlas, example: FewShotExample, folder: Path) -> SavedResult:
    """Learn the example with the default settings, and write its recipe and numbers to `folder`."""
    # without a deadline: the same on every machine
    *_, last = adapt_few_shot(engine, example.request, most_seconds=math.inf)
    result = last.result
    assert result is not None
    settings = result.settings
    assert isinstance(settings, FewShotSettings)
    story = {
        "sentence": result.sentence,
        "helped": result.helped,
        "choices": asdict(settings),
        "estimates": [asdict(one) for one in result.estimates],
        "losses": [round(loss, 4) for loss in result.losses],
        "seconds": round(result.seconds, 1),
    }
    result.recipe.save(folder / RECIPE)
    (folder / STORY).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    return result


def load_forget(engine: atlas.Atlas, example: ForgetExample = FORGET_EXAMPLE) -> ForgetResult | None:
    """The result of forgetting; None if it was made with another model or bank."""
    loaded = _load(engine, example.fine.path / FORGET_RECIPE, example.fine.path / FORGET_STORY)
    if loaded is None:
        return None
    recipe, story = loaded
    target, control = read_sides(engine, _forget_request(example, keep=story["keep"]))
    return ForgetResult(
        recipe,
        story["sentence"],
        story["helped"],
        tuple(atlas.ForgettingPoint(**one) for one in story["curve"]),
        target,
        control,
        keep=story["keep"],
        seconds=story["seconds"],
        example=True,
    )


def make_forget(engine: atlas.Atlas, example: ForgetExample, folder: Path) -> ForgetResult:
    """Forget as the example says with the default settings, and write recipe and numbers to `folder`."""
    request = _forget_request(example, keep=atlas.NegateConfig().keep)
    *_, last = forget(engine, request, most_seconds=math.inf)
    result = last.result
    assert result is not None
    story = {
        "sentence": result.sentence,
        "helped": result.helped,
        "curve": [{name: round(value, 4) for name, value in asdict(one).items()} for one in result.curve],
        "keep": result.keep,
        "seconds": round(result.seconds, 1),
    }
    result.recipe.save(folder / FORGET_RECIPE)
    (folder / FORGET_STORY).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    return result


def _load(engine: atlas.Atlas, recipe: Path, story: Path) -> tuple[atlas.Recipe, dict[str, Any]] | None:
    """A recipe and its numbers, if they are there and fit the engine."""
    try:
        loaded = atlas.Recipe.load(recipe)
        if not fits(loaded, engine):
            return None
        return loaded, json.loads(story.read_text(encoding="utf-8"))
    except (atlas.AtlasError, OSError):
        return None


def _forget_request(example: ForgetExample, *, keep: float) -> ForgetRequest:
    return ForgetRequest.of(example.target, example.control, keep=keep, seed=0)


def main() -> int:
    """Make every example's result and print its sentence."""
    with atlas.open() as engine:
        forgotten = make_forget(engine, FORGET_EXAMPLE, FORGET_EXAMPLE.fine.path)
        sys.stderr.write(f"{FORGET_EXAMPLE.fine.title}: {forgotten.sentence}\n")
        for example in FEW_SHOT_EXAMPLES:
            result = make_few_shot(engine, example, example.path)
            sys.stderr.write(f"{example.title}: {result.sentence}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
