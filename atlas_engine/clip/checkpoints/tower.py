"""A checkpoint of another project as the weights of an open_clip image tower.

    tower = read_tower("sun397/model.safetensors", shapes={name: tuple(w.shape) for name, w in ours.items()})
    tower.weights["transformer.resblocks.0.attn.in_proj_weight"], tower.absent

Two layouts are known. open_clip's own names may stand under any prefix (`visual.`, `module.visual.`,
`state_dict.model.visual.`). Those of `transformers` are converted:

    q_proj, k_proj, v_proj            attn.in_proj         concatenated
    visual_projection.weight (E D)    proj (D E)           transposed
    mlp.fc1, mlp.fc2                  mlp.c_fc, mlp.c_proj

A layout first becomes a plan: for each block of our tower, the tensors that it is made from. Shapes are
compared by the plan before any number is read, so a file for another tower is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from atlas_engine.clip.checkpoints.checkpoint import Checkpoint, Shapes, open_checkpoint
from atlas_engine.errors import ModelError

__all__ = ["TowerWeights", "activation_of", "read_tower"]

PROJECTION = "proj"
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
        plan, layout = _transformers_plan(file.shapes), "transformers"
        if plan is None:
            plan, layout = _open_clip_plan(file.shapes, wanted=shapes), "open_clip"
        absent = (PROJECTION,) if layout == "transformers" and PROJECTION not in plan else ()
        needed = [name for name in shapes if name not in absent]
        _require_fit(Path(path).name, plan, file.shapes, needed, shapes)
        weights = {name: plan[name].read(file) for name in needed}
    return TowerWeights(weights, layout, absent)


def activation_of(visual: nn.Module) -> str:
    """The activation function of an open_clip image tower, by the names that `transformers` has for them."""
    return "quick_gelu" if any(type(m).__name__ == "QuickGELU" for m in visual.modules()) else "gelu"


@dataclass(frozen=True)
class _BlockSource:
    """The tensors of a file that make one block: concatenated, or a single one transposed."""

    names: tuple[str, ...]
    transposed: bool = False

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape that the block will have."""
        first, *rest = (shapes[name] for name in self.names)
        if self.transposed:
            return first[::-1]
        return (sum(shape[0] for shape in (first, *rest)), *first[1:]) if rest else first

    def read(self, file: Checkpoint) -> Tensor:
        """The block's weights."""
        parts = [file.read(name) for name in self.names]
        if self.transposed:
            return parts[0].T.contiguous()
        return torch.cat(parts) if len(parts) > 1 else parts[0]


# ---- The two layouts.

_PATCH_EMBEDDING = "embeddings.patch_embedding.weight"  # every `transformers` CLIP image tower has it
_OUTSIDE_LAYERS = {
    "embeddings.class_embedding": "class_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    _PATCH_EMBEDDING: "conv1.weight",
    "pre_layrnorm.weight": "ln_pre.weight",  # their spelling
    "pre_layrnorm.bias": "ln_pre.bias",
    "post_layernorm.weight": "ln_post.weight",
    "post_layernorm.bias": "ln_post.bias",
}
_IN_LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)")


def _transformers_plan(shapes: Shapes) -> dict[str, _BlockSource] | None:
    """The plan of a CLIP image tower as `transformers` writes it; None if the file holds none."""
    prefixes = [name.removesuffix(_PATCH_EMBEDDING) for name in shapes if name.endswith(_PATCH_EMBEDDING)]
    if not prefixes:
        return None
    prefix = prefixes[0]  # `vision_model.` in a whole CLIP, or empty
    plan = {
        ours: _BlockSource((prefix + theirs,))
        for theirs, ours in _OUTSIDE_LAYERS.items()
        if prefix + theirs in shapes
    }
    for name in shapes:
        match = _LAYER.fullmatch(name.removeprefix(prefix))
        if match is None:
            continue
        layer, part, leaf = match.groups()
        block = f"transformer.resblocks.{layer}"
        if part in _IN_LAYER:
            plan[f"{block}.{_IN_LAYER[part]}.{leaf}"] = _BlockSource((name,))
        elif part == "self_attn.q_proj":
            qkv = tuple(name.replace(".q_proj.", f".{letter}_proj.") for letter in "qkv")
            if all(one in shapes for one in qkv):
                plan[f"{block}.attn.in_proj_{leaf}"] = _BlockSource(qkv)
    projection = prefix.removesuffix("vision_model.") + "visual_projection.weight"
    if projection in shapes:
        plan[PROJECTION] = _BlockSource((projection,), transposed=True)
    return plan


def _open_clip_plan(shapes: Shapes, *, wanted: Shapes) -> dict[str, _BlockSource]:
    """The plan of a tower with open_clip's names, under the prefix where most of `wanted` are found."""
    anchor = max(wanted, key=len)  # the least likely to be part of another name
    prefixes = {name.removesuffix(anchor) for name in shapes if name.endswith(anchor)} | {"", "visual."}
    prefix = min(prefixes, key=lambda p: (-sum(p + block in shapes for block in wanted), len(p), p))
    # also take blocks that are not wanted but look like the tower's: `_require_fit` reports them
    stems = {block.partition(".")[0] for block in wanted}
    inside = (name.removeprefix(prefix) for name in shapes if name.startswith(prefix))
    return {
        block: _BlockSource((prefix + block,))
        for block in inside
        if block in wanted
        or (block.partition(".")[0] in stems and block.rpartition(".")[2] in ("weight", "bias"))
    }


# ---- Whether the tower in the file is the one that is needed.


def _require_fit(
    file_name: str,
    plan: dict[str, _BlockSource],
    found: Shapes,
    needed: Sequence[str],
    shapes: Shapes,
) -> None:
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
