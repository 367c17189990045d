"""Synthetic features whose classes are known, and class names that help a little: made from a seed."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from atlas_engine.heads.base import LabelledFeatures

SCALE = 20.0


def make_classes(classes=5, *, dim=24, spread=0.6, text_noise=1.2, seed=0):
    """A function that draws features for labels, and the class embeddings. A class lies around its centre."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(classes, dim, generator=generator), dim=1)
    noise = text_noise * normalize(torch.randn(classes, dim, generator=generator), dim=1)

    def draw(labels):
        labels = torch.as_tensor(labels)
        around = spread * normalize(torch.randn(len(labels), dim, generator=generator), dim=1)
        return normalize(centres[labels] + around, dim=1), labels

    return draw, normalize(centres + noise, dim=1)


def make_support(counts=(4, 4, 4, 4, 4), **kind):
    """A support with so many images of each class, and 40 test images of each class."""
    draw, text = make_classes(len(counts), **kind)
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    features, labels = draw(labels)
    tests = draw(torch.arange(len(counts)).repeat_interleave(40))
    return LabelledFeatures(features, labels, text, logit_scale=SCALE), tests


def take_rows(support, rows):
    """The support of some rows alone, by position or mask."""
    return LabelledFeatures(
        support.features[rows], support.labels[rows], support.text, logit_scale=support.logit_scale
    )


def accuracy(head, tests):
    features, labels = tests
    return (head.logits(features).argmax(dim=1) == labels).float().mean().item()
