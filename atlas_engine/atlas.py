"""The session object: a model on a device, and what one can do with it. Sits above every other part.

    with atlas.open() as engine:
        engine.predict(["a.jpg", "b.jpg"], ["otter", "seal"]).top(3)

Opening is expensive and using it is cheap, so open once and keep it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.bank.vector import fingerprint
from atlas_engine.cache import Cache, cache_key
from atlas_engine.clip.backbone import Backbone, open_backbone
from atlas_engine.clip.head import text_head
from atlas_engine.clip.prompts import check_classes, template_set
from atlas_engine.config import cache_folder
from atlas_engine.data.images import ImageSource, read_image
from atlas_engine.data.picture import Picture
from atlas_engine.data.transforms import to_batch
from atlas_engine.errors import SupportError
from atlas_engine.prediction import Predictions, from_logits

__all__ = ["Atlas", "open", "predict"]

BATCH = 32
HEADS = 16  # sets of class names whose embeddings are kept in memory


def open(model: str = "bundled", *, device: str | None = None, cache: Cache | bool = True) -> Atlas:
    """A session with the model called `model`; `cache=False` keeps nothing on disk."""
    runtime.keep_memory()
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    return Atlas(open_backbone(model, device=runtime.pick_device(device)), cache=store)


def predict(images: Sequence[ImageSource], classes: Sequence[str], *, model: str = "bundled") -> Predictions:
    """Zero-shot predictions, opening and closing the model on the way."""
    with open(model) as engine:
        return engine.predict(images, classes)


class Atlas:
    """A model on a device, with a cache of what it has already seen and read."""

    def __init__(self, backbone: Backbone, *, cache: Cache | None = None) -> None:
        self.backbone = backbone
        self.cache = cache
        self._read_head = functools.lru_cache(maxsize=HEADS)(self._head)

    def predict(
        self, images: Sequence[ImageSource], classes: Sequence[str], *, templates: str | None = None
    ) -> Predictions:
        """Zero-shot probabilities of each image over `classes`.

        logits = logit_scale · normalise(features) @ headᵀ        # (N D) @ (D C) -> (N C)
        """
        names = check_classes(classes, at_least=2)
        pictures = self.pictures(images)
        logits = self.backbone.logit_scale * self.features(pictures) @ self.head(names, templates=templates).T
        return from_logits(tuple(picture.name for picture in pictures), names, logits)

    def pictures(self, images: Sequence[ImageSource]) -> list[Picture]:
        """The images read and guarded: paths, bytes, PIL images, arrays or pictures."""
        if isinstance(images, (str, bytes)):
            raise SupportError("images must be a list, but got one image. Pass [image].")
        if not len(images):
            raise SupportError("got no images. Give at least one.")
        return [read_image(image) for image in images]

    def head(self, classes: Sequence[str], *, templates: str | None = None) -> Tensor:
        """Class embeddings (C D), L2-normalised; `templates` is a set's name or a sentence with {}."""
        return self._read_head(tuple(classes), template_set(templates or self.backbone.templates))

    def features(self, pictures: Sequence[Picture]) -> Tensor:
        """Image features (N D), L2-normalised, in float32 on the device; cached by picture."""
        keys = [cache_key("image", self.fingerprint, picture.digest) for picture in pictures]
        found = {key: self.cache.get_tensor(key) for key in keys} if self.cache is not None else {}
        todo = {key: picture for key, picture in zip(keys, pictures, strict=True) if found.get(key) is None}
        for batch_keys, features in self._computed(todo):
            found.update(zip(batch_keys, features, strict=True))
            if self.cache is not None:
                for key, feature in zip(batch_keys, features, strict=True):
                    self.cache.put_tensor(key, feature)
        rows = [row for row in (found[key] for key in keys) if row is not None]
        return torch.stack(rows).to(self.backbone.device)

    @functools.cached_property
    def fingerprint(self) -> str:
        """What stands for the image tower's weights: of caches, banks and recipes."""
        return fingerprint(dict(self.backbone.visual.state_dict()))

    def close(self) -> None:
        """Let go of the cache; the model goes with the object."""
        if self.cache is not None:
            self.cache.close()

    def _head(self, classes: tuple[str, ...], templates: tuple[str, ...]) -> Tensor:
        return text_head(self.backbone, classes, templates, cache=self.cache, key=self.fingerprint)

    def _computed(self, todo: dict[str, Picture]) -> Iterator[tuple[list[str], Tensor]]:
        keys = list(todo)
        shape = self.backbone.preprocessing
        for start in range(0, len(keys), BATCH):
            some = keys[start : start + BATCH]
            images = to_batch(
                [todo[key] for key in some],
                size=shape.size,
                mean=shape.mean,
                std=shape.std,
                resize=shape.resize,
                interpolation=shape.interpolation,
            )
            with torch.inference_mode():
                features = F.normalize(self.backbone.visual(images.to(self.backbone.device)).float(), dim=-1)
            yield some, features.cpu().clone()

    def __enter__(self) -> Atlas:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Atlas({self.backbone!r})"
