"""What a run hands over: its steps, its result, and the `Run` that you iterate or drain.

    run = engine.few_shot(support)
    for step in run:            # the work is done here, one step at a time …
        print(step.phase, step.index)
    result = run.result()       # … or here, all that is left of it
    result.save("otters.atlas.safetensors")

Results are frozen values on the CPU that survive ``copy.deepcopy``, so that a web session may hold them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

from torch import Tensor

from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.display import Figure, ShareBar, facts_html, figure_svg, rows_html
from atlas_engine.recipe import Recipe
from atlas_engine.sharing.repositories import push

__all__ = ["AdaptResult", "Advice", "CurvePoint", "Estimate", "Outcome", "Run", "RunState", "Step", "Verdict"]

Result = TypeVar("Result")


class Outcome(str, Enum):
    """How a run ended."""

    finished = "finished"
    cancelled = "cancelled"
    deadline = "deadline"
    diverged = "diverged"


@dataclass(frozen=True)
class Estimate:
    """The share of held-out images that a method gets right, with its 95 % interval.

    Each image is held out of the support and answered by a model that was fitted without it.
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
    """Which method was kept (`zero-shot` where none helped), and a sentence that says why."""

    kept: str
    helped: bool | None  # None where nothing could be held out to tell
    sentence: str


@dataclass(frozen=True)
class CurvePoint:
    """The accuracy to expect with so many images per class, and its 95 % interval."""

    images_per_class: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Advice:
    """Whether more images would help, in a sentence, and the learning curve behind it.

    `then` is what to expect after adding `more_per_class` images to each class. `enough` is None, and there
    is no curve, where nothing could be held out to tell.
    """

    sentence: str
    enough: bool | None
    more_per_class: int = 0
    now: CurvePoint | None = None
    then: CurvePoint | None = None
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True)
class Step:
    """One optimiser step, measured at the parameters it started from (step 0: exactly zero-shot)."""

    index: int
    of: int
    loss: float  # mean over the runs that have not diverged
    losses: tuple[float, ...]  # one per run; NaN for a run that has diverged
    lr: float
    grad_norm: float  # mean length of the gradient, before any normalisation
    scores: tuple[float, ...] | None  # one per run, at the steps where a score was asked for
    seconds: float  # since the run began
    phase: str = "learn"  # what the run is doing; index and of count within it
    share: float | None = None  # of the whole run's work that is done, where it is known
    estimates: tuple[Estimate, ...] = ()  # those known by now
    preview: Recipe | None = field(default=None, repr=False, compare=False)  # a first recipe to try
    values: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    """The parameters of this step, each (R ...), on the run's device and never rewritten; None in records."""

    @property
    def seconds_left(self) -> float | None:
        """Until the run ends, at the pace so far; None where the share is not known."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def snapshot(self) -> dict[str, Tensor]:
        """A CPU copy of the parameters that ``loss`` was measured at; empty for a record."""
        return {name: value.detach().to("cpu", copy=True) for name, value in (self.values or {}).items()}

    def record(self) -> Step:
        """The same step without its parameters, to keep."""
        return replace(self, values=None)


@dataclass(frozen=True)
class AdaptResult:
    """A finished adaptation: the recipe that rebuilds it, how it ended, and its history."""

    recipe: Recipe
    outcome: Outcome
    reason: str
    history: tuple[Step, ...]
    seconds: float
    verdict: Verdict
    estimates: tuple[Estimate, ...] = ()
    alternatives: Mapping[str, Recipe] = field(default_factory=dict, repr=False)
    """Recipes that were learned or measured beside the one kept, by method."""
    advice: Advice | None = None
    """What more images would bring; None where the method held nothing out."""

    @property
    def fell_back(self) -> bool:
        """Whether the result is zero-shot, because nothing beat it."""
        return self.verdict.kept == "zero-shot"

    @property
    def coefficients(self) -> Coefficients:
        """The coefficients λ of the recipe, by task and block."""
        return self.recipe.coefficients

    def save(self, path: Path | str) -> None:
        """Write the recipe, the small file that rebuilds the adapted model."""
        self.recipe.save(path)

    def push_to_hub(self, repository: str, *, private: bool = True, token: str | None = None) -> str:
        """The web address of a repository on the model hub, after the recipe was written to it with a card.

        `repository` is "owner/name". It is private unless `private=False`. The token is the one that the
        hub's client finds (HF_TOKEN, `hf auth login`), unless one is given.
        """
        measured = [str(estimate) for estimate in self.estimates]
        sentence = self.verdict.sentence
        return push(
            self.recipe, repository, private=private, token=token, sentence=sentence, measured=measured
        )

    def plot(self) -> Figure:
        """The losses of its steps, and the held-out accuracies with their intervals, as a figure."""
        losses = [step.loss for step in self.history if step.phase == "learn"]
        bars = [ShareBar(one.method, one.accuracy, one.low, one.high) for one in self.estimates]
        return Figure(figure_svg(title=self.verdict.sentence, losses=losses, bars=bars))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        estimates = [
            (one.method, f"{one.accuracy:.0%}", f"{one.low:.0%} to {one.high:.0%}", one.images)
            for one in self.estimates
        ]
        header = ("method", "held-out accuracy", "95 % interval", "images")
        table = rows_html("Held-out accuracy", header, estimates) if estimates else ""
        facts = [
            ("verdict", self.verdict.sentence),
            ("outcome", self.outcome.value),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        return facts_html("Result", facts) + table + self.recipe._repr_html_()

    def __repr__(self) -> str:
        return (
            f"AdaptResult({self.outcome.value} after {len(self.history)} steps, {self.seconds:.1f} s, "
            f"{self.recipe!r})"
        )


class RunState(str, Enum):
    """Where a run stands."""

    ready = "ready"
    running = "running"
    done = "done"
    failed = "failed"


class _RunFlag(threading.Event):
    """Ends a run when it is set. A run asks it between any two passes of the model, and it calls then."""

    def __init__(self) -> None:
        super().__init__()
        self.between_passes: Callable[[], object] | None = None

    def is_set(self) -> bool:
        """Whether to stop, after the call."""
        if self.between_passes is not None:
            self.between_passes()
        return super().is_set()


class Run(Generic[Result]):
    """A lazy run: its steps as they happen, then its result.

    Nothing is computed before the first step is asked for. Iterating again repeats the steps taken so far and
    then continues the run. Several threads may iterate, and any thread may call ``cancel()`` at any time.
    """

    def __init__(self, start: Callable[[threading.Event], Generator[Step, None, Result]]) -> None:
        """``start`` takes the flag that asks the run to stop; it yields steps and returns the result."""
        self._start = start
        self._stop = _RunFlag()
        self._steps: Generator[Step, None, Result] | None = None
        self._history: list[Step] = []
        self._result: tuple[Result] | None = None  # a tuple, because a result may be None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Step]:
        position = 0
        while (step := self._step_at(position)) is not None:
            yield step
            position += 1

    def __repr__(self) -> str:
        return f"Run({self.state.value}, {len(self._history)} steps taken)"

    @property
    def state(self) -> RunState:
        """Ready, running, done or failed."""
        if self._error is not None:
            return RunState.failed
        if self._result is not None:
            return RunState.done
        return RunState.running if self._steps is not None else RunState.ready

    @property
    def history(self) -> tuple[Step, ...]:
        """The records of the steps taken so far."""
        return tuple(self._history)

    def cancel(self) -> None:
        """Ask the run to end, within one micro-batch; ``result()`` then returns what it had by then."""
        self._stop.set()

    def call_between_passes(self, callback: Callable[[], object]) -> None:
        """Call this between any two passes of the model, also within a step: others may use the device then.

        It is called in the thread that takes the step, and must not ask for the run's steps or its result.
        """
        self._stop.between_passes = callback

    def result(self) -> Result:
        """The result, after the steps that are left. An error in a step is raised here again."""
        while self._step_at(len(self._history)) is not None:
            pass
        assert self._result is not None  # _step_at raises unless there is one
        return self._result[0]

    def _step_at(self, position: int) -> Step | None:
        """The step at that position, from the history or taken now; None after the last."""
        with self._lock:
            if position < len(self._history):
                return self._history[position]
            if self._error is not None:
                raise self._error
            if self._result is not None:
                return None
            return self._take_step()

    def _take_step(self) -> Step | None:
        try:
            self._steps = self._steps or self._start(self._stop)
            step = next(self._steps)
        except StopIteration as end:
            self._result = (end.value,)
            return None
        except BaseException as error:
            self._error = error
            raise
        self._history.append(step.record())
        return step
