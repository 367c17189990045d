"""Pictures that arrive one by one, each answered at once. Knows nothing of files or pages.

    stream = engine.stream(["otter", "seal"])
    stream.answer("a.jpg")              # zero-shot: there is nothing to go by yet
    …
    stream.answer("z.jpg")              # by what the pictures so far have taught, itself included
    stream.result(); stream.reset()

The latest pictures are kept, as small squares. Once there are enough, and then each time that so many more
have come, the model is adapted to them as to any roll (`test_timing`), and answers by that until the next
time. Nothing else is kept: a stream takes the same memory after a million pictures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlas_engine.adapt.collapse import FEWEST_IMAGES
from atlas_engine.adapt.methods import AUTO, find_unlabelled_method
from atlas_engine.adapt.unlabelled import TestTimeConfig, UnlabelledContext, adapt_unlabelled, kept_zero_shot
from atlas_engine.config import Settings, setting
from atlas_engine.data.decode import ImageSource
from atlas_engine.data.image import Image
from atlas_engine.predictions import Predictions, predictions_from_logits
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Run

__all__ = ["Stream", "StreamConfig"]

Answering = Callable[[Tensor], Tensor]
"""Squares (N 3 S S) to logits (N C)."""


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Settings):
    """What a stream remembers, and how often it learns."""

    recent: int = setting(
        128, help="latest pictures that are kept to learn from", low=FEWEST_IMAGES, high=10_000
    )
    every: int = setting(30, help="pictures between two times of learning", low=1)


class Stream:
    """The state of one stream. Give each its own; it is not to be shared between threads."""

    def __init__(
        self,
        scene: UnlabelledContext,
        *,
        see: Callable[[ImageSource], tuple[Image, Tensor]],
        by: Callable[[Recipe], Answering],
        objective: str = AUTO,
        config: StreamConfig | None = None,
        learning: TestTimeConfig | None = None,
        seed: int = 0,
    ) -> None:
        """`see` makes a picture and its square, `by` what answers by a recipe."""
        find_unlabelled_method(objective)
        self._scene, self._see, self._by, self._objective = scene, see, by, objective
        self.config, self._learning, self._seed = config or StreamConfig(), learning or TestTimeConfig(), seed
        self.seen = self._next = 0  # pictures: that came, and that will have come when it learns again
        self.reset()

    def answer(self, image: ImageSource) -> Predictions:
        """Probabilities of one picture, by what is known at its arrival; it is remembered, and may teach."""
        picture, square = self._see(image)
        self._recent.append(square)
        self.seen += 1
        if self.seen >= FEWEST_IMAGES and self.seen >= self._next:
            self.learn()
        return predictions_from_logits((picture.name,), self._scene.classes, self._answering(square[None]))

    def learn(self) -> AdaptResult:
        """Adapt to the pictures that are kept, now; what comes of it answers from here on."""
        scene = replace(self._scene, squares=torch.stack(list(self._recent)))
        run = Run(
            lambda stop: adapt_unlabelled(
                scene, method=self._objective, config=self._learning, seed=self._seed, stop=stop
            )
        )
        result = self._follow(run.result())
        self._next = self.seen + self.config.every
        return result

    def result(self) -> AdaptResult:
        """What the stream goes by now: a recipe that answers other pictures too, and why it is that."""
        return self._result

    def reset(self) -> None:
        """Forget every picture: the next answer is zero-shot."""
        self.seen, self._next = 0, 0
        self._recent: deque[Tensor] = deque(maxlen=self.config.recent)
        reason = f"fewer than {FEWEST_IMAGES} pictures have arrived"
        self._follow(kept_zero_shot(self._scene, because=reason, config=self._learning, seed=self._seed))

    def __repr__(self) -> str:
        return f"Stream({len(self._scene.classes)} classes, {self.seen} pictures seen)"

    def _follow(self, result: AdaptResult) -> AdaptResult:
        self._result, self._answering = result, self._by(result.recipe)
        return result
