"""A foreign checkpoint as the weights of an open_clip image tower. Knows nothing of banks.

    tower = read_tower("sun397/model.safetensors", shapes={name: tuple(w.shape) for name, w in ours.items()})
    tower.weights["transformer.resblocks.0.attn.in_proj_weight"], tower.absent

Shapes are compared before a number is read: a file for another tower costs nothing but the sentence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from atlas_engine.clip.checkpoints.checkpoint import open_checkpoint
from atlas_engine.clip.checkpoints.layouts import (
    Piece,
    Shapes,
    architecture,
    open_clip_plan,
    transformers_plan,
)
from atlas_engine.errors import ModelError

__all__ = ["TowerWeights", "activation_of", "configured_activation", "read_tower"]

PROJECTION = "proj"
LISTED = 5


@dataclass(frozen=True)
class TowerWeights:
    """An image tower's weights by open_clip's names; `absent` are blocks that the file does not hold."""

    weights: dict[str, Tensor]
    layout: str
    absent: tuple[str, ...] = ()


def read_tower(path: Path | str, *, shapes: Shapes) -> TowerWeights:
    """The tower in a file, which must have the blocks in `shapes`.

    Only a `transformers` vision model may lack its projection: that model has none by design.
    """
    with open_checkpoint(path) as file:
        plan, layout = transformers_plan(file.shapes), "transformers"
        if plan is None:
            plan, layout = open_clip_plan(file.shapes, wanted=shapes), "open_clip"
        absent = (PROJECTION,) if layout == "transformers" and PROJECTION not in plan else ()
        _require_fit(
            Path(path).name, plan, file.shapes, [name for name in shapes if name not in absent], shapes
        )
        weights = {name: plan[name].read(file) for name in shapes if name not in absent}
    return TowerWeights(weights, layout, absent)


def activation_of(visual: nn.Module) -> str:
    """The non-linearity of an image tower, by the names that `transformers` has for them."""
    return "quick_gelu" if any(type(m).__name__ == "QuickGELU" for m in visual.modules()) else "gelu"


def configured_activation(path: Path | str) -> str | None:
    """The non-linearity that the `config.json` beside a checkpoint names; None where there is none."""
    try:
        config = json.loads((Path(path).parent / "config.json").read_text(encoding="utf-8"))
        named = (config.get("vision_config") or config).get("hidden_act")
    except (OSError, ValueError, AttributeError):
        return None
    return named if isinstance(named, str) else None


def _require_fit(
    name: str, plan: dict[str, Piece], found: Shapes, needed: Sequence[str], shapes: Shapes
) -> None:
    made = {block: piece.shape(found) for block, piece in plan.items()}
    problems = [f"{block} is missing" for block in needed if block not in made]
    problems += [f"{block} is not expected" for block in made if block not in shapes]
    problems += [
        f"{block} is {made[block]}, needs {shapes[block]}"
        for block in needed
        if block in made and made[block] != shapes[block]
    ]
    if problems:
        more = f" and {len(problems) - LISTED} more" if len(problems) > LISTED else ""
        raise ModelError(
            f"{name} does not fit the model: {', '.join(problems[:LISTED])}{more}. It holds "
            f"{architecture(made)}, the model is {architecture(shapes)}. Give the one that it was tuned from."
        )
