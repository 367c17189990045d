"""How foreign checkpoints spell an image tower, and which tensors make a block of ours. Reads nothing.

A layout turns the names and shapes in a file into a plan: for each block of open_clip's tower the tensors
it is made from. open_clip's own names may stand under any prefix (`visual.`, `module.visual.`,
`state_dict.model.visual.`); those of `transformers` are put together so:

    q_proj, k_proj, v_proj            attn.in_proj         one below the other
    visual_projection.weight (E D)    proj (D E)           transposed
    mlp.fc1, mlp.fc2                  mlp.c_fc, mlp.c_proj
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.clip.checkpoints.checkpoint import Checkpoint

__all__ = ["Piece", "Shapes", "architecture", "open_clip_plan", "transformers_plan"]

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """One block's origin: tensors to be put one below the other, or a single one that lies transposed."""

    names: tuple[str, ...]
    transposed: bool = False

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape that the block will have."""
        first, *rest = (shapes[name] for name in self.names)
        if self.transposed:
            return first[::-1]
        return (sum(shape[0] for shape in (first, *rest)), *first[1:]) if rest else first

    def read(self, file: Checkpoint) -> Tensor:
        """The block itself."""
        parts = [file.read(name) for name in self.names]
        if self.transposed:
            return parts[0].T.contiguous()
        return torch.cat(parts) if len(parts) > 1 else parts[0]


_MARK = "embeddings.patch_embedding.weight"
_DIRECT = {
    "embeddings.class_embedding": "class_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    _MARK: "conv1.weight",
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


def transformers_plan(shapes: Shapes) -> dict[str, Piece] | None:
    """The plan of a CLIP image tower as `transformers` writes it, or None if the file holds none."""
    prefixes = [name.removesuffix(_MARK) for name in shapes if name.endswith(_MARK)]
    if not prefixes:
        return None
    prefix = prefixes[0]  # `vision_model.` within a whole CLIP, or nothing
    plan = {ours: Piece((prefix + theirs,)) for theirs, ours in _DIRECT.items() if prefix + theirs in shapes}
    for name in shapes:
        found = _LAYER.fullmatch(name.removeprefix(prefix))
        if found is None:
            continue
        layer, part, leaf = found.groups()
        block = f"transformer.resblocks.{layer}"
        if part in _IN_LAYER:
            plan[f"{block}.{_IN_LAYER[part]}.{leaf}"] = Piece((name,))
        elif part == "self_attn.q_proj":
            qkv = tuple(name.replace(".q_proj.", f".{letter}_proj.") for letter in "qkv")
            if all(one in shapes for one in qkv):
                plan[f"{block}.attn.in_proj_{leaf}"] = Piece(qkv)
    projection = prefix.removesuffix("vision_model.") + "visual_projection.weight"
    if projection in shapes:
        plan["proj"] = Piece((projection,), transposed=True)
    return plan


def open_clip_plan(shapes: Shapes, *, wanted: Shapes) -> dict[str, Piece]:
    """The plan of a tower that has our names, under whichever prefix most of them are found."""
    anchor = max(wanted, key=len)  # the least likely to be part of another name
    prefixes = {name.removesuffix(anchor) for name in shapes if name.endswith(anchor)} | {"", "visual."}
    prefix = min(prefixes, key=lambda p: (-sum(p + block in shapes for block in wanted), len(p), p))
    stems = {block.partition(".")[0] for block in wanted}
    inside = (name.removeprefix(prefix) for name in shapes if name.startswith(prefix))
    return {
        block: Piece((prefix + block,))
        for block in inside
        if block in wanted
        or (block.partition(".")[0] in stems and block.rpartition(".")[2] in ("weight", "bias"))
    }


_KNOWN = {
    (768, 32, 12): "ViT-B-32",
    (768, 16, 12): "ViT-B-16",
    (1024, 14, 24): "ViT-L-14",
    (1280, 14, 32): "ViT-H-14",
}


def architecture(shapes: Shapes) -> str:
    """What a tower is, from the shapes of its blocks: `ViT-B-32`, or its measures where it has no name."""
    stem = shapes.get("conv1.weight", ())
    layers = len({name.split(".")[2] for name in shapes if name.startswith("transformer.resblocks.")})
    if len(stem) != 4 or not layers:
        return f"a tower of {len(shapes)} blocks"
    width, patch = stem[0], stem[2]
    return _KNOWN.get((width, patch, layers), f"a ViT of width {width}, patch {patch}, {layers} layers")
