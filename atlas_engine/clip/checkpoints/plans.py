"""From which tensors of a file each block of an open_clip model is made, by the names in the file.

open_clip's own names may stand under any prefix (`visual.`, `module.visual.`, `state_dict.model.visual.`).
Those of `transformers` are converted:

    q_proj, k_proj, v_proj            attn.in_proj         concatenated
    visual_projection.weight (E D)    proj (D E)           transposed
    mlp.fc1, mlp.fc2                  mlp.c_fc, mlp.c_proj

    plan = transformers_image_plan(file.shapes)              # None if the file holds no such tower
    plan["transformer.resblocks.0.attn.in_proj_weight"].read(file)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.clip.checkpoints.checkpoint import Checkpoint, Shapes
from atlas_engine.errors import ModelError

__all__ = [
    "PROJECTION",
    "BlockSource",
    "BlockTarget",
    "Plan",
    "open_clip_plan",
    "to_transformers",
    "transformers_image_plan",
    "transformers_target",
    "transformers_text_plan",
]

PROJECTION = "proj"


@dataclass(frozen=True)
class BlockSource:
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


@dataclass(frozen=True)
class BlockTarget:
    """Where the weights of one module belong: a block, one third of it (q, k, v), or the block transposed."""

    block: str
    third: int | None = None
    transposed: bool = False


Plan = dict[str, BlockSource]

# ---- transformers

_PATCH_EMBEDDING = "embeddings.patch_embedding.weight"  # every `transformers` CLIP image tower has it
_TOKEN_EMBEDDING = "embeddings.token_embedding.weight"
_IMAGE_TOWER = {
    "embeddings.class_embedding": "class_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    _PATCH_EMBEDDING: "conv1.weight",
    "pre_layrnorm.weight": "ln_pre.weight",  # their spelling
    "pre_layrnorm.bias": "ln_pre.bias",
    "post_layernorm.weight": "ln_post.weight",
    "post_layernorm.bias": "ln_post.bias",
}
_TEXT_TOWER = {
    _TOKEN_EMBEDDING: "token_embedding.weight",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm.weight": "ln_final.weight",
    "final_layer_norm.bias": "ln_final.bias",
}
_IN_LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.(.+)\.(weight|bias)")


def transformers_image_plan(shapes: Shapes) -> Plan | None:
    """The plan of a CLIP image tower as `transformers` writes it; None if the file holds none."""
    prefix = _prefix_of(_PATCH_EMBEDDING, shapes)  # `vision_model.` in a whole CLIP, or empty
    if prefix is None:
        return None
    plan = _tower_plan(shapes, prefix, _IMAGE_TOWER)
    projection = prefix.removesuffix("vision_model.") + "visual_projection.weight"
    if projection in shapes:
        plan[PROJECTION] = BlockSource((projection,), transposed=True)
    return plan


def transformers_target(module: str) -> BlockTarget | None:
    """Where the weights of a module of a `transformers` image tower belong; None if it is no such module.

    >>> transformers_target("vision_model.encoder.layers.0.self_attn.k_proj")
    BlockTarget(block='transformer.resblocks.0.attn.in_proj_weight', third=1, transposed=False)
    """
    if module.rpartition(".")[2] == "visual_projection":
        return BlockTarget(PROJECTION, transposed=True)
    if f".{module}.weight".endswith(f".{_PATCH_EMBEDDING}"):
        return BlockTarget(_IMAGE_TOWER[_PATCH_EMBEDDING])
    match = re.search(_LAYER.pattern + "$", f"{module}.weight")
    if match is None:
        return None
    block, part = f"transformer.resblocks.{match[1]}", match[2]
    if part in _IN_LAYER:
        return BlockTarget(f"{block}.{_IN_LAYER[part]}.weight")
    qkv = re.fullmatch(r"self_attn\.([qkv])_proj", part)
    return BlockTarget(f"{block}.attn.in_proj_weight", third="qkv".index(qkv[1])) if qkv else None


def transformers_text_plan(shapes: Shapes) -> Plan | None:
    """The plan of a CLIP text tower as `transformers` writes it; None if the file holds none."""
    prefix = _prefix_of(_TOKEN_EMBEDDING, shapes)
    if prefix is None:
        return None
    plan = _tower_plan(shapes, prefix, _TEXT_TOWER)
    projection = prefix.removesuffix("text_model.") + "text_projection.weight"
    if projection in shapes:
        plan["text_projection"] = BlockSource((projection,), transposed=True)
    return plan


def _prefix_of(ending: str, shapes: Shapes) -> str | None:
    return next((name.removesuffix(ending) for name in shapes if name.endswith(ending)), None)


def _tower_plan(shapes: Shapes, prefix: str, outside_layers: Mapping[str, str]) -> Plan:
    plan = {
        ours: BlockSource((prefix + theirs,))
        for theirs, ours in outside_layers.items()
        if prefix + theirs in shapes
    }
    for name in shapes:
        match = _LAYER.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is None:
            continue
        layer, part, leaf = match.groups()
        block = f"transformer.resblocks.{layer}"
        if part in _IN_LAYER:
            plan[f"{block}.{_IN_LAYER[part]}.{leaf}"] = BlockSource((name,))
        elif part == "self_attn.q_proj":
            qkv = tuple(name.replace(".q_proj.", f".{letter}_proj.") for letter in "qkv")
            if all(one in shapes for one in qkv):
                plan[f"{block}.attn.in_proj_{leaf}"] = BlockSource(qkv)
    return plan


# ---- open_clip


def open_clip_plan(shapes: Shapes, *, wanted: Shapes) -> Plan:
    """The plan of a tower with open_clip's names, under the prefix where most of `wanted` are found."""
    anchor = max(wanted, key=len)  # the least likely to be part of another name
    prefixes = {name.removesuffix(anchor) for name in shapes if name.endswith(anchor)} | {"", "visual."}
    prefix = min(prefixes, key=lambda p: (-sum(p + block in shapes for block in wanted), len(p), p))
    # also take blocks that are not wanted but look like the tower's: `require_fit` reports them
    stems = {block.partition(".")[0] for block in wanted}
    inside = (name.removeprefix(prefix) for name in shapes if name.startswith(prefix))
    return {
        block: BlockSource((prefix + block,))
        for block in inside
        if block in wanted
        or (block.partition(".")[0] in stems and block.rpartition(".")[2] in ("weight", "bias"))
    }


def to_transformers(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of an open_clip ViT image tower under the names of `transformers`: the inverse of the plan.

    A block that a CLIP of `transformers` has no place for is a `ModelError`.
    """
    outside = {ours: f"vision_model.{theirs}" for theirs, ours in _IMAGE_TOWER.items()}
    inside = {ours: theirs for theirs, ours in _IN_LAYER.items()}
    converted: dict[str, Tensor] = {}
    for block, tensor in weights.items():
        match = re.fullmatch(r"transformer\.resblocks\.(\d+)\.(.+)[._](weight|bias)", block)
        layer = f"vision_model.encoder.layers.{match[1]}" if match else ""
        if block == PROJECTION:
            converted["visual_projection.weight"] = tensor.T
        elif block in outside:
            converted[outside[block]] = tensor
        elif match and match[2] == "attn.in_proj":
            for letter, third in zip("qkv", tensor.chunk(3), strict=True):
                converted[f"{layer}.self_attn.{letter}_proj.{match[3]}"] = third
        elif match and match[2] in inside:
            converted[f"{layer}.{inside[match[2]]}.{match[3]}"] = tensor
        else:
            raise ModelError(f"a CLIP of transformers has no place for the block '{block}'.")
    return converted
