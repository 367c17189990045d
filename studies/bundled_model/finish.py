"""From a trained student to the CLIP that ships: its weights, its file and the manifest.

Weights between the start and the end of a fine-tuning often do better than either, on what was taught and on
what was not (WiSE-FT, CVPR 2022). The head also gets the directions in which images differ most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.clip import bundled
from atlas_engine.clip.bundled import SEMANTIC_DIM, SEMANTIC_NORM, VISUAL_DIM
from atlas_engine.config import Settings, setting
from atlas_engine.files import sha256_of
from studies.bundled_model import towers
from studies.bundled_model.batches import AlignmentData
from studies.bundled_model.student import Student, features_of
from studies.bundled_model.train import save_state
from studies.bundled_model.words import WordEmbeddings, text_projection

__all__ = ["FinishSettings", "export", "finish", "principal_directions"]

CHUNK = 64
KEPT_LOSSES = 40


@dataclass(frozen=True, kw_only=True)
class FinishSettings(Settings):
    """How the trained student becomes the model that ships."""

    trained_share: float = setting(
        0.5, help="share of the trained weights; the rest is the start", low=0, high=1
    )
    seen_images: int = setting(4000, help="images that tell what images differ by", low=1)


def finish(
    data: AlignmentData, words: WordEmbeddings, work: Path, settings: FinishSettings, *, tau: float
) -> None:
    """Turn `work/trained.pt` into `work/model.pt`, the state of a whole CLIP."""
    # the tower and head between the start and the end of the training
    student = Student.start(words, data.pixels)
    start = {name: tensor.clone() for name, tensor in student.state().items()}
    trained = torch.load(work / "trained.pt", weights_only=True)
    student.restore(_interpolate(start, trained, settings.trained_share))
    head = student.finished_head()
    # the directions in which images differ most
    some = data.pixels[:: max(1, len(data.pixels) // settings.seen_images)]
    with torch.no_grad():
        features = [features_of(student.tower, part.float() / 255) for part in torch.split(some, CHUNK)]
    head["seen_weight"], head["seen_bias"] = principal_directions(torch.cat(features), VISUAL_DIM)
    # both towers in one CLIP
    clip = bundled.build()
    tower = {n: t for n, t in student.tower.state_dict().items() if not n.startswith("classifier.")}
    clip.visual.trunk.load_state_dict(tower)
    clip.visual.head.load_state_dict(head)
    clip.text.proj.weight.data[:SEMANTIC_DIM].copy_(text_projection())
    clip.text.proj.weight.data[SEMANTIC_DIM:].zero_()  # words say nothing of looks
    clip.logit_scale.data.fill_(math.log(1 / (tau * SEMANTIC_NORM)))
    save_state(work / "model.pt", clip.state_dict())


def principal_directions(features: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The weights (count D) and bias (count) of the directions in which features (N D) differ most."""
    mean = features.mean(dim=0)
    _, _, directions = torch.linalg.svd(features - mean, full_matrices=False)
    weight = directions[:count]
    return weight.contiguous(), -(weight @ mean)


def export(
    work: Path, path: Path, *, settings: Sequence[Settings], images: int, named: int
) -> dict[str, Any]:
    """Write `path` (fp16 safetensors without the text tower's own weights) and its manifest, as JSON.

    Returns the manifest.
    """
    from safetensors.torch import save_file

    state = torch.load(work / "model.pt", weights_only=True)
    ours = {name: _half(tensor) for name, tensor in state.items() if not name.startswith("text.transformer.")}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(ours, path)
    manifest = {
        "name": bundled.NAME,
        "file": path.name,
        "sha256": sha256_of(path),
        "text_tower": {"package": bundled.PIP_NAME, "sha256": bundled.TEXT_SHA256},
        "image_tower": {"package": towers.LITE0_PIP_NAME, "sha256": towers.LITE0_SHA256},
        "images": images,
        "named_pictures": named,
        "settings": {name: value for some in settings for name, value in some.as_dict().items()},
        "losses": _mean_losses(work / "log.jsonl"),
        "versions": runtime.versions(),
    }
    path.with_suffix(".json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def _interpolate(start: dict[str, Tensor], end: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    return {
        name: torch.lerp(start[name], tensor, share) if tensor.is_floating_point() else tensor
        for name, tensor in end.items()
    }


def _half(tensor: Tensor) -> Tensor:
    return tensor.half().contiguous() if tensor.is_floating_point() else tensor.contiguous()


def _mean_losses(log: Path) -> list[dict[str, float]]:
    """The mean losses of equal stretches of the run; a step that was done twice counts once."""
    steps = {row["index"]: row for row in map(json.loads, log.read_text(encoding="utf-8").splitlines())}
    rows = [steps[index] for index in sorted(steps)]
    size = max(1, len(rows) // KEPT_LOSSES)
    stretches = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        {
            "step": stretch[-1]["index"],
            **{name: round(_mean(stretch, name), 4) for name in ("words", "names", "keep")},
        }
        for stretch in stretches
    ]


def _mean(rows: Sequence[dict[str, float]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)
