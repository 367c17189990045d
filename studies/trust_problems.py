"""The images of a folder for `atlas eval trust`: read once, with features standardised on any support.

pool = read_pool(folder, engine.backbone, engine.head, max_classes=10, per_class=40, seed=0)
draw = draw_known_classes(pool, shots=4, seed=0)           # known classes, and classes to leave unseen
support, test = pool.features(draw.support, others=(draw.test,), classes=draw.known)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.clip.backbone import Backbone
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import SupportError
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.runtime import generator
from studies.problems.draw import draw_classes, draw_per_class, read_pixels

__all__ = ["ImagePool", "KnownClassDraw", "TextOf", "draw_known_classes", "read_pool"]

TextOf = Callable[[tuple[str, ...]], Tensor]  # class names to embeddings (C D)
SUFFIX = 0.05  # share of the weights behind the activations that are kept: as few as feature levels need


@dataclass(frozen=True, eq=False)
class ImagePool:
    """Images of some classes of a folder, and their activations in the tower."""

    name: str
    classes: tuple[str, ...]
    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)
    activations: Tensor  # (N …)
    text: Float[Tensor, "C D"]
    backbone: Backbone

    def rows_of(self, label: int) -> Tensor:
        """The positions of the images of a class."""
        return (self.labels == label).nonzero().squeeze(1)

    def taken(
        self,
        rows: Tensor,
        labels: Tensor,
        *,
        added: Tensor | None = None,
        added_labels: Tensor | None = None,
    ) -> ImagePool:
        """Some images with other labels, and then `added` pixels with labels of their own."""
        pixels, activations = self.pixels[rows], self.activations[rows]
        if added is not None and added_labels is not None:
            split = FrozenSplit(self.backbone, share=SUFFIX, multi_level=True)
            pixels, labels = torch.cat([pixels, added]), torch.cat([labels, added_labels])
            activations = torch.cat([activations, split.activations(added.float() / 255)])
        return replace(self, pixels=pixels, labels=labels, activations=activations)

    def features(
        self, support: Tensor, *, others: Sequence[Tensor] = (), classes: Sequence[int]
    ) -> tuple[LabelledFeatures, list[Tensor]]:
        """Labelled features of a support of these classes, and features of activations (N …) or rows (N).

        All are standardised on the support, as the product does it.
        """
        split = FrozenSplit(self.backbone, share=SUFFIX, multi_level=True)
        own = self.activations[support]
        split.fit_feature_stats(own)
        features = split.features(own)
        text, scale = split.zero_shot_head(self.text[list(classes)], features.shape[1])
        number = {label: index for index, label in enumerate(classes)}
        labels = torch.tensor([number[label] for label in self.labels[support].tolist()])
        more = [split.features(self.activations[rows] if rows.ndim == 1 else rows) for rows in others]
        return LabelledFeatures(features, labels, text, logit_scale=scale), more


def read_pool(
    folder: ClassFolder,
    backbone: Backbone,
    text_of: TextOf,
    *,
    max_classes: int,
    per_class: int,
    seed: int,
) -> ImagePool:
    """At most so many images of each of at most so many classes, drawn by seed."""
    drawn = draw_classes(folder, max_classes, seed=seed)
    items = draw_per_class(drawn, per_class, seed=seed)
    pixels = read_pixels(items, backbone.preprocessing)
    split = FrozenSplit(backbone, share=SUFFIX, multi_level=True)
    return ImagePool(
        folder.name,
        drawn.display_names,
        pixels,
        torch.tensor([item.label for item in items]),
        split.activations(pixels.float() / 255),
        text_of(drawn.display_names),
        backbone,
    )


@dataclass(frozen=True, eq=False)
class KnownClassDraw:
    """Known classes with a support and test images, and classes that nothing is learned of."""

    known: tuple[int, ...]
    support: Tensor  # rows of the pool
    test: Tensor
    test_labels: Tensor  # numbers among the known classes
    negatives: Tensor  # rows of one half of the other classes, as many as one known class has
    unseen: Tensor  # rows of the other half


def draw_known_classes(pool: ImagePool, *, shots: int, seed: int) -> KnownClassDraw:
    """Half of the classes as known ones, and of the rest a part for negatives and a part to leave unseen."""
    count = len(pool.classes)
    if count < 4:
        raise SupportError(
            f"{pool.name} has {count} classes, but 4 are needed: two to learn, one for negatives, one unseen."
        )
    draw = generator(seed)
    order = torch.randperm(count, generator=draw).tolist()
    half, three_quarters = count // 2, count // 2 + max(1, count // 4)
    known = tuple(sorted(order[:half]))
    support, test, labels = [], [], []
    for number, label in enumerate(known):
        rows = pool.rows_of(label)
        rows = rows[torch.randperm(len(rows), generator=draw)]
        support.append(rows[:shots])
        test.append(rows[shots:])
        labels += [number] * len(rows[shots:])
    negatives = torch.cat([pool.rows_of(label) for label in order[half:three_quarters]])
    return KnownClassDraw(
        known,
        torch.cat(support),
        torch.cat(test),
        torch.tensor(labels),
        negatives[torch.randperm(len(negatives), generator=draw)[: 2 * shots]],
        torch.cat([pool.rows_of(label) for label in order[three_quarters:]]),
    )
