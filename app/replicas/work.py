"""What a replica does with a message: answer by class names, answer by a recipe, or learn. It knows no Ray.

    worker = Worker.open(model, bank=bank, results=address)
    worker.predict(body)                     # the message of a `Predictions`
    worker.try_recipe(body)                  # of a `Comparison`, by a recipe's id
    lesson = worker.learn(body)              # messages of steps, then of the result
    for message in lesson: ...

A replica keeps nothing that another lacks: recipes lie in the store, and composed ones are kept as the page
keeps them (`app.predictors`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import atlas_engine as atlas
from app import text
from app.predictors import Predictors
from app.replicas import messages
from app.replicas.messages import Facts
from app.replicas.results import Results

__all__ = ["Lesson", "Worker"]

MAX_RECIPES = 64  # read from the store and kept; composed ones are fewer, by their size


class Worker:
    """An engine with the store of results. Threads may share it: one at a time computes.

    A composed model keeps the features of its layers while it answers, so that two answers at once would
    take each other's. Messages are read and written beside that.
    """

    def __init__(self, engine: atlas.Atlas, results: Results) -> None:
        self.engine, self.results = engine, results
        self._predictors = Predictors()
        self._recipes: OrderedDict[str, atlas.Recipe] = OrderedDict()
        self._lock, self._computing = threading.Lock(), threading.Lock()

    @classmethod
    def open(cls, model: str, *, bank: str | None, device: str | None, results: str) -> Worker:
        """A worker with that model; its bank is in this machine's memory once, whatever opens it."""
        engine = atlas.open(model, bank=bank, device=device, cache=False, share_bank=True)
        return cls(engine, Results(results))

    def facts(self) -> Facts:
        """Which model and bank answer here."""
        engine = self.engine
        return {
            "model": engine.backbone.name,
            "model_fingerprint": engine.fingerprint,
            "bank_fingerprint": None if engine.bank_path is None else engine.bank.fingerprint,
        }

    def predict(self, body: bytes) -> bytes:
        """The images' predictions under class names."""
        facts, tensors = messages.decode(body)
        images = messages.images_from(facts, tensors)
        classes, templates = _texts(facts, "classes"), _texts(facts, "templates", required=False)
        with self._computing:
            predictions = self.engine.predict(images, classes, templates=templates or None)
        return messages.predictions_as_message(predictions)

    def try_recipe(self, body: bytes) -> bytes:
        """The images by zero-shot and by the recipe of an id."""
        facts, tensors = messages.decode(body)
        images = messages.images_from(facts, tensors)
        recipe = self._recipe(str(facts.get("recipe", "")))
        with self._computing:
            comparison = self._predictors.compare(self.engine, recipe, images)
        return messages.comparison_as_message(comparison)

    def learn(self, body: bytes) -> Lesson:
        """A few-shot run; its messages are made as they are asked for."""
        facts, tensors = messages.decode(body)
        images = messages.images_from(facts, tensors)
        try:
            labels = tuple(int(label) for label in facts["labels"])
            config = atlas.FewShotConfig(**facts["config"])
            method, seed, run_id = str(facts["method"]), int(facts["seed"]), str(facts["run"])
        except (KeyError, TypeError, ValueError):
            raise atlas.AtlasError(text.replicas.BAD_MESSAGE) from None
        run = self.engine.few_shot(
            atlas.Support(images, labels, _texts(facts, "classes")),
            method=method,
            config=config,
            templates=_texts(facts, "templates", required=False) or None,
            seed=seed,
        )
        return Lesson(run, run_id, self.results)

    def _recipe(self, recipe_id: str) -> atlas.Recipe:
        """The recipe of an id: the same object while it is kept, for it is the key of what is composed."""
        with self._lock:
            found = self._recipes.get(recipe_id)
        if found is None:
            read = atlas.Recipe.from_bytes(self.results.get(recipe_id), name=recipe_id[:12])
        with self._lock:
            found = found or self._recipes.setdefault(recipe_id, read)
            self._recipes[recipe_id] = found
            self._recipes.move_to_end(recipe_id)
            while len(self._recipes) > MAX_RECIPES:
                self._recipes.popitem(last=False)
        return found


@dataclass(frozen=True)
class Lesson:
    """A run as messages."""

    run: atlas.Run[atlas.AdaptResult]
    run_id: str
    results: Results

    def __iter__(self) -> Iterator[bytes]:
        for step in self.run:
            yield messages.step_as_message(step)
        result = self.run.result()
        for recipe in result.alternatives.values():
            self.results.put(recipe.to_bytes())
        yield messages.result_as_message(result, self.results.put(result.recipe.to_bytes()))

    def stop_if_asked(self) -> bool:
        """End the run with what it has if somebody asked for that in the store; whether somebody did."""
        asked = self.results.is_stopped(self.run_id)
        if asked:
            self.run.cancel()
        return asked

    def end(self) -> None:
        """Nobody listens any more."""
        self.run.cancel()
        self.results.forget_run(self.run_id)


def _texts(facts: Facts, key: str, *, required: bool = True) -> tuple[str, ...]:
    """A list of texts in a message."""
    values = facts.get(key)
    if values is None and not required:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise atlas.AtlasError(text.replicas.BAD_MESSAGE)
    return tuple(values)
