"""What visitors do: request an adaptation and wait, at once, one after the other, or with a stop in between.

Each visitor is a client of its own, and so a session of its own.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from gradio_client.utils import QueueError

from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.few_shot import FewShotRequest
from app.limits import LIMITS

__all__ = ["Visit", "VisitorRequest", "seconds_to_stop", "visit", "visit_at_once", "visitor_requests"]

PATIENCE = 300.0  # seconds: a visitor without an answer by then was forgotten
POLL_SECONDS = 0.02  # between two looks at a job
SHORT = 2  # steps
FEW = 3  # classes of an example, and images of each


@dataclass(frozen=True)
class VisitorRequest:
    """What one visitor asks for."""

    archive: Path
    samples: tuple[str, ...] = ()
    steps: int = SHORT
    seed: int = 0
    method: str = "auto"


@dataclass(frozen=True)
class Visit:
    """What came of it: the answer, or the message of the refusal; and how long each took."""

    seconds: float
    first_seconds: float  # until the first sign of progress
    answer: dict[str, Any] | None = None
    refusal: str = ""

    @property
    def served(self) -> bool:
        """Whether there is an answer."""
        return self.answer is not None


def visitor_requests(count: int, folder: Path) -> list[VisitorRequest]:
    """Different requests: a part of each example that ships in turn, with two seeds; zips go to `folder`."""
    archives = [
        (_zip_part(one.request, folder / f"{one.folder}.zip"), one.request) for one in FEW_SHOT_EXAMPLES
    ]
    requests = []
    for number in range(count):
        archive, example = archives[number % len(archives)]
        samples = tuple(sample.path for sample in example.samples[:4])
        requests.append(VisitorRequest(archive, samples, seed=number // len(archives) % 2))
    return requests


def visit(address: str, request: VisitorRequest, *, number: int = 0) -> Visit:
    """Ask and wait. Returns an answer, a refusal, or neither where the visitor was forgotten.

    Visitors of different numbers have different addresses, for a server that trusts loopback as a proxy.
    """
    forwarded = f"198.51.{100 + number // 250}.{number % 250 + 1}"
    client = Client(address, verbose=False, headers={"x-forwarded-for": forwarded})
    start = time.monotonic()
    first = 0.0
    try:
        job = _submit(client, request)
        while not job.done() and time.monotonic() - start < PATIENCE:
            time.sleep(POLL_SECONDS)
            first = first or (time.monotonic() - start if job.outputs() else 0.0)
        result, _ = job.result(timeout=POLL_SECONDS)
    except (AppError, QueueError) as refusal:
        seconds = time.monotonic() - start
        return Visit(seconds, seconds, refusal=str(refusal))
    except TimeoutError:
        return Visit(PATIENCE, PATIENCE)
    finally:
        client.close()
    return Visit(time.monotonic() - start, first, answer=_without_seconds(result))


def visit_at_once(address: str, requests: Sequence[VisitorRequest]) -> list[Visit]:
    """All requests at the same time, each by a visitor of its own; the visits in the same order."""
    with ThreadPoolExecutor(len(requests)) as visitors:
        return list(
            visitors.map(lambda given: visit(address, given[1], number=given[0]), enumerate(requests))
        )


def seconds_to_stop(address: str, request: VisitorRequest) -> float:
    """Seconds from Stop, pressed while it learns, to the result with the best so far."""
    client = Client(address, verbose=False)
    job = _submit(client, request)
    try:
        while not job.done() and not _is_learning(job.outputs()):
            time.sleep(POLL_SECONDS)
        pressed = time.monotonic()
        client.predict(api_name="/stop")
        result, _ = job.result(timeout=PATIENCE)
        assert result["stopped"], "the run was over before it could be stopped"
        return time.monotonic() - pressed
    finally:
        client.close()


def _submit(client: Client, request: VisitorRequest) -> Any:  # noqa: ANN401 - the client's job
    return client.submit(
        archive=handle_file(request.archive),
        samples=[handle_file(path) for path in request.samples],
        method=request.method,
        steps=min(request.steps, LIMITS.steps),
        seed=request.seed,
        api_name="/adapt",
    )


def _is_learning(outputs: Sequence[tuple[dict[str, Any], Any]]) -> bool:
    return bool(outputs) and outputs[-1][0].get("phase") == "learn"


def _without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def _zip_part(example: FewShotRequest, archive: Path) -> Path:
    """The first images of the first classes of an example, as a zip with a folder a class."""
    with zipfile.ZipFile(archive, "w") as packed:
        for row in example.rows[:FEW]:
            for path in row.paths[:FEW]:
                packed.write(path, f"{row.name}/{Path(path).name}")
    return archive
