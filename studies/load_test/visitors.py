"""What visitors do: ask for an adaptation and wait, all at once, or one after the other, or stop in between.

Each is a client of its own, and so a session of its own. Knows nothing of processes or promises.
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

__all__ = ["Visit", "VisitorRequest", "stopped", "together", "visit", "wishes"]

PATIENCE = 300.0  # seconds: who has heard nothing by then was forgotten
GLANCE = 0.02  # seconds between two looks at a job
SHORT = 2  # steps
FEW = 3  # classes of a lesson, and pictures of each


@dataclass(frozen=True)
class VisitorRequest:
    """What one visitor wants to have learned."""

    archive: Path
    samples: tuple[str, ...] = ()
    steps: int = SHORT
    seed: int = 0
    method: str = "auto"


@dataclass(frozen=True)
class Visit:
    """What came of it: the answer, or the words of the refusal; and how long each took."""

    seconds: float
    first_seconds: float  # until the first sign of progress
    answer: dict[str, Any] | None = None
    words: str = ""

    @property
    def served(self) -> bool:
        """Whether there is an answer."""
        return self.answer is not None


def wishes(count: int, folder: Path) -> list[VisitorRequest]:
    """Different wishes, in turn: a part of each lesson that ships, with two seeds; zips go to `folder`."""
    archives = [
        (_packed(one.request, folder / f"{one.folder}.zip"), one.request) for one in FEW_SHOT_EXAMPLES
    ]
    return [
        VisitorRequest(
            archive, tuple(sample.path for sample in lesson.samples[:4]), seed=number // len(archives) % 2
        )
        for number, (archive, lesson) in ((n, archives[n % len(archives)]) for n in range(count))
    ]


def visit(address: str, wish: VisitorRequest) -> Visit:
    """Ask, wait, and tell what came of it: an answer, a refusal, or neither for who was forgotten."""
    client = Client(address, verbose=False)
    started = time.monotonic()
    first = 0.0
    try:
        job = _asked(client, wish)
        while not job.done() and time.monotonic() - started < PATIENCE:
            time.sleep(GLANCE)
            first = first or (time.monotonic() - started if job.outputs() else 0.0)
        result, _ = job.result(timeout=GLANCE)
    except (AppError, QueueError) as refusal:
        seconds = time.monotonic() - started
        return Visit(seconds, seconds, words=str(refusal))
    except TimeoutError:
        return Visit(PATIENCE, PATIENCE)
    finally:
        client.close()
    return Visit(time.monotonic() - started, first, answer=_without_time(result))


def together(address: str, wanted: Sequence[VisitorRequest]) -> list[Visit]:
    """All wishes at the same time, each by a visitor of its own, in their order."""
    with ThreadPoolExecutor(len(wanted)) as visitors:
        return list(visitors.map(lambda wish: visit(address, wish), wanted))


def stopped(address: str, wish: VisitorRequest) -> float:
    """Seconds from Stop, in the middle of learning, to the result with the best so far."""
    client = Client(address, verbose=False)
    job = _asked(client, wish)
    try:
        while not job.done() and not _learning(job.outputs()):
            time.sleep(GLANCE)
        pressed = time.monotonic()
        client.predict(api_name="/stop")
        result, _ = job.result(timeout=PATIENCE)
        assert result["stopped"], "the run was over before it could be stopped"
        return time.monotonic() - pressed
    finally:
        client.close()


def _asked(client: Client, wish: VisitorRequest) -> Any:  # noqa: ANN401 - the client's job
    return client.submit(
        archive=handle_file(wish.archive),
        samples=[handle_file(path) for path in wish.samples],
        method=wish.method,
        steps=min(wish.steps, LIMITS.steps),
        seed=wish.seed,
        api_name="/adapt",
    )


def _learning(outputs: Sequence[tuple[dict[str, Any], Any]]) -> bool:
    return bool(outputs) and outputs[-1][0].get("phase") == "learn"


def _without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def _packed(lesson: FewShotRequest, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as packed:
        for row in lesson.rows[:FEW]:
            for path in row.paths[:FEW]:
                packed.write(path, f"{row.name}/{Path(path).name}")
    return archive
