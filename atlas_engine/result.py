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

__all__ = ["AdaptResult", "Estimate", "Outcome", "Step", "Verdict"]


class Outcome(str, Enum):
    """How a run ended."""

    finished = "finished"
    cancelled = "cancelled"
    deadline = "deadline"
    diverged = "diverged"


@dataclass(frozen=True)
class Estimate:
    """The share of held-out images that a method gets right, with its 95 % interval.

    Held out of the support itself: each image is answered by a model that was made without it.
    """

    method: str
    accuracy: float
    low: float
    high: float
    images: int

    def __str__(self) -> str:
        return f"{self.method} {self.accuracy:.0%} ({self.low:.0%} to {self.high:.0%}, {self.images} images)"


@dataclass(frozen=True)
class Verdict:
    """Whether adapting helped, in a sentence, and the method that was kept: `zero-shot` where none did."""

    kept: str
    helped: bool | None  # None where nothing could be held out to tell
    sentence: str


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
    phase: str = "learn"  # what the run is doing; index and of count within it
    share: float | None = None  # of the whole run's work that is done, where it can be told
    estimates: tuple[Estimate, ...] = ()  # known by now
    preview: Recipe | None = field(default=None, repr=False, compare=False)  # a first answer, at once
    values: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    """The parameters of this step, each (R ...), on the run's device and never rewritten; None in records."""

    def snapshot(self) -> dict[str, Tensor]:
        """A CPU copy of the parameters that ``loss`` was measured at; empty for a step out of a record."""
        return {name: value.detach().to("cpu", copy=True) for name, value in (self.values or {}).items()}

    def record(self) -> Step:
        """The numbers alone, to keep."""
        return replace(self, values=None)

    @property
    def seconds_left(self) -> float | None:
        """Until the run ends, at the pace so far."""
        return self.seconds * (1 - self.share) / self.share if self.share else None


@dataclass(frozen=True)
class AdaptResult:
    """An adaptation that has ended: the recipe that rebuilds it, and the story of how it came about."""

    recipe: Recipe
    outcome: Outcome
    reason: str
    history: tuple[Step, ...]
    seconds: float
    verdict: Verdict
    estimates: tuple[Estimate, ...] = ()

    @property
    def fell_back(self) -> bool:
        """Whether nothing beat zero-shot, so that the result is zero-shot."""
        return self.verdict.kept == "zero-shot"

    @property
    def coefficients(self) -> Coefficients:
        """What was learned, by task and block."""
        return self.recipe.coefficients

    def save(self, path: Path | str) -> None:
        """Write the recipe, the small file that rebuilds the adapted model."""
        self.recipe.save(path)

    def __repr__(self) -> str:
        return (
            f"AdaptResult({self.outcome.value} after {len(self.history)} steps, {self.seconds:.1f} s, "
            f"{self.recipe!r})"
        )
