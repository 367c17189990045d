"""Image features of several levels in one vector: projected, penultimate and pooled feature maps.

    h = penultimate features,   f = projection of h                         # f is compared with text
    d = (pooled feature maps − μ) / σ                                       # mean and maximum of each channel
    z = [ f / |f|,  r · h / |h|,  q · d / |d| ] / √(1 + r² + q²)            # of length 1

The projection keeps what text needs and drops the rest, and so does every layer before it. What is dropped
can tell a user's classes apart. Class embeddings are zero-padded to the width of z (`pad_text_embeddings`),
so the added levels only scale the zero-shot logits by a constant, which `matching_logit_scale` gives back.

μ and σ are the mean and spread over the images at hand (`fit_feature_stats`), which needs no labels. Without
them, and for towers of tokens, z has no d. Towers whose projection cannot be separated (open_clip's ResNets)
stay as they are. Parameters keep their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.clip.tower_split import feature_map_modules
from atlas_engine.errors import RecipeError
from atlas_engine.runtime import frozen_copy

__all__ = [
    "FeatureStats",
    "first_pooled_map",
    "fit_feature_stats",
    "matching_logit_scale",
    "pad_text_embeddings",
    "pooled_maps_tower",
    "with_feature_levels",
]

PENULTIMATE_NORM = 2.0
"""r, chosen among 0.7 … 3 on the datasets that the bank is made of."""
POOLED_NORM = math.sqrt(20.0)
"""q, chosen on the same datasets: twice of it is as good, half is not."""
POOLED_MAPS = 2  # the last ones, which lie in the part of the tower that adapts
PRIOR_IMAGES = 5.0  # weight of the prior in a channel's variance, in images
MIN_RELATIVE_VARIANCE = 0.05  # of the prior, relative to the squared mean magnitude
TINY = 1e-6
MIN_DEVIATION = 1e-2
"""Below this, |d| is rounding error: the image equals the mean in every channel. Typical is √E."""
PREFIX = "usual."  # in recipe files
MEAN, SPREAD = f"{PREFIX}mean", f"{PREFIX}spread"
RECORDED = "_recorded_features"


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """Mean μ and spread σ of the pooled feature maps, (E) each."""

    mean: Tensor
    spread: Tensor

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Both by the names that they have in a recipe."""
        return {MEAN: self.mean, SPREAD: self.spread}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> tuple[FeatureStats | None, dict[str, Tensor]]:
        """The statistics among a recipe's tensors, None if there are none; and the other tensors."""
        own = {name: tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
        rest = {name: tensor for name, tensor in tensors.items() if name not in own}
        if not own:
            return None, rest
        mean, spread = own.get(MEAN), own.get(SPREAD)
        if mean is None or spread is None or mean.ndim != 1 or mean.shape != spread.shape:
            raise RecipeError(f"'{MEAN}' and '{SPREAD}' do not belong together. Make the recipe anew.")
        if not bool(torch.isfinite(mean).all() and torch.isfinite(spread).all() and (spread > 0).all()):
            raise RecipeError(f"'{MEAN}' or '{SPREAD}' holds what no images have. Make the recipe anew.")
        return cls(mean, spread), rest


def with_feature_levels(visual: nn.Module, *, feature_stats: FeatureStats | None = None) -> nn.Module:
    """A copy of the tower that gives z; or the tower itself if its projection cannot be separated."""
    if _has_trunk_and_head(visual):
        tower = frozen_copy(visual)
        tower.get_submodule("head").register_forward_hook(_record_input)
        map_names = _record_pooled_maps(tower) if feature_stats is not None else ()
        tower.register_forward_hook(_joins_recorded(map_names, feature_stats))
        return tower
    if _has_projection_matrix(visual):
        tower = frozen_copy(visual)
        tower.get_submodule("ln_post").register_forward_hook(_record_output)
        tower.register_forward_hook(_join_pooled_tokens)
        return tower
    return visual


def first_pooled_map(visual: nn.Module) -> str | None:
    """The name of the module that gives the earliest pooled feature map; None if no map is pooled."""
    if not _has_trunk_and_head(visual):
        return None
    return next(iter(feature_map_modules(visual)[-POOLED_MAPS:]), None)


def pooled_maps_tower(visual: nn.Module) -> nn.Module | None:
    """A copy of the tower that gives pooled feature maps (B E), not standardised; None if it has none."""
    if first_pooled_map(visual) is None:
        return None
    tower = frozen_copy(visual)
    map_names = _record_pooled_maps(tower)
    tower.register_forward_hook(lambda root, _images, _projected: _take_pooled(root, map_names))
    return tower


def fit_feature_stats(pooled: Tensor) -> FeatureStats:
    """μ and σ (E) of pooled feature maps (N E).

    With few images, a channel's variance is shrunk towards a prior: its squared mean magnitude times the
    median relative variance of all channels. The prior weighs as much as `PRIOR_IMAGES` images.
    """
    mean, square = pooled.mean(dim=0), pooled.abs().mean(dim=0).square()
    variance = (pooled - mean).square().mean(dim=0)
    relative = (variance / square.clamp_min(TINY)).median().clamp_min(MIN_RELATIVE_VARIANCE)
    shrunk = (len(pooled) * variance + PRIOR_IMAGES * relative * square) / (len(pooled) + PRIOR_IMAGES)
    return FeatureStats(mean, shrunk.clamp_min(TINY).sqrt())


def pad_text_embeddings(text: Tensor, width: int) -> Tensor:
    """Class embeddings (C D) zero-padded to (C width)."""
    return F.pad(text, (0, width - text.shape[1]))


def matching_logit_scale(
    logit_scale: float, text: Tensor, width: int, *, feature_stats: FeatureStats | None = None
) -> float:
    """The logit scale at which features of this width have the zero-shot logits of the projected ones."""
    if width == text.shape[1]:
        return logit_scale
    return logit_scale * _joint_norm(pooled=feature_stats is not None)


def _joint_norm(*, pooled: bool) -> float:
    """√(1 + r² + q²), without q² if there are no pooled maps."""
    return math.sqrt(1 + PENULTIMATE_NORM**2 + (POOLED_NORM**2 if pooled else 0.0))


def _has_trunk_and_head(visual: nn.Module) -> bool:
    """Whether it is a timm tower of open_clip's with a head that projects."""
    head = getattr(visual, "head", None)
    projects = isinstance(head, nn.Module) and any(True for _ in (*head.parameters(), *head.buffers()))
    return projects and isinstance(getattr(visual, "trunk", None), nn.Module)


def _has_projection_matrix(visual: nn.Module) -> bool:
    """Whether it is an open_clip ViT that norms and pools its tokens and multiplies them with `proj`."""
    pools_twice = getattr(visual, "attn_pool_contrastive", None) is not None
    norms = isinstance(getattr(visual, "ln_post", None), nn.Module)
    return norms and not pools_twice and isinstance(getattr(visual, "proj", None), Tensor)


# ---- Hooks. What they record lies on the copy's own modules, so copies of copies do not share it.

_Hook = Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]


def _record_input(module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
    module.__dict__[RECORDED] = inputs[0]


def _record_output(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
    module.__dict__[RECORDED] = output


def _record_pooled(module: nn.Module, _: tuple[Tensor, ...], maps: Tensor) -> None:
    flat = maps.flatten(2)  # (B C H W) -> (B C HW)
    module.__dict__[RECORDED] = torch.cat([flat.mean(dim=2), flat.amax(dim=2)], dim=1)


def _record_pooled_maps(tower: nn.Module) -> tuple[str, ...]:
    """Hook the modules whose maps are pooled; their names."""
    names = feature_map_modules(tower)[-POOLED_MAPS:]
    for name in names:
        tower.get_submodule(name).register_forward_hook(_record_pooled)
    return names


def _take(root: nn.Module, name: str) -> Tensor:
    """What was recorded at a module in this forward pass."""
    recorded: Tensor = root.get_submodule(name).__dict__.pop(RECORDED)
    return recorded


def _take_pooled(root: nn.Module, names: tuple[str, ...]) -> Tensor:
    return torch.cat([_take(root, name) for name in names], dim=1).float()


def _joins_recorded(map_names: tuple[str, ...], feature_stats: FeatureStats | None) -> _Hook:
    def join(root: nn.Module, _: tuple[Tensor, ...], projected: Tensor) -> Tensor:
        penultimate = _take(root, "head")
        if feature_stats is None:
            return _join(projected, penultimate)
        return _join(projected, penultimate, _standardise(_take_pooled(root, map_names), feature_stats))

    return join


def _join_pooled_tokens(root: Any, _: tuple[Tensor, ...], projected: Tensor) -> Tensor:  # noqa: ANN401
    """z of a ViT. Its projection stays a parameter of the tower, so that coefficients can move it."""
    normed = _take(root, "ln_post")  # tokens (B L W), or (B W) where the tower pools before the norm
    return _join(projected, root._global_pool(normed)[0] if normed.dim() == 3 else normed)


def _standardise(pooled: Tensor, feature_stats: FeatureStats) -> Tensor:
    """d (B E); all ones for an image that equals the mean, where d / |d| would be rounding error."""
    if pooled.shape[1] != len(feature_stats.mean):
        raise RecipeError(
            f"'{MEAN}' has {len(feature_stats.mean)} numbers, but this model's maps have {pooled.shape[1]}. "
            "Use the model that the recipe was made with."
        )
    deviation = (pooled - feature_stats.mean) / feature_stats.spread
    equals_mean: Tensor = deviation.norm(dim=1, keepdim=True) < MIN_DEVIATION
    return torch.where(equals_mean, torch.ones_like(deviation), deviation)


def _join(projected: Tensor, penultimate: Tensor, deviation: Tensor | None = None) -> Tensor:
    """z."""
    parts = [F.normalize(projected, dim=-1), PENULTIMATE_NORM * F.normalize(penultimate, dim=-1)]
    if deviation is not None:
        parts.append(POOLED_NORM * F.normalize(deviation, dim=-1))
    return torch.cat(parts, dim=-1) / _joint_norm(pooled=deviation is not None)
