"""A checkpoint of another project as the weights of an open_clip image tower.

    tower = read_tower("sun397/model.safetensors", shapes={name: tuple(w.shape) for name, w in ours.items()})
    tower.weights["transformer.resblocks.0.attn.in_proj_weight"], tower.absent

The layout of the file first becomes a plan (`plans`): for each block of our tower, the tensors that it is
made from. Shapes are compared by the plan before any number is read, so a file for another tower is refused
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from atlas_engine.clip.checkpoints.checkpoint import Shapes, open_checkpoint
from atlas_engine.clip.checkpoints.plans import (
    PROJECTION,
    Plan,
    open_clip_plan,
    transformers_image_plan,
)
from atlas_engine.errors import ModelError

__all__ = ["TowerWeights", "read_tower", "require_fit"]

LISTED = 5  # problems in an error


@dataclass(frozen=True)
class TowerWeights:
    """An image tower's weights by open_clip's names; `absent` are blocks that the file does not hold."""

    weights: dict[str, Tensor]
    layout: str
    absent: tuple[str, ...] = ()


def read_tower(path: Path | str, *, shapes: Shapes) -> TowerWeights:
    """The weights of the image tower in a file, which must have the blocks in `shapes`.

    Only a `transformers` vision model may lack its projection: that model has none by design.
    """
    with open_checkpoint(path) as file:
        plan, layout = transformers_image_plan(file.shapes), "transformers"
        if plan is None:
            plan, layout = open_clip_plan(file.shapes, wanted=shapes), "open_clip"
        absent = (PROJECTION,) if layout == "transformers" and PROJECTION not in plan else ()
        needed = [name for name in shapes if name not in absent]
        require_fit(Path(path).name, plan, file.shapes, needed, shapes)
        weights = {name: plan[name].read(file) for name in needed}
    return TowerWeights(weights, layout, absent)


# ---- Whether the tower in the file is the one that is needed.


def require_fit(
    file_name: str,
    plan: Plan,
    found: Shapes,
    needed: Sequence[str],
    shapes: Shapes,
) -> None:
    """Raise unless the planned blocks are those in `needed`, with the right shapes."""
    planned = {block: source.shape(found) for block, source in plan.items()}
    problems = [f"{block} is missing" for block in needed if block not in planned]
    problems += [f"{block} is not expected" for block in planned if block not in shapes]
    problems += [
        f"{block} is {planned[block]}, needs {shapes[block]}"
        for block in needed
        if block in planned and planned[block] != shapes[block]
    ]
    if problems:
        more = f" and {len(problems) - LISTED} more" if len(problems) > LISTED else ""
        raise ModelError(
            f"{file_name} does not fit the model: {', '.join(problems[:LISTED])}{more}. It holds "
            f"{_architecture(planned)}, the model is {_architecture(shapes)}. "
            "Give the one that it was tuned from."
        )


_ARCHITECTURES = {  # (width, patch, layers)
    (768, 32, 12): "ViT-B-32",
    (768, 16, 12): "ViT-B-16",
    (1024, 14, 24): "ViT-L-14",
    (1280, 14, 32): "ViT-H-14",
}


def _architecture(shapes: Shapes) -> str:
    """A tower's name from its blocks' shapes: `ViT-B-32`, or its sizes if it has no name."""
    stem = shapes.get("conv1.weight", ())
    layers = len({name.split(".")[2] for name in shapes if name.startswith("transformer.resblocks.")})
    if len(stem) != 4 or not layers:
        return f"a tower of {len(shapes)} blocks"
    width, patch = stem[0], stem[2]
    return _ARCHITECTURES.get(
        (width, patch, layers), f"a ViT of width {width}, patch {patch}, {layers} layers"
    )
