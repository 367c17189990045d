"""From a trained student to a CLIP: weights half-way back to the start, and what pictures look like.

Weights between the start and the end of a fine-tuning often do better than either, on what was taught and on
what was not (WiSE-FT, CVPR 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.clip import bundled
from atlas_engine.clip.bundled import SEMANTIC_DIM, SEMANTIC_NORM, VISUAL_DIM
from atlas_engine.config import Settings, setting
from studies.bundled_model.lesson import AlignBatch
from studies.bundled_model.student import Student, Words, features_of
from studies.bundled_model.train import write
from studies.bundled_model.words import text_projection

__all__ = ["FinishSettings", "finish", "principal"]

CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class FinishSettings(Settings):
    """How the trained student becomes the model that ships."""

    trained_share: float = setting(
        0.5, help="share of the trained weights; the rest is the start", low=0, high=1
    )
    seen_images: int = setting(4000, help="images that tell what pictures differ by", low=1)


def finish(lesson: AlignBatch, words: Words, work: Path, settings: FinishSettings, *, tau: float) -> None:
    """`work/trained.pt` becomes `work/model.pt`, the state of a whole CLIP."""
    student = Student.start(words, lesson.pixels)
    start = {name: tensor.clone() for name, tensor in student.state().items()}
    trained = torch.load(work / "trained.pt", weights_only=True)
    student.restore(_between(start, trained, settings.trained_share))
    head = student.finished()
    some = lesson.pixels[:: max(1, len(lesson.pixels) // settings.seen_images)]
    with torch.no_grad():
        features = [features_of(student.tower, part.float() / 255) for part in torch.split(some, CHUNK)]
    head["seen_weight"], head["seen_bias"] = principal(torch.cat(features), VISUAL_DIM)
    clip = bundled.build()
    tower = {n: t for n, t in student.tower.state_dict().items() if not n.startswith("classifier.")}
    clip.visual.trunk.load_state_dict(tower)
    clip.visual.head.load_state_dict(head)
    clip.text.proj.weight.data[:SEMANTIC_DIM].copy_(text_projection())
    clip.text.proj.weight.data[SEMANTIC_DIM:].zero_()  # words say nothing of looks
    clip.logit_scale.data.fill_(math.log(1 / (tau * SEMANTIC_NORM)))
    write(work / "model.pt", clip.state_dict())


def principal(features: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The weights (count D) and bias (count) of the directions in which features (N D) differ most."""
    mean = features.mean(dim=0)
    _, _, directions = torch.linalg.svd(features - mean, full_matrices=False)
    weight = directions[:count]
    return weight.contiguous(), -(weight @ mean)


def _between(start: dict[str, Tensor], end: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    return {
        name: torch.lerp(start[name], tensor, share) if tensor.is_floating_point() else tensor
        for name, tensor in end.items()
    }
