"""The worked examples: lessons that ship with their result, so that the page opens on one. Knows no Gradio.

    python -m app.prepared_examples    compute them anew with the bundled model and bank, into assets/examples

A result is a recipe and its story, the sentences and numbers beside it. It is shown only where the model and
the bank are those it was made with; the comparison is always computed afresh.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import atlas_engine as atlas
from app.examples import FORGET, LESSONS, ForgetExample, LessonExample
from app.handlers.choices import Choices
from app.handlers.forget import ForgetRequest, ForgetResult, forget, pictures_of
from app.handlers.lesson import read_samples
from app.handlers.teach import compared, teach
from app.state import SavedResult

__all__ = ["RECIPE", "load_forgotten", "load_worked", "make_forgotten", "make_worked"]

RECIPE, STORY = "recipe.atlas.safetensors", "story.json"
FORGET_RECIPE, FORGET_STORY = "forget.atlas.safetensors", "forget.json"


def load_worked(engine: atlas.Atlas, example: LessonExample) -> SavedResult | None:
    """The example's result, if it was made with this model and bank."""
    try:
        recipe = atlas.Recipe.load(example.path / RECIPE)
        recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)
        story = json.loads((example.path / STORY).read_text(encoding="utf-8"))
    except (atlas.AtlasError, OSError):
        return None
    samples, _ = read_samples(example.lesson.samples, recipe.classes)
    return SavedResult(
        recipe,
        story["sentence"],
        choices=Choices(**story["choices"]),
        helped=story["helped"],
        estimates=tuple(atlas.Estimate(**one) for one in story["estimates"]),
        losses=tuple(story["losses"]),
        seconds=story["seconds"],
        samples=samples,
        comparison=compared(engine, recipe, samples),
        example=True,
    )


def make_worked(engine: atlas.Atlas, example: LessonExample, folder: Path) -> SavedResult:
    """Learn the lesson with the default settings, and write its recipe and story into `folder`."""
    *_, last = teach(engine, example.lesson, most_seconds=math.inf)  # the same on every machine
    kept = last.kept
    assert kept is not None
    kept.recipe.save(folder / RECIPE)
    story = {
        "sentence": kept.sentence,
        "helped": kept.helped,
        "choices": asdict(kept.choices or Choices()),
        "estimates": [asdict(one) for one in kept.estimates],
        "losses": [round(loss, 4) for loss in kept.losses],
        "seconds": round(kept.seconds, 1),
    }
    (folder / STORY).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    return kept


def load_forgotten(engine: atlas.Atlas, example: ForgetExample = FORGET) -> ForgetResult | None:
    """What came of forgetting, if it was made with this model and bank."""
    folder = example.fine.path
    try:
        recipe = atlas.Recipe.load(folder / FORGET_RECIPE)
        recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)
        story = json.loads((folder / FORGET_STORY).read_text(encoding="utf-8"))
    except (atlas.AtlasError, OSError):
        return None
    wish = _wish(example, keep=story["keep"])
    return ForgetResult(
        recipe,
        story["sentence"],
        story["helped"],
        tuple(atlas.ForgettingPoint(**one) for one in story["curve"]),
        *pictures_of(engine, wish),
        keep=story["keep"],
        seconds=story["seconds"],
        example=True,
    )


def make_forgotten(engine: atlas.Atlas, example: ForgetExample, folder: Path) -> ForgetResult:
    """Forget as the example says with the default settings, and write recipe and story into `folder`."""
    wish = _wish(example, keep=atlas.NegateConfig().keep)
    *_, last = forget(engine, wish, most_seconds=math.inf)
    kept = last.kept
    assert kept is not None
    kept.recipe.save(folder / FORGET_RECIPE)
    story = {
        "sentence": kept.sentence,
        "helped": kept.helped,
        "curve": [{name: round(value, 4) for name, value in asdict(one).items()} for one in kept.curve],
        "keep": kept.keep,
        "seconds": round(kept.seconds, 1),
    }
    (folder / FORGET_STORY).write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    return kept


def _wish(example: ForgetExample, *, keep: float) -> ForgetRequest:
    return ForgetRequest.of(example.target, example.control, keep=keep, seed=0)


def main() -> int:
    """Make every example's result and say what came of it."""
    with atlas.open() as engine:
        gone = make_forgotten(engine, FORGET, FORGET.fine.path)
        sys.stderr.write(f"{FORGET.fine.title}: {gone.sentence}\n")
        for example in LESSONS:
            kept = make_worked(engine, example, example.path)
            sys.stderr.write(f"{example.title}: {kept.sentence}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
