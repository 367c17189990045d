"""What visitors may expect, measured: nobody is forgotten, nobody gets another's answer, memory stays flat.

Every function asks a running server and gives back rows; `Promise.kept` says whether one holds. Knows nothing
of how the server was started.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from app.limits import LIMITS
from studies.load_test.server import Server
from studies.load_test.visitors import Visit, VisitorRequest, stopped, together, visit, wishes

__all__ = ["Promise", "flat", "of_a_crowd", "of_memory", "of_one_visitor"]

WARM = 0.25  # of all runs, at least, before memory is held against what it was
FLAT_MEGABYTES = 40.0  # what an allocator may keep back; 200 leaks of a picture's size are more
REFUSED_SECONDS, PROGRESS_SECONDS, STOP_SECONDS = 1.0, 2.0, 2.0
EACH_SECONDS = 15.0  # of the lane, for a short run


@dataclass(frozen=True)
class Promise:
    """A measure and the most that it may be."""

    measure: str
    value: float
    most: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        """Whether it holds; what could not be measured does not."""
        return self.value <= self.most

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "kept": self.kept}


def of_a_crowd(server: Server, wanted: Sequence[VisitorRequest]) -> list[Promise]:
    """A visitor for each wish, all at once, and each held against the same wish made alone."""
    alone = {wish: visit(server.address, wish) for wish in dict.fromkeys(wanted)}
    began = time.monotonic()
    visits = together(server.address, wanted)
    took = time.monotonic() - began
    forgotten = [one for one in visits if not one.served and not one.words]
    refused = [one.seconds for one in visits if one.words]
    wrong = [one for one, wish in zip(visits, wanted, strict=True) if _differs(one, alone[wish])]
    return [
        Promise(f"of {len(visits)} visitors at once, neither served nor refused", len(forgotten), 0),
        Promise("served with another answer than alone", len(wrong), 0),
        Promise("refused, though the queue has room", len(refused), max(0, len(visits) - LIMITS.waiting)),
        Promise("longest wait for a refusal", max(refused, default=0.0), REFUSED_SECONDS, "s"),
        Promise("until the last one was served", took, EACH_SECONDS * len(visits), "s"),
    ]


def of_one_visitor(server: Server, folder: Path) -> list[Promise]:
    """The lane is free: how soon something moves, and how soon Stop stops."""
    (wish,) = wishes(1, folder)
    first = [visit(server.address, wish).first_seconds for _ in range(3)]
    long = VisitorRequest(wish.archive, wish.samples, steps=LIMITS.steps, method="atlas+text-probe")
    return [
        Promise("first progress after Adapt, median of 3", median(first), PROGRESS_SECONDS, "s"),
        Promise("from Stop to the best so far", stopped(server.address, long), STOP_SECONDS, "s"),
    ]


def of_memory(server: Server, folder: Path, *, runs: int) -> Iterator[tuple[int, float]]:
    """Run after run, each by a new visitor: after every tenth, how many there were and the memory held."""
    (wish, *_) = wishes(1, folder)
    short = VisitorRequest(wish.archive, wish.samples[:1], steps=1, method="atlas+text-probe")
    for number in range(1, runs + 1):
        visit(server.address, short)
        if number % max(runs // 20, 1) == 0:
            yield number, server.resident_megabytes or float("nan")


def flat(memory: Sequence[tuple[int, float]]) -> Promise:
    """How much more is held at the end than when the server was warm.

    Each visitor holds their pictures for a while, so it is warm when as many came as sessions are kept, and
    not before a quarter of the runs. Of fewer runs than sessions the first quarter has to do.
    """
    runs = memory[-1][0]
    warm = LIMITS.sessions if LIMITS.sessions < runs else 0
    early = [held for number, held in memory if number <= max(WARM * runs, warm, memory[0][0])]
    growth = memory[-1][1] - early[-1]
    return Promise(f"memory held after {runs} runs, more than when warm", growth, FLAT_MEGABYTES, "MB")


def _differs(one: Visit, alone: Visit) -> bool:
    return one.served and one.answer != alone.answer
