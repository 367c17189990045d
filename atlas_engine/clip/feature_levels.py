"""A tower that also tells what it saw before it put it into words. Knows nothing of heads or of banks.

    h = what the tower sees,   f = project(h)                 # what it can say in the space of sentences
    d = (mean and maximum of its last maps − μ) / σ           # what it saw on the way, beside what is usual
    z = [ f / |f|,  r · h / |h|,  q · d / |d| ] / √(1 + r² + q²)                              # of length 1

A projection keeps what sentences need and drops the rest, and so does every layer before it; some of that
tells a user's classes apart. Names of classes have zeros where h and d are (`pad_text_embeddings`), so z
changes no comparison with words but its length, which `matching_logit_scale` gives back. μ and σ are measured
on the pictures at hand (`fit_feature_stats`), which costs no labels; without them d is left out, and so it
is where a tower has no maps.
Parameters keep their names. Towers that mix seeing and projecting stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.clip.tower_split import maps_of
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

SEEN = 2.0
"""r: how long what was seen is, beside what is said. Of 0.7 to 3, chosen on the sets of the bank."""
GLIMPSED = math.sqrt(20.0)
"""q: the same for the maps. Chosen on the sets of the bank: twice of it is as good, half is not."""
MAPS = 2  # the last ones: those that lie in the part of a tower that adapts
PRIOR = 5.0  # pictures that the guessed spread of a channel is worth
LEAST_SPREAD = 0.05  # of its mean square, where all pictures are alike
TINY = 1e-6
AS_USUAL = 1e-2
"""Length of d below which a picture is in all as usual: what is left is rounding. Others have about √E."""
KEPT = "_kept_for_widening"
PREFIX = "usual."
MEAN, SPREAD = f"{PREFIX}mean", f"{PREFIX}spread"


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """μ and σ of the pooled maps, (E) each."""

    mean: Tensor
    spread: Tensor

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What a recipe keeps."""
        return {MEAN: self.mean, SPREAD: self.spread}

    @classmethod
    def taken_from(cls, tensors: Mapping[str, Tensor]) -> tuple[FeatureStats | None, dict[str, Tensor]]:
        """What is usual, if it is among these tensors, and the others."""
        own = {name: tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
        rest = {name: tensor for name, tensor in tensors.items() if name not in own}
        if not own:
            return None, rest
        mean, spread = own.get(MEAN), own.get(SPREAD)
        if mean is None or spread is None or mean.ndim != 1 or mean.shape != spread.shape:
            raise RecipeError(f"'{MEAN}' and '{SPREAD}' do not belong together. Make the recipe anew.")
        if not bool(torch.isfinite(mean).all() and torch.isfinite(spread).all() and (spread > 0).all()):
            raise RecipeError(f"'{MEAN}' or '{SPREAD}' holds what no pictures have. Make the recipe anew.")
        return cls(mean, spread), rest


def with_feature_levels(visual: nn.Module, *, feature_stats: FeatureStats | None = None) -> nn.Module:
    """A twin of the tower that gives z, or the tower itself where the two cannot be told apart."""
    if _has_trunk(visual):
        wide = frozen_copy(visual)
        wide.get_submodule("head").register_forward_hook(_keep_input)
        names = _watch(wide) if feature_stats is not None else ()
        wide.register_forward_hook(_joining(names, feature_stats))
        return wide
    projection = getattr(visual, "proj", None)
    if isinstance(projection, Tensor):
        wide = frozen_copy(visual)
        wide.register_parameter("proj", None)
        wide.register_forward_hook(_projecting(projection.detach()))
        return wide
    return visual


def first_pooled_map(visual: nn.Module) -> str | None:
    """The module that gives the earliest map that is looked at; None where none is."""
    return next(iter(maps_of(visual)[-MAPS:]), None) if _has_trunk(visual) else None


def pooled_maps_tower(visual: nn.Module) -> nn.Module | None:
    """A twin that gives the pooled maps (B E) as they are, to measure what is usual; None without maps."""
    if first_pooled_map(visual) is None:
        return None
    seeing = frozen_copy(visual)
    names = _watch(seeing)
    seeing.register_forward_hook(lambda root, _, _said: _pooled(root, names))
    return seeing


def fit_feature_stats(pooled: Tensor) -> FeatureStats:
    """μ and σ of pictures (N E). With few of them a channel's spread leans on that of the others."""
    mean, square = pooled.mean(dim=0), pooled.abs().mean(dim=0).square()
    variance = (pooled - mean).square().mean(dim=0)
    share = (variance / square.clamp_min(TINY)).median().clamp_min(LEAST_SPREAD)
    blended = (len(pooled) * variance + PRIOR * share * square) / (len(pooled) + PRIOR)
    return FeatureStats(mean, blended.clamp_min(TINY).sqrt())


def pad_text_embeddings(text: Tensor, width: int) -> Tensor:
    """Class embeddings (C D) for features of that width: zeros where words have nothing to say."""
    return F.pad(text, (0, width - text.shape[1]))


def matching_logit_scale(
    logit_scale: float, text: Tensor, width: int, *, feature_stats: FeatureStats | None = None
) -> float:
    """The logit scale at which features of that width agree with the words as the tower's own do."""
    if width == text.shape[1]:
        return logit_scale
    return logit_scale * _length(deep=feature_stats is not None)


def _length(*, deep: bool) -> float:
    return math.sqrt(1 + SEEN**2 + (GLIMPSED**2 if deep else 0.0))


def _has_trunk(visual: nn.Module) -> bool:
    head = getattr(visual, "head", None)
    projects = isinstance(head, nn.Module) and any(True for _ in (*head.parameters(), *head.buffers()))
    return projects and isinstance(getattr(visual, "trunk", None), nn.Module)


# ---- hooks: what is kept lies on a twin's own modules, so that twins of twins do not meet


def _watch(wide: nn.Module) -> tuple[str, ...]:
    names = maps_of(wide)[-MAPS:]
    for name in names:
        wide.get_submodule(name).register_forward_hook(_keep_pooled)
    return names


def _keep_input(module: nn.Module, given: tuple[Tensor, ...], _: Tensor) -> None:
    module.__dict__[KEPT] = given[0]


def _keep_pooled(module: nn.Module, _: tuple[Tensor, ...], maps: Tensor) -> None:
    flat = maps.flatten(2)  # (B C H W) -> (B C S)
    module.__dict__[KEPT] = torch.cat([flat.mean(dim=2), flat.amax(dim=2)], dim=1)


def _kept(root: nn.Module, name: str) -> Tensor:
    kept: Tensor = root.get_submodule(name).__dict__.pop(KEPT)
    return kept


def _pooled(root: nn.Module, names: tuple[str, ...]) -> Tensor:
    return torch.cat([_kept(root, name) for name in names], dim=1).float()


def _joining(
    names: tuple[str, ...], feature_stats: FeatureStats | None
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    def join(root: nn.Module, _: tuple[Tensor, ...], said: Tensor) -> Tensor:
        seen = _kept(root, "head")
        return _joined(
            said, seen, None if feature_stats is None else _odd(_pooled(root, names), feature_stats)
        )

    return join


def _projecting(projection: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    return lambda _module, _images, seen: _joined(seen @ projection, seen)


def _odd(pooled: Tensor, feature_stats: FeatureStats) -> Tensor:
    """d, or the same number everywhere for a picture that is in all as usual."""
    if pooled.shape[1] != len(feature_stats.mean):
        raise RecipeError(
            f"'{MEAN}' has {len(feature_stats.mean)} numbers, but this model's maps have {pooled.shape[1]}. "
            "Use the model that the recipe was made with."
        )
    odd = (pooled - feature_stats.mean) / feature_stats.spread
    same: Tensor = odd.norm(dim=1, keepdim=True) < AS_USUAL
    return torch.where(same, torch.ones_like(odd), odd)


def _joined(said: Tensor, seen: Tensor, odd: Tensor | None = None) -> Tensor:
    parts = [F.normalize(said, dim=-1), SEEN * F.normalize(seen, dim=-1)]
    if odd is not None:
        parts.append(GLIMPSED * F.normalize(odd, dim=-1))
    return torch.cat(parts, dim=-1) / _length(deep=odd is not None)
