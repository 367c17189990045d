"""Which image tower to build on: accuracy against speed, before any training.

Two measures of frozen features, both fair to any tower:

    shots      nearest class mean of k images a class, by cosine; averaged over draws
    zero-shot  a ridge regression from features to the teacher's mean concept, on images of other sets;
               then the nearest class name
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from studies.bundled_model import batches, towers
from studies.bundled_model.student import HALF
from studies.bundled_model.train import TEACHER_SIZE
from studies.bundled_model.words import concept_words, text_encoder, text_projection

__all__ = ["Candidate", "ComparisonSet", "TowerScore", "compare"]

CANDIDATES = tuple((tower, size) for size in (128, 160, 224) for tower in (towers.LITE0, towers.TINYVIT))
SHOTS = (1, 4)
DRAWS = 10
BATCH = 32
RIDGE = 1e-2  # share of the features' mean square
TEMPERATURE = 2.0
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what TinyViT was trained with

Candidate = tuple[str, int]


@dataclass(frozen=True)
class ComparisonSet:
    """One data set: uint8 pixels (N 3 S S), labels (N) and class names."""

    name: str
    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class TowerScore:
    """One tower at one size on one data set; `images_per_second` is of the forward pass alone."""

    tower: str
    size: int
    dataset: str
    zero_shot: float
    one_shot: float
    four_shot: float
    images_per_second: float


def compare(sets: Sequence[ComparisonSet], teach: Tensor, wheel: Path) -> Iterator[TowerScore]:
    """Scores of every candidate on every set; the regression learns from the images `teach` (N 3 S S)."""
    runtime.keep_memory()
    encode_text, projection = text_encoder(), text_projection()
    words = concept_words()
    probs = _teacher_probs(teach)
    for tower, size in CANDIDATES:
        encode = _encoder(tower, size, wheel)
        taught, _ = encode(teach)
        weights = _ridge(taught, probs @ words)
        for one in sets:
            features, rate = encode(one.pixels)
            head = F.normalize(F.normalize(encode_text(one.classes), dim=-1) @ projection.T, dim=-1)
            zero = (F.normalize(features @ weights, dim=-1) @ head.T).argmax(dim=1)
            one_shot, four_shot = (_nearest_mean(features, one.labels, k) for k in SHOTS)
            zero_shot = _share(zero == one.labels)
            yield TowerScore(tower, size, one.name, zero_shot, one_shot, four_shot, rate)


def _encoder(tower: str, size: int, wheel: Path) -> Callable[[Tensor], tuple[Tensor, float]]:
    """A function from pixels (N 3 S S) to unit features (N D) and images a second."""
    if tower == towers.LITE0:
        model, mean, std = towers.lite0(), HALF, HALF
        model.reset_classifier(0)  # type: ignore[operator]
    else:
        model, mean, std = towers.tinyvit(wheel, size), IMAGENET_MEAN, IMAGENET_STD

    def encode(pixels: Tensor) -> tuple[Tensor, float]:
        parts, seconds = [], 0.0
        with torch.inference_mode():
            for some in torch.split(pixels, BATCH):
                images = batches.normalise(_resized(some, size), mean, std)
                start = time.perf_counter()
                parts.append(model(images))
                seconds += time.perf_counter() - start
        return F.normalize(torch.cat(parts), dim=-1).clone(), len(pixels) / seconds

    return encode


def _teacher_probs(pixels: Tensor) -> Tensor:
    model = towers.lite0()
    with torch.inference_mode():
        parts = [
            (model(batches.normalise(_resized(some, TEACHER_SIZE), HALF, HALF)) / TEMPERATURE).softmax(dim=1)
            for some in torch.split(pixels, BATCH)
        ]
    return torch.cat(parts).clone()


def _resized(pixels: Tensor, size: int) -> Tensor:
    return F.interpolate(pixels, (size, size), mode="bicubic", antialias=True).float() / 255


def _ridge(features: Tensor, wanted: Tensor) -> Tensor:
    """The weights (D E) that take features (N D) nearest to `wanted` (N E)."""
    gram = features.T @ features
    damped = gram + RIDGE * gram.diagonal().mean() * torch.eye(len(gram))
    weights: Tensor = torch.linalg.solve(damped, features.T @ wanted)
    return weights


def _nearest_mean(features: Tensor, labels: Tensor, k: int) -> float:
    """Nearest-mean accuracy with `k` images a class, the mean over draws; the rest is tested."""
    shares = []
    for draw in range(DRAWS):
        order = torch.randperm(len(labels), generator=runtime.generator(draw))
        rank = torch.stack([(labels[order] == c).cumsum(0) for c in range(int(labels.max()) + 1)])
        place = rank[labels[order], torch.arange(len(order))]
        support, rest = order[place <= k], order[place > k]
        onehot = F.one_hot(labels[support]).float()
        means = F.normalize(onehot.T @ features[support], dim=-1)  # (C N) @ (N D) -> (C D)
        shares.append(_share((features[rest] @ means.T).argmax(dim=1) == labels[rest]))
    return sum(shares) / len(shares)


def _share(right: Tensor) -> float:
    return float(right.float().mean())
