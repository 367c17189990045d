"""Pictures that arrive one by one, each answered at once. Knows nothing of files or pages.

    stream = engine.stream(["otter", "seal"])
    stream.answer("a.jpg")              # zero-shot: there is nothing to go by yet
    stream.answer("b.jpg")              # by what the pictures so far tell of the domain and its classes
    stream.recipe(); stream.reset()

The features of the latest pictures are kept, and class centres are found among them anew for each picture
(`heads.anchored`), itself included. Nothing else is: a stream takes the same memory after a million pictures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.adapt.vitals import doubtful, nothing_to_learn
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.config import Settings, setting
from atlas_engine.data.images import ImageSource
from atlas_engine.data.picture import Picture
from atlas_engine.heads.anchored import anchored
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.prediction import Predictions, from_logits
from atlas_engine.recipe import Recipe
from atlas_engine.test_timing import PhotoScene

__all__ = ["Stream", "StreamConfig"]


@dataclass(frozen=True, kw_only=True)
class StreamConfig(Settings):
    """What a stream remembers."""

    recent: int = setting(256, help="latest pictures whose features are kept", low=1, high=100_000)


class Stream:
    """The state of one stream. Give each its own; it is not to be shared between threads."""

    def __init__(
        self,
        scene: PhotoScene,
        *,
        see: Callable[[ImageSource], Picture],
        features: Callable[[Sequence[Picture]], Tensor],
        config: StreamConfig | None = None,
    ) -> None:
        self._scene, self._see, self._features = scene, see, features
        self.config = config or StreamConfig()
        self.reset()

    def answer(self, image: ImageSource) -> Predictions:
        """Probabilities of one picture, by what is known at its arrival; then it is remembered."""
        picture = self._see(image)
        feature = self._features([picture])
        self._recent.append(feature)
        self.seen += 1
        head = self._head()
        logits = self._zero_shot(feature) if head is None else head.logits(feature)
        return from_logits((picture.name,), self._scene.classes, logits)

    def reset(self) -> None:
        """Forget every picture: the next answer is zero-shot."""
        self.seen = 0
        self._recent: deque[Tensor] = deque(maxlen=self.config.recent)

    def recipe(self) -> Recipe:
        """What the stream knows now, as a recipe that answers other pictures."""
        scene, head = self._scene, self._head()
        return Recipe(
            Coefficients.zeros(scene.bank.tasks, scene.bank.blocks),
            model=scene.backbone.name,
            model_fingerprint=scene.model_fingerprint,
            bank_fingerprint=scene.bank.fingerprint,
            classes=scene.classes,
            method="zero-shot" if head is None else "anchored",
            config={**self.config.as_dict(), "head": "none" if head is None else "anchored"},
            head={} if head is None else dict(head.tensors),
        )

    def __repr__(self) -> str:
        return f"Stream({len(self._scene.classes)} classes, {self.seen} pictures seen)"

    def _head(self) -> Probe | None:
        """None while the pictures so far are better answered by the names alone."""
        if not self._recent:
            return None
        known = torch.cat(list(self._recent))
        if nothing_to_learn(known):
            return None
        head = anchored(known, self._scene.text, logit_scale=self._scene.backbone.logit_scale)
        return None if doubtful(self._zero_shot(known), head.logits(known)) else head

    def _zero_shot(self, features: Tensor) -> Tensor:
        return text_logits(features, self._scene.text, logit_scale=self._scene.backbone.logit_scale)
