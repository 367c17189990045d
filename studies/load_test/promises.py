"""What visitors may expect of the app, measured on a running server.

Every visitor gets an answer or a refusal, nobody gets another's answer, memory stays flat, and the page is
ready soon. Each function gives rows; `Promise.kept` says whether one holds.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from app.limits import LIMITS
from studies.load_test.server import Server
from studies.load_test.visitors import (
    Visit,
    VisitorRequest,
    seconds_to_stop,
    visit,
    visit_at_once,
    visitor_requests,
)

__all__ = [
    "Crowd",
    "Promise",
    "measure_crowd",
    "measure_memory",
    "measure_one_visitor",
    "measure_page",
    "memory_growth",
]

WARM = 0.25  # share of all runs, at least, before the server counts as warm
FLAT_MEGABYTES = 40.0  # what an allocator may keep back; 200 leaks of an image's size are more
REFUSED_SECONDS, PROGRESS_SECONDS, STOP_SECONDS, PAGE_SECONDS = 1.0, 2.0, 2.0, 3.0
EACH_SECONDS = 15.0  # of the queue, for a short run

CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
PAGE_PARTS = (".at-verdict", "#class-2", "#adapt")  # the page comes in pieces


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
        """As plain JSON types."""
        return {**asdict(self), "kept": self.kept}


def measure_page(server: Server) -> list[Promise]:
    """Seconds from a browser's first request to the example in sight; nothing without Chromium or playwright.

    Call it first: the first visitor waits longest.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    if chromium is None:
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM))
        page = browser.new_page()
        start = time.monotonic()
        page.goto(server.address)
        for part in PAGE_PARTS:
            page.wait_for_selector(part)
        seconds = time.monotonic() - start
        browser.close()
    return [Promise("page ready after the server is", seconds, PAGE_SECONDS, "s")]


def measure_one_visitor(server: Server, folder: Path) -> list[Promise]:
    """With nobody else there: how soon something moves, and how soon Stop stops."""
    (request,) = visitor_requests(1, folder)
    first = [visit(server.address, request).first_seconds for _ in range(3)]
    long = VisitorRequest(request.archive, request.samples, steps=LIMITS.steps, method="atlas+text-probe")
    return [
        Promise("first progress after Adapt, median of 3", median(first), PROGRESS_SECONDS, "s"),
        Promise("from Stop to the best so far", seconds_to_stop(server.address, long), STOP_SECONDS, "s"),
    ]


@dataclass(frozen=True)
class Crowd:
    """What came of visitors at once: the promises, and each visit beside the same one to the idle server."""

    promises: list[Promise]
    visits: list[Visit]
    alone: list[Visit]

    def as_rows(self) -> list[dict[str, float | None]]:
        """Seconds of each visit in the crowd and alone; None for one that was not served."""
        return [
            {
                "seconds": one.seconds if one.served else None,
                "alone_seconds": alone.seconds,
            }
            for one, alone in zip(self.visits, self.alone, strict=True)
        ]


def measure_crowd(server: Server, requests: Sequence[VisitorRequest]) -> Crowd:
    """A visitor for each request, all at once; an answer is compared with that to the request alone."""
    alone = {request: visit(server.address, request) for request in dict.fromkeys(requests)}
    start = time.monotonic()
    visits = visit_at_once(server.address, requests)
    seconds = time.monotonic() - start
    forgotten = [one for one in visits if not one.served and not one.refusal]
    refused = [one.seconds for one in visits if one.refusal]
    wrong = [one for one, request in zip(visits, requests, strict=True) if _differs(one, alone[request])]
    promises = [
        Promise(f"of {len(visits)} visitors at once, neither served nor refused", len(forgotten), 0),
        Promise("served with another answer than alone", len(wrong), 0),
        Promise("refused, though the queue has room", len(refused), max(0, len(visits) - LIMITS.waiting)),
        Promise("longest wait for a refusal", max(refused, default=0.0), REFUSED_SECONDS, "s"),
        Promise("until the last one was served", seconds, EACH_SECONDS * len(visits), "s"),
    ]
    return Crowd(promises, visits, [alone[request] for request in requests])


def measure_memory(server: Server, folder: Path, *, runs: int) -> Iterator[tuple[int, float]]:
    """Run after run, each by a new visitor: about twenty times, the runs so far and the megabytes held."""
    (request,) = visitor_requests(1, folder)
    short = VisitorRequest(request.archive, request.samples[:1], steps=1, method="atlas+text-probe")
    for number in range(1, runs + 1):
        visit(server.address, short)
        if number % max(runs // 20, 1) == 0:
            yield number, server.resident_megabytes or float("nan")


def memory_growth(memory: Sequence[tuple[int, float]]) -> Promise:
    """How much more is held at the end than when the server was warm.

    A visitor's images are kept for a while, so the server is warm when as many visitors came as sessions are
    kept, and not before a quarter of the runs. Of fewer runs than sessions the first quarter has to do.
    """
    runs = memory[-1][0]
    warm = LIMITS.sessions if LIMITS.sessions < runs else 0
    early = [held for number, held in memory if number <= max(WARM * runs, warm, memory[0][0])]
    growth = memory[-1][1] - early[-1]
    return Promise(f"memory held after {runs} runs, more than when warm", growth, FLAT_MEGABYTES, "MB")


def _differs(one: Visit, alone: Visit) -> bool:
    return one.served and one.answer != alone.answer
