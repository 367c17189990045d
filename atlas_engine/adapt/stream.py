"""Images that arrive one by one, each answered at once.

    stream = engine.stream(["otter", "seal"])
    stream.answer("a.jpg")              # zero-shot: there is nothing to go by yet
    …
    stream.answer("z.jpg")              # by a model adapted to the images so far, this one included
    stream.result(); stream.reset()

The latest images are kept, as small pixels. Once there are enough, and then each time that so many more have
come, the model is adapted to them as `adapt.unlabelled` does, and answers by that until the next time.
Nothing else is kept: a stream takes the same memory after a million images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlas_engine.adapt.collapse import FEWEST_IMAGES
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.unlabelled import TestTimeConfig, adapt_unlabelled, keep_zero_shot
from atlas_engine.config import Settings, setting
from atlas_engine.data.decode import ImageSource
from atlas_engine.data.image import Image
from atlas_engine.predictions import Predictions, predictions_from_logits
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Run

__all__ = ["Stream", "StreamConfig"]

Predictor = Callable[[Tensor], Tensor]
"""Pixels (N 3 S S) uint8 to logits (N C)."""


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Settings):
    """What a stream remembers, and how often it learns."""

    recent: int = setting(
        128, help="latest images that are kept to learn from", low=FEWEST_IMAGES, high=10_000
    )
    every: int = setting(30, help="images between two times of learning", low=1)


class Stream:
    """The state of one stream. Give each its own; it must not be shared between threads."""

    def __init__(
        self,
        context: AdaptContext,
        *,
        read: Callable[[ImageSource], tuple[Image, Tensor]],
        make_predictor: Callable[[Recipe], Predictor],
        objective: str = AUTO,
        config: StreamConfig | None = None,
        learning: TestTimeConfig | None = None,
        seed: int = 0,
    ) -> None:
        """`read` gives an image and its pixels (3 S S); `make_predictor` a recipe's predictor."""
        find_method("test-time", objective)
        self._context, self._read, self._make_predictor = context, read, make_predictor
        self._objective = objective
        self.config, self._learning, self._seed = config or StreamConfig(), learning or TestTimeConfig(), seed
        self.seen = self._next = 0  # images: that came, and that will have come when it learns again
        self.reset()

    def answer(self, image: ImageSource) -> Predictions:
        """Probabilities of one image, by what is known when it arrives; it is remembered, and may teach."""
        read, pixels = self._read(image)
        self._recent.append(pixels)
        self.seen += 1
        if self.seen >= FEWEST_IMAGES and self.seen >= self._next:
            self.learn()
        return predictions_from_logits((read.name,), self._context.classes, self._predictor(pixels[None]))

    def learn(self) -> AdaptResult:
        """Adapt to the images that are kept, now; the result answers from here on."""
        task = replace(self._context.task, pixels=torch.stack(list(self._recent)))
        context = replace(self._context, tasks=(task,))
        run = Run(
            lambda stop: adapt_unlabelled(
                context, method=self._objective, config=self._learning, seed=self._seed, stop=stop
            )
        )
        result = self._answer_by(run.result())
        self._next = self.seen + self.config.every
        return result

    def result(self) -> AdaptResult:
        """What the stream answers by now: a recipe that answers other images too, and why it is that one."""
        return self._result

    def reset(self) -> None:
        """Forget every image: the next answer is zero-shot."""
        self.seen, self._next = 0, 0
        self._recent: deque[Tensor] = deque(maxlen=self.config.recent)
        reason = f"fewer than {FEWEST_IMAGES} pictures have arrived"
        self._answer_by(keep_zero_shot(self._context, because=reason, config=self._learning, seed=self._seed))

    def __repr__(self) -> str:
        return f"Stream({len(self._context.classes)} classes, {self.seen} pictures seen)"

    def _answer_by(self, result: AdaptResult) -> AdaptResult:
        self._result, self._predictor = result, self._make_predictor(result.recipe)
        return result
