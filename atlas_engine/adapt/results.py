"""Recipes and results, built in one place for every kind of adaptation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.progress import Progress
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.recipe import TEMPLATES, Json, Recipe
from atlas_engine.result import AdaptResult, Advice, Estimate, Outcome, Verdict

__all__ = ["NO_STEPS", "build_recipe", "build_result"]

NO_STEPS = "there was nothing to learn step by step."


def build_recipe(
    context: AdaptContext,
    coefficients: Coefficients,
    *,
    method: str,
    head: str,
    head_tensors: Mapping[str, Tensor] | None = None,
    config: Mapping[str, Json],
    seed: int,
) -> Recipe:
    """A recipe of these coefficients, with a head of kind `head` for all classes of the context.

    It records the templates where the caller chose some, and so answers under the same.
    """
    chosen: dict[str, Json] = {} if context.templates is None else {TEMPLATES: list[Json](context.templates)}
    return Recipe(
        coefficients,
        model=context.backbone.name,
        model_fingerprint=context.model_fingerprint,
        bank_fingerprint=context.bank.fingerprint,
        classes=context.classes,
        method=method,
        config={**config, "head": head, **chosen},
        seed=seed,
        head=dict(head_tensors or {}),
    )


def build_result(
    recipe: Recipe,
    verdict: Verdict,
    progress: Progress,
    *,
    loop: LoopResult | None = None,
    outcome: Outcome = Outcome.finished,
    reason: str = NO_STEPS,
    estimates: Sequence[Estimate] | None = None,
    alternatives: Mapping[str, Recipe] | None = None,
    advice: Advice | None = None,
) -> AdaptResult:
    """The result of a run. Where a loop ran, its outcome and reason replace `outcome` and `reason`."""
    return AdaptResult(
        recipe=recipe,
        outcome=loop.outcome if loop else outcome,
        reason=loop.reason if loop else reason,
        history=progress.history,
        seconds=progress.seconds(),
        verdict=verdict,
        estimates=progress.estimates if estimates is None else tuple(estimates),
        alternatives=dict(alternatives or {}),
        advice=advice,
    )
