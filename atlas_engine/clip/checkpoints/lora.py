"""LoRA adapters as changes of an open_clip image tower, block by block. No library of adapters is needed.

    ΔW = (α / r) · B A                  A (r, in), B (out, r); α / √r where `use_rslora` is set

    if holds_lora("cars/adapter_model.safetensors"):
        lora = read_lora("cars/adapter_model.safetensors", base=theta0)
        lora.weights["transformer.resblocks.0.attn.in_proj_weight"]     # θ0 + ΔW

Read are PEFT's files, with α in the `adapter_config.json` beside them, over the names of `transformers` or of
open_clip; and state dicts of open_clip that hold `NAME.lora_A` and `NAME.lora_B` (also `NAME.lora_A.weight`
and `NAME.w_lora_A`). Those have α in such a file too, or it is given. q, k and v become thirds of
`attn.in_proj_weight`. `fan_in_fan_out` says how their weights are stored, not what A and B are: it changes
nothing here. What would change the tower otherwise than by B A is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from atlas_engine.clip.checkpoints.checkpoint import open_checkpoint
from atlas_engine.clip.checkpoints.plans import BlockTarget, transformers_target
from atlas_engine.errors import ModelError

__all__ = ["LORA_CONFIG", "LoraWeights", "holds_lora", "read_lora"]

LORA_CONFIG = "adapter_config.json"
_FACTOR = re.compile(r"(.+)\.(?:w_)?lora_([AB])(?:\.default)?(?:\.weight)?")
_WRAPPERS = re.compile(r"^(?:module\.|base_model\.model\.|model\.(?=visual\.)|state_dict\.)+")
_TEXT_TOWER = re.compile(r"(?:^|\.)(?:text_model|text_projection)(?:\.|$)")
_OTHER_STARTS = ("pissa", "olora", "corda", "loftq")  # these change the base's own weights as they start


@dataclass(frozen=True)
class LoraWeights:
    """The image tower with the adapter merged into it; how many tensors outside the tower were left out."""

    weights: dict[str, Tensor]
    left_out: int = 0


@dataclass(frozen=True)
class _Scaling:
    """α of each module, and how it is divided by the rank."""

    alpha: float
    alpha_pattern: Mapping[str, float]
    is_rank_stabilised: bool

    def factor(self, module: str, rank: int) -> float:
        """What B A is multiplied by."""
        matching = (a for key, a in self.alpha_pattern.items() if re.match(rf"(.*\.)?({key})$", module))
        return next(matching, self.alpha) / (math.sqrt(rank) if self.is_rank_stabilised else rank)


def holds_lora(path: Path | str) -> bool:
    """Whether a weights file holds the factors of an adapter."""
    try:
        with open_checkpoint(path) as file:
            return any(_FACTOR.fullmatch(name) for name in file.shapes)
    except ModelError:  # reading it as a checkpoint will say what is wrong with it
        return False


def read_lora(path: Path | str, *, base: Mapping[str, Tensor], alpha: float | None = None) -> LoraWeights:
    """The weights of `base` with the adapter in the file merged into them; `alpha` overrides the config's."""
    path = Path(path)
    scaling = _read_scaling(path, alpha)
    weights = {name: tensor.detach().float().clone() for name, tensor in base.items()}
    with open_checkpoint(path) as file:
        image, outside = _split_towers([name for name in file.shapes if file.shapes[name]])
        factors, others = _pair_factors(path, image)
        if not factors:
            raise ModelError(
                f"{path.name} adapts the text tower alone. A task vector is of the image tower: give an "
                "adapter whose modules lie in vision_model or visual."
            )
        for name, block in _plain_blocks(path, others, base).items():
            weights[block] = file.read(name).float()
        for module, pair in factors.items():
            target = _find_target(path, module, base)
            place = _view(weights[target.block], target)
            a, b = (file.shapes[name] for name in pair)
            _require_fit(path, module, a, b, tuple(place.shape))
            down, up = (file.read(name).float().flatten(1) for name in pair)
            place += scaling.factor(_WRAPPERS.sub("", module), len(down)) * (up @ down).reshape(place.shape)
    return LoraWeights(weights, left_out=len(outside))


# ---- The config beside the file.


def _read_scaling(path: Path, alpha: float | None) -> _Scaling:
    config = _read_config(path.parent / LORA_CONFIG)
    _require_plain(path, config)
    found = config.get("lora_alpha") if alpha is None else alpha
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ModelError(
            f"nothing tells the alpha that {path.name} was trained with. Give it as --lora-alpha (in the "
            f"library lora_alpha), or put {LORA_CONFIG} with lora_alpha beside the file."
        )
    pattern = {} if alpha is not None else config.get("alpha_pattern") or {}
    return _Scaling(float(found), pattern, bool(config.get("use_rslora")))


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON file ({error}). Fetch or save it again.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no settings of an adapter. Fetch or save it again.")
    return config


def _require_plain(path: Path, config: Mapping[str, Any]) -> None:
    """Raise if the adapter changes weights otherwise than by B A."""
    start = str(config.get("init_lora_weights", "")).lower()
    reasons = {
        f"it is of the kind {config.get('peft_type')}": str(config.get("peft_type", "LORA")).upper()
        != "LORA",
        "it is a DoRA, which also scales the weights": bool(config.get("use_dora")),
        f"it trains biases ({config.get('bias')})": config.get("bias", "none") != "none",
        "it has biases of its own (lora_bias)": bool(config.get("lora_bias")),
        "it repeats layers (layer_replication)": bool(config.get("layer_replication")),
        f"it starts as {start}, which changes the base": start.startswith(_OTHER_STARTS),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        raise ModelError(
            f"{path.name} is more than a plain LoRA: {reason}. Merge it into its model, save the model, and "
            "import that checkpoint."
        )


# ---- The names in the file.


def _split_towers(names: list[str]) -> tuple[list[str], list[str]]:
    """The names of the image tower, and those outside it: the text tower's.

    Where open_clip's names stand below `visual.`, all others lie outside.
    """
    has_visual = any(".visual." in f".{name}" for name in names)

    def is_outside(name: str) -> bool:
        return bool(_TEXT_TOWER.search(name)) or (has_visual and ".visual." not in f".{name}")

    return [name for name in names if not is_outside(name)], [name for name in names if is_outside(name)]


def _pair_factors(path: Path, names: list[str]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """The names of A and B by module, and the names that are neither."""
    halves: dict[str, dict[str, str]] = {}
    others = []
    for name in names:
        if match := _FACTOR.fullmatch(name):
            halves.setdefault(match[1], {})[match[2]] = name
        else:
            others.append(name)
    alone = next((module for module, half in halves.items() if len(half) < 2), None)
    if alone is not None:
        raise ModelError(f"{path.name} has only one half of the adapter of {alone}. Fetch or save it again.")
    return {module: (half["A"], half["B"]) for module, half in halves.items()}, others


def _plain_blocks(path: Path, names: list[str], base: Mapping[str, Tensor]) -> dict[str, str]:
    """The block of each tensor beside the factors: the tower's own weights, under open_clip's names."""
    blocks = {name: _inside_tower(name) for name in names}
    strange = next((name for name, block in blocks.items() if block not in base), None)
    if strange is not None:
        raise ModelError(
            f"{path.name} also changes {strange}, which is no LoRA of the image tower (modules_to_save, DoRA "
            "or another method). Merge it into its model, save the model, and import that checkpoint."
        )
    return blocks


def _find_target(path: Path, module: str, base: Mapping[str, Tensor]) -> BlockTarget:
    """The place in our tower that an adapted module stands for."""
    target = transformers_target(module) or _open_clip_target(_inside_tower(module), base)
    if target is None or target.block not in base:
        raise ModelError(
            f"{path.name} adapts {module}, which the model does not have. Give the model that the adapter "
            "was trained on."
        )
    return target


def _open_clip_target(module: str, base: Mapping[str, Tensor]) -> BlockTarget | None:
    if match := re.fullmatch(r"(.+\.attn)\.([qkv])_proj", module):
        return BlockTarget(f"{match[1]}.in_proj_weight", third="qkv".index(match[2]))
    for block in (f"{module}.weight", f"{module}_weight"):
        if block in base:
            return BlockTarget(block)
    # a bare parameter, as `proj`, is multiplied from the right: (in, out)
    is_matrix = module in base and base[module].ndim == 2 and not module.endswith("_weight")
    return BlockTarget(module, transposed=is_matrix) if module in base else None


def _inside_tower(name: str) -> str:
    """A name without the wrappers around the image tower.

    >>> _inside_tower("base_model.model.visual.transformer.resblocks.0.mlp.c_fc")
    'transformer.resblocks.0.mlp.c_fc'
    """
    inside = _WRAPPERS.sub("", name)
    return inside.rpartition("visual.")[2] if ".visual." in f".{inside}" else inside


# ---- The numbers.


def _view(weights: Tensor, target: BlockTarget) -> Tensor:
    """The part of a block that a module stands for, as (out, in): a view to add to."""
    if target.third is not None:
        rows = weights.shape[0] // 3
        return weights[target.third * rows : (target.third + 1) * rows]
    return weights.T if target.transposed else weights


def _require_fit(
    path: Path, module: str, a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Raise unless B A has the shape of the weights; of a convolution A has the kernel and B is 1 × 1."""
    if len(shape) < 2 or a[1:] != shape[1:] or b != (shape[0], a[0], *(1 for _ in shape[2:])):
        raise ModelError(
            f"{path.name} does not fit the model: {module} has A {a} and B {b}, and its weights are {shape}. "
            "Give the model that the adapter was trained on."
        )
