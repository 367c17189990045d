"""The trained model as it ships: half-precision weights, and a manifest that tells how they came about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from atlas_engine import runtime
from atlas_engine.clip import bundled
from atlas_engine.config import Settings
from atlas_engine.files import sha256_of
from studies.bundled_model import towers

__all__ = ["export"]

KEPT_LOSSES = 40


def export(
    work: Path, path: Path, *, settings: Sequence[Settings], images: int, named: int
) -> dict[str, Any]:
    """Write `path` (fp16 safetensors without the text tower's own weights) and the manifest beside it."""
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
        "losses": _losses(work / "log.jsonl"),
        "versions": runtime.versions(),
    }
    path.with_suffix(".json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half().contiguous() if tensor.is_floating_point() else tensor.contiguous()


def _losses(log: Path) -> list[dict[str, float]]:
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
