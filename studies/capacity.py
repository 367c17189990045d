"""How long visitors wait for a turn: a small simulation of the queue before the lanes that adapt.

    arrivals = poisson_arrivals(per_hour=1000, hours=4, seed=0)
    outcome = simulate(arrivals, draw_services([4.8, 5.1, 5.6], len(arrivals), seed=0), lanes=2)
    outcome.mean_wait, outcome.wait_at(0.95), outcome.refused

A lane serves one visitor at a time; the next is the one who has waited longest. Whoever finds `most_waiting`
in the queue is refused at once, as the app does it. The app lets the client go first that used it least:
that changes who waits, not how many or how long all of them together. `predict_crowd` holds the simulation
against a recorded load test, whose visitors come at once.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atlas_engine.errors import EvalError

__all__ = [
    "CrowdPrediction",
    "QueueOutcome",
    "draw_services",
    "lanes_needed",
    "poisson_arrivals",
    "predict_crowd",
    "simulate",
]

HOUR = 3600.0


@dataclass(frozen=True)
class QueueOutcome:
    """What became of the visitors: seconds of waiting of each who was served, and how many were refused."""

    waits: tuple[float, ...]
    ends: tuple[float, ...]  # when each was done, in the order of serving
    refused: int
    busy_share: float  # of the lanes' time, until the last visitor was done

    @property
    def mean_wait(self) -> float:
        """Mean seconds before the turn came."""
        return statistics.fmean(self.waits) if self.waits else 0.0

    def wait_at(self, share: float) -> float:
        """Seconds that this share of the visitors waits at most."""
        if not self.waits:
            return 0.0
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def refused_share(self) -> float:
        """Refused visitors among all."""
        everyone = self.refused + len(self.waits)
        return self.refused / everyone if everyone else 0.0


def simulate(
    arrivals: Sequence[float],
    services: Sequence[float],
    *,
    lanes: int,
    most_waiting: int | None = None,
    ready: Sequence[float] = (),
) -> QueueOutcome:
    """Serve the visitors in the order of arrival, each for their own seconds of service.

    `ready` says when each lane opens, for lanes that start cold; by default all are open at 0.
    """
    if lanes < 1 or len(arrivals) != len(services) or (ready and len(ready) != lanes):
        raise EvalError(
            f"got {lanes} lanes, {len(arrivals)} arrivals, {len(services)} services and {len(ready)} opening "
            "times. Give at least one lane, a service for each arrival, and no or all opening times."
        )
    free = list(ready) or [0.0] * lanes  # when each lane is free again
    heapq.heapify(free)
    starts: list[float] = []  # of visitors who were still waiting at the last arrival, the earliest first
    waits, ends, refused, busy = [], [], 0, 0.0
    for arrival, service in sorted(zip(arrivals, services, strict=True), key=lambda pair: pair[0]):
        while starts and starts[0] <= arrival:
            heapq.heappop(starts)
        if most_waiting is not None and len(starts) >= most_waiting and free[0] > arrival:
            refused += 1
            continue
        start = max(arrival, heapq.heappop(free))
        heapq.heappush(free, start + service)
        if start > arrival:
            heapq.heappush(starts, start)
        waits.append(start - arrival)
        ends.append(start + service)
        busy += service
    span = max(ends, default=0.0) * lanes
    return QueueOutcome(tuple(waits), tuple(ends), refused, busy / span if span else 0.0)


def poisson_arrivals(*, per_hour: float, hours: float, seed: int) -> list[float]:
    """Seconds at which visitors come who know nothing of each other, `per_hour` of them on average."""
    draw, times, now = random.Random(seed), list[float](), 0.0
    while True:
        now += draw.expovariate(per_hour / HOUR)
        if now >= hours * HOUR:
            return times
        times.append(now)


def draw_services(measured: Sequence[float], count: int, *, seed: int) -> list[float]:
    """Seconds of service of `count` visitors, drawn from those that were measured."""
    if not measured or min(measured) <= 0:
        raise EvalError(f"got {list(measured)[:5]} as seconds of service. Give one or more, above 0.")
    return random.Random(seed).choices(list(measured), k=count)


def lanes_needed(
    services: Sequence[float], *, per_hour: float, hours: float, most_wait: float, share: float, seed: int
) -> tuple[int, QueueOutcome]:
    """The fewest lanes with which `share` of the visitors waits at most `most_wait` seconds."""
    arrivals = poisson_arrivals(per_hour=per_hour, hours=hours, seed=seed)
    drawn = draw_services(services, len(arrivals), seed=seed)
    lanes = max(1, int(per_hour / HOUR * statistics.fmean(services)))  # fewer cannot keep up
    while True:
        outcome = simulate(arrivals, drawn, lanes=lanes)
        if outcome.wait_at(share) <= most_wait:
            return lanes, outcome
        lanes += 1


# ---- against the load test


@dataclass(frozen=True)
class CrowdPrediction:
    """Seconds until each visitor of a crowd was done, the first first: as simulated, and as measured."""

    predicted: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def error(self) -> float:
        """Mean |predicted − measured| over the mean that was measured."""
        off = [abs(one - other) for one, other in zip(self.predicted, self.measured, strict=True)]
        return statistics.fmean(off) / statistics.fmean(self.measured)

    @property
    def last_error(self) -> float:
        """The same for the visitor who waits longest."""
        return abs(self.predicted[-1] - self.measured[-1]) / self.measured[-1]


def predict_crowd(recorded: Mapping[str, Any], *, lanes: int = 1) -> CrowdPrediction:
    """What the simulation says of a load test's crowd (`python -m studies.load_test --json`), and what was.

    From the visits to the idle server it takes the seconds of service, and from nothing else: all visitors
    come at 0, and each occupies the lane for as long as the same visit took alone.
    """
    visits = [row for row in recorded.get("visits", ()) if row["seconds"] is not None]
    if not visits:
        raise EvalError("this load test has no visits in it. Run `python -m studies.load_test --json` again.")
    outcome = simulate([0.0] * len(visits), [row["alone_seconds"] for row in visits], lanes=lanes)
    return CrowdPrediction(tuple(sorted(outcome.ends)), tuple(sorted(row["seconds"] for row in visits)))
