"""What each task vector of a recipe does to the answers: each is left out in turn, and images answered again.

    z      = logits of the recipe's model                                  (N C)
    z[−t]  = logits with λ[t] = 0, all else as learned                     (N C)
    effect = mean over the images of Σ_c |p_c(z) − p_c(z[−t])| / 2          total variation, 0 … 1

    effects = measure_effects(recipe, backbone, bank, text, pixels)
    effects[0].task, effects[0].changed, effects[0].effect                # the largest effect first

A vector may be long and change no answer, or short and change many: `compose.contributions` has the lengths.
The blocks before the first one that moves run once. Leaving one out takes its own λ τ away again, which costs
about as much for all vectors together as composing once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.func import functional_call

from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import LINEAR
from atlas_engine.calibration import Calibration
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.linearised import tower_at
from atlas_engine.heads.registry import FeatureLevel, find_head
from atlas_engine.recipe import Recipe, RecipeNetwork, as_predictor

__all__ = ["VectorEffect", "measure_effects"]

COMPOSED_NUMBERS = 64_000_000  # weights composed at a time, over all left-out vectors


@dataclass(frozen=True)
class VectorEffect:
    """What one task vector does to the answers to N images."""

    task: str
    effect: float  # mean total variation between the probabilities with and without it, 0 … 1
    changed: int  # images whose answer is another without it
    drops: tuple[float, ...]  # by how much the probability of each image's answer falls without it
    answers: tuple[int, ...]  # the class of each image without it
    probs: tuple[float, ...]  # and its probability


def measure_effects(
    recipe: Recipe,
    backbone: Backbone,
    bank: TaskVectorBank,
    text: Float[Tensor, "C D"],
    pixels: UInt8[Tensor, "N 3 S S"],
) -> list[VectorEffect]:
    """The effect of every task vector that the recipe draws on, the largest first; equal ones by name."""
    moving = _moving_tasks(recipe.coefficients)
    if not moving:
        return []
    logits_without = _linear_logits_without if bank.kind == LINEAR else _logits_without
    logits = logits_without(recipe, backbone, bank, text, pixels, left_out=[None, *moving])
    calibration = recipe.calibration or Calibration()
    probs = calibration.probs(next(logits))  # (N C), with all vectors
    effects = [
        _effect(recipe.coefficients.tasks[task], probs, calibration.probs(without))
        for task, without in zip(moving, logits, strict=True)
    ]
    return sorted(effects, key=lambda one: (-one.effect, one.task))


def _effect(task: str, probs: Float[Tensor, "N C"], without: Float[Tensor, "N C"]) -> VectorEffect:
    answers, best = probs.argmax(dim=1), without.max(dim=1)
    drops = (probs - without).gather(1, answers[:, None]).squeeze(1)
    return VectorEffect(
        task,
        effect=float((probs - without).abs().sum(dim=1).mean() / 2),
        changed=int((best.indices != answers).sum()),
        drops=tuple(drops.tolist()),
        answers=tuple(best.indices.tolist()),
        probs=tuple(best.values.tolist()),
    )


@torch.no_grad()
def _logits_without(
    recipe: Recipe,
    backbone: Backbone,
    bank: TaskVectorBank,
    text: Float[Tensor, "C D"],
    pixels: UInt8[Tensor, "N 3 S S"],
    *,
    left_out: Sequence[int | None],
) -> Iterator[Float[Tensor, "N C"]]:
    """Logits for each task that is left out, on the CPU; None leaves none out."""
    level = find_head(str(recipe.config.get("head", "none"))).feature_level
    coefficients = recipe.coefficients.widened(bank.blocks)
    split = FrozenSplit(
        backbone,
        share=_moving_share(coefficients),
        multi_level=level is not FeatureLevel.projected,
    )
    activations = split.activations(pixels.to(backbone.device).float() / 255)
    network = RecipeNetwork(recipe, split.plain_tower, backbone, text)
    # several sets of weights at a time, as far as memory goes
    names = [name for name, _ in split.plain_tower.named_parameters()]
    at_once = max(1, COMPOSED_NUMBERS // sum(bank.blocks[bank.blocks.index(name)].numel for name in names))
    base = dict(backbone.visual.named_parameters())
    for start in range(0, len(left_out), at_once):
        group = left_out[start : start + at_once]
        weights: list[dict[str, Tensor]] = [{} for _ in group]
        for name in names:
            composed = _compose_without(base[name], coefficients, bank, name, group)
            for own, theta in zip(weights, composed, strict=True):
                own[name] = theta
        for own in weights:
            features = split.features(activations, tower=partial(_run_with, network.tower, own))
            yield network.logits(features).cpu()


@torch.no_grad()
def _linear_logits_without(
    recipe: Recipe,
    backbone: Backbone,
    bank: TaskVectorBank,
    text: Float[Tensor, "C D"],
    pixels: UInt8[Tensor, "N 3 S S"],
    *,
    left_out: Sequence[int | None],
) -> Iterator[Float[Tensor, "N C"]]:
    """The same for linear vectors, which move the tower's tangent and no weights: a tower for each."""
    base = dict(backbone.visual.named_parameters())
    composer = Composer(base, bank, recipe.coefficients.layout)
    for task in left_out:
        lam = _without(recipe.coefficients.values, task).to(bank.device)
        tower = tower_at(backbone.visual, composer, lam)
        yield as_predictor(recipe, tower, backbone, text)(pixels).cpu()


def _without(values: Float[Tensor, "T ..."], task: int | None) -> Float[Tensor, "T ..."]:
    if task is None:
        return values
    other = values.clone()
    other[task] = 0
    return other


def _compose_without(
    base: Tensor, coefficients: Coefficients, bank: TaskVectorBank, name: str, left_out: Sequence[int | None]
) -> list[Tensor]:
    """θ of one block for each task that is left out: θ0 + Σ_t λ τ, less that task's own λ τ."""
    m = bank.blocks.index(name)
    lam = coefficients.table[:, m].to(bank.device)  # (T) or (T K)
    if lam.dim() == 1:
        per_number = lam[:, None]
    else:
        per_number = lam[:, coefficients.layout.partition_of(bank.blocks[m]).to(bank.device)]  # (T n)
    moved = bank.vectors_of(name) * per_number  # (T n); not in place: they may be the bank's own numbers
    theta = base.reshape(-1).to(moved.dtype) + moved.sum(dim=0)
    return [
        (theta if task is None else theta - moved[task]).view(base.shape).to(base.dtype) for task in left_out
    ]


def _run_with(tower: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    outputs: Tensor = functional_call(tower, dict(weights), (inputs,))
    return outputs


def _moving_tasks(coefficients: Coefficients) -> list[int]:
    """Positions of the tasks with a λ other than 0."""
    return coefficients.table.flatten(1).abs().amax(dim=1).nonzero().flatten().tolist()


def _moving_share(coefficients: Coefficients) -> float:
    """The share of the tower's weights from the first block that moves to its end."""
    moves = coefficients.table.abs().amax(dim=0)
    moves = moves if moves.dim() == 1 else moves.amax(dim=1)  # (M)
    first = int(moves.nonzero()[0])
    sizes = [block.numel for block in coefficients.blocks]
    return sum(sizes[first:]) / sum(sizes)
