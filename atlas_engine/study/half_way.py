"""Coefficients half way back to zero-shot: learned as `atlas` learns them, then half of each is kept.

    θ = θ0 + ½ (θ(λ) − θ0) = θ(λ / 2)

Between the base model and one that has learned on a single kind of pictures lie models that give up little
there and hold up better elsewhere (WiSE-FT, CVPR 2022, whose own default is half). Coefficients are linear in
the weights, so that step back is a product with one number. Knows nothing of domains or tables.
"""

from __future__ import annotations

import dataclasses
import time
from types import MappingProxyType

from torch import Tensor

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.study.methods import METHODS, Learned, Method, Solver
from atlas_engine.study.tasks import Problem

__all__ = ["ATLAS", "HALF_WAY", "WAYS", "find_way", "half_way"]

ATLAS, HALF_WAY = "atlas", "atlas-half"
KEPT = 0.5


def half_way(solver: Solver, problem: Problem) -> Learned:
    """The tower at half of what `atlas` learns from the shots."""
    engine = solver.engine
    solver.text(problem)  # nobody is charged for reading the names
    start = time.perf_counter()
    run = engine.few_shot(
        problem.support, method=ATLAS, config=solver.config, bank=solver.bank, seed=problem.seed
    )
    learned = run.result().recipe
    recipe = learned.scaled(tasks=dict.fromkeys(learned.coefficients.tasks, KEPT))
    seconds = time.perf_counter() - start

    def logits(squares: Tensor) -> Tensor:
        return engine.logits(recipe, squares, bank=solver.bank).cpu()

    return Learned(logits, seconds)


WAYS = MappingProxyType(
    {**METHODS, HALF_WAY: dataclasses.replace(METHODS[ATLAS], name=HALF_WAY, learn=half_way)}
)
"""Every few-shot method, and this one."""


def find_way(name: str) -> Method:
    """The row of that name, or an error that offers the nearest."""
    if name not in WAYS:
        raise ConfigError(unknown_name("method", name, WAYS))
    return WAYS[name]
