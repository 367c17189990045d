"""What a run hands over: its steps, how it ended, its recipe. CPU values only. Knows nothing of the loop.

Everything here is frozen and survives ``copy.deepcopy``, so that a web session may hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from torch import Tensor

from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.recipe import Recipe

__all__ = ["AdaptResult", "Outcome", "Step"]


class Outcome(str, Enum):
    """How a run ended."""

    finished = "finished"
    cancelled = "cancelled"
    deadline = "deadline"
    diverged = "diverged"


@dataclass(frozen=True)
class Step:
    """One optimiser step: what was measured at the parameters it started from (step 0: exactly zero-shot)."""

    index: int
    of: int
    loss: float  # mean over the runs that still go on
    losses: tuple[float, ...]  # one per run; NaN for a run that has diverged
    lr: float
    grad_norm: float  # mean length of the gradient, before any normalisation
    scores: tuple[float, ...] | None  # one per run, at the steps where a score was asked for
    seconds: float  # since the run began
    values: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    """The parameters of this step, each (R ...), on the run's device and never rewritten; None in records."""

    def snapshot(self) -> dict[str, Tensor]:
        """A CPU copy of the parameters that ``loss`` was measured at; empty for a step out of a record."""
        return {name: value.detach().to("cpu", copy=True) for name, value in (self.values or {}).items()}

    def record(self) -> Step:
        """The numbers alone, to keep."""
        return replace(self, values=None)


@dataclass(frozen=True)
class AdaptResult:
    """An adaptation that has ended: the recipe that rebuilds it, and the story of how it came about."""

    recipe: Recipe
    outcome: Outcome
    reason: str
    history: tuple[Step, ...]
    seconds: float

    @property
    def coefficients(self) -> Coefficients:
        """What was learned, by task and block."""
        return self.recipe.coefficients

    def save(self, path: Path | str) -> None:
        """Write the recipe, the few KB that rebuild the adapted model."""
        self.recipe.save(path)

    def __repr__(self) -> str:
        return (
            f"AdaptResult({self.outcome.value} after {len(self.history)} steps, {self.seconds:.1f} s, "
            f"{self.recipe!r})"
        )
