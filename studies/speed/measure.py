"""Time functions fairly.

Each call is timed alone, its answer is checked outside the clock, and candidates to be compared take turns
round by round, so that a noisy moment of the machine hits all of them:

    times = compare({"ours": f, "bare tower": g}, check=looks_right, warmup=2, repeat=15)
    times.ratio("ours", "bare tower")      # median over the rounds: 1.05 means 5 % slower
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from atlas_engine.errors import ConfigError, EvalError
from atlas_engine.runtime import resident_nbytes

__all__ = ["Timing", "TimingComparison", "compare", "measure", "peak_nbytes"]

Answer = TypeVar("Answer")

SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median of `n`, the distance between quartiles, and the peak memory of a call."""

    median_seconds: float
    spread_seconds: float
    n: int
    peak_nbytes: int | None  # of the whole process, in a run of its own; None where the system does not tell
    rounds: tuple[float, ...]  # seconds of each call, in order

    def __str__(self) -> str:
        return f"{self.median_seconds * 1e3:.3g} ms ± {self.spread_seconds * 1e3:.2g} (median of {self.n})"


@dataclass(frozen=True)
class TimingComparison:
    """Timings of several candidates that took turns, by name."""

    timings: Mapping[str, Timing]

    def ratio(self, candidate: str, baseline: str) -> float:
        """Candidate over baseline, the median over the rounds: below 1 is faster.

        Each round is a pair of neighbours in time, so a machine that is slower for a while slows both.
        """
        pairs = zip(self.timings[candidate].rounds, self.timings[baseline].rounds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def measure(
    fn: Callable[[], Answer], *, check: Callable[[Answer], bool], warmup: int = 2, repeat: int = 10
) -> Timing:
    """The timing of one function, whose every answer must pass `check`."""
    return compare({"it": fn}, check=check, warmup=warmup, repeat=repeat).timings["it"]


def compare(
    candidates: Mapping[str, Callable[[], Answer]],
    *,
    check: Callable[[Answer], bool],
    warmup: int = 2,
    repeat: int = 10,
    peaks: bool = True,
) -> TimingComparison:
    """Timings of several functions that give the same kind of answer, with the same budget for each.

    Without `peaks`, no peak memory is measured, which takes one more call of each.
    """
    if repeat < 1 or warmup < 0 or not candidates:
        raise ConfigError(
            f"got {len(candidates)} candidates, warmup={warmup}, repeat={repeat}. "
            "Give at least one candidate, warmup of 0 or more, repeat of 1 or more."
        )
    names = list(candidates)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for index in range(warmup + repeat):
        first = index % len(names)  # each candidate goes first in turn
        for name in names[first:] + names[:first]:
            elapsed, answer = _time_once(candidates[name])
            _require_correct(check(answer), name)
            if index >= warmup:
                seconds[name].append(elapsed)
    found = {name: peak_nbytes(candidates[name]) if peaks else None for name in names}
    return TimingComparison({name: _timing(seconds[name], found[name]) for name in names})


def _time_once(fn: Callable[[], Answer]) -> tuple[float, Answer]:
    with _no_garbage_collection():
        _wait_for_gpu()
        start = time.perf_counter()
        answer = fn()
        _wait_for_gpu()
        return time.perf_counter() - start, answer


def _require_correct(correct: bool, name: str) -> None:
    if not correct:
        raise EvalError(
            f"'{name}' gave a wrong answer: a benchmark of it means nothing. Run the tests first."
        )


def _timing(seconds: list[float], peak_nbytes: int | None) -> Timing:
    quartiles = (
        statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [0.0, 0.0, 0.0]
    )
    spread = quartiles[2] - quartiles[0]
    return Timing(statistics.median(seconds), spread, len(seconds), peak_nbytes, tuple(seconds))


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector out of a timed call."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _wait_for_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_nbytes(fn: Callable[[], object]) -> int | None:
    """The most memory this process held during one more call, which is not timed: sampling costs time."""
    if resident_nbytes() is None:
        return None
    peak = 0
    finished = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not finished.wait(SAMPLE_SECONDS):
            peak = max(peak, resident_nbytes() or 0)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        fn()
    finally:
        finished.set()
        sampler.join()
    return max(peak, resident_nbytes() or 0)
