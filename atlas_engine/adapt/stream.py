"""A stream of images without labels: each is answered as it arrives, and the model adapts along the way.

    stream = engine.stream(["otter", "seal"])
    stream.answer("a.jpg")              # zero-shot, because too few images have arrived
    …
    stream.answer("z.jpg")              # by a model that was adapted to recent images
    stream.result(); stream.reset()

The stream keeps the pixels of the latest `recent` images. Once `FEWEST_IMAGES` have arrived, and again after
every `every` images, it adapts to those it keeps (`adapt.unlabelled`) and answers with the new model. Its
memory does not grow with the number of images.
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
    """How many images a stream keeps, and how often it adapts to them."""

    recent: int = setting(
        128, help="latest images that are kept to learn from", low=FEWEST_IMAGES, high=10_000
    )
    every: int = setting(30, help="images between two adaptations", low=1)


class Stream:
    """One stream and its state. Not safe to share between threads."""

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
        """`read` decodes an image and gives its pixels (3 S S); `make_predictor` builds a recipe's model."""
        find_method("test-time", objective)
        self._context, self._read, self._make_predictor = context, read, make_predictor
        self._objective = objective
        self.config, self._learning, self._seed = config or StreamConfig(), learning or TestTimeConfig(), seed
        self.seen = self._next = 0  # images so far, and the number of images at which it adapts again
        self.reset()

    def answer(self, image: ImageSource) -> Predictions:
        """Predictions for one image, which is kept to learn from; adapts first where it is time to."""
        read, pixels = self._read(image)
        self._recent.append(pixels)
        self.seen += 1
        if self.seen >= FEWEST_IMAGES and self.seen >= self._next:
            self.learn()
        return predictions_from_logits((read.name,), self._context.classes, self._predictor(pixels[None]))

    def learn(self) -> AdaptResult:
        """Adapt to the kept images now, and answer with the result from here on."""
        task = replace(self._context.task, pixels=torch.stack(list(self._recent)))
        context = replace(self._context, tasks=(task,))
        run = Run(
            lambda stop: adapt_unlabelled(
                context, method=self._objective, config=self._learning, seed=self._seed, stop=stop
            )
        )
        result = self._answer_with(run.result())
        self._next = self.seen + self.config.every
        return result

    def result(self) -> AdaptResult:
        """The result that the stream currently answers with; its recipe can be saved."""
        return self._result

    def reset(self) -> None:
        """Drop all images: the next answer is zero-shot."""
        self.seen, self._next = 0, 0
        self._recent: deque[Tensor] = deque(maxlen=self.config.recent)
        reason = f"fewer than {FEWEST_IMAGES} pictures have arrived"
        self._answer_with(
            keep_zero_shot(self._context, because=reason, config=self._learning, seed=self._seed)
        )

    def __repr__(self) -> str:
        return f"Stream({len(self._context.classes)} classes, {self.seen} images seen)"

    def _answer_with(self, result: AdaptResult) -> AdaptResult:
        self._result, self._predictor = result, self._make_predictor(result.recipe)
        return result
