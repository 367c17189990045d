"""Suite `replicas`: how many questions a second two replicas answer, against one and against this process.

Ray and its replicas run on the machine that asks. Every answer is compared with that of this process.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

import atlas_engine as atlas
from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.uploads import read_images
from app.prepared_examples import RECIPE
from app.replicas.client import BusyError, ReplicaClient
from app.replicas.engine import ReplicatedAtlas
from app.text.replicas import NO_RAY
from studies.speed.report import Bar, Report

__all__ = ["replicas"]

CLIENTS = 8
IMAGES = 4  # in a question
SECONDS = 15.0  # of each turn
TURNS = 3
Ask = Callable[[], atlas.Comparison]


def replicas(*, seconds: float = SECONDS, turns: int = TURNS) -> Report:
    """Questions a second by one recipe, from eight clients at once, in turns."""
    if find_spec("ray") is None:
        raise atlas.AtlasError(NO_RAY)
    torch.set_num_threads(1)  # as each replica
    example = FEW_SHOT_EXAMPLES[0]
    files, _ = read_images(example.request.samples[:IMAGES])
    recipe = atlas.Recipe.load(example.path / RECIPE)
    with atlas.open(device="cpu", cache=False) as engine:
        sent = [one.image for one in files]
        compare, lock = engine.comparer(recipe), threading.Lock()
        expected = compare(sent).adapted.probs

        def here() -> atlas.Comparison:
            with lock:  # as the page: one at a time computes
                return compare(sent)

        rates: dict[str, list[float]] = {"here": [], "one": [], "two": []}
        refused = 0
        with served(1) as one, served(2) as two:
            asks: dict[str, Ask] = {"here": here}
            for name, client in (("one", one), ("two", two)):
                compare_there = ReplicatedAtlas.of(engine, client).comparer(recipe)
                asks[name] = lambda ask=compare_there: ask(sent)  # type: ignore[misc]
            for _ in range(turns):
                for name, ask in asks.items():
                    rate, busy = _measure(ask, expected, seconds)
                    rates[name].append(rate)
                    refused += busy
    median = {name: statistics.median(found) for name, found in rates.items()}
    spread = {name: f"{min(found):.1f} to {max(found):.1f} a second" for name, found in rates.items()}
    return Report(
        name="replicas",
        what=f"{IMAGES} images a question, by a recipe; {CLIENTS} clients at once, {turns} × {seconds:g} s",
        ceiling="2 × one replica with a core for each; Ray and the clients need the same cores here",
        bars=(
            Bar("2 replicas / 1", median["two"] / median["one"], ">=", 1.0),
            Bar("1 replica / this process", median["one"] / median["here"], ">=", 0.2),
            Bar("refused", float(refused), "<=", 0.0),
        ),
        notes={
            "this process": f"{median['here']:.1f} questions a second ({spread['here']})",
            "1 replica": f"{median['one']:.1f} questions a second ({spread['one']})",
            "2 replicas": f"{median['two']:.1f} questions a second ({spread['two']})",
            "load": f"{os.getloadavg()[0]:.1f} jobs waited for the cores at the end, of all that ran here",
        },
    )


def _measure(ask: Ask, expected: torch.Tensor, seconds: float) -> tuple[float, int]:
    """Questions a second, and how many were refused; every answer is checked."""
    answered, busy, wrong = [0] * CLIENTS, [0] * CLIENTS, []
    end = time.monotonic() + seconds

    def client(place: int) -> None:
        while time.monotonic() < end:
            try:
                if not torch.equal(ask().adapted.probs, expected):
                    wrong.append(place)
                answered[place] += 1
            except BusyError:
                busy[place] += 1
                time.sleep(0.1)

    began = time.monotonic()
    threads = [threading.Thread(target=client, args=(place,)) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise atlas.AtlasError("a replica has answered other than this process. This is a bug.")
    return sum(answered) / (time.monotonic() - began), sum(busy)


@contextmanager
def served(count: int) -> Iterator[ReplicaClient]:
    """A client of so many replicas of each kind, on a Ray of their own."""
    with tempfile.TemporaryDirectory(prefix="atlas-replicas-") as folder:
        token = Path(folder, "token")
        port = 8650 + count
        options = ["--replicas", str(count), "--port", str(port), "--device", "cpu", "--results", folder]
        process = subprocess.Popen(
            [sys.executable, "-m", "atlas_engine.cli", "serve", *options],
            env={**os.environ, "RAY_AUTH_TOKEN_PATH": str(token)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            if b"ATLAS_BACKEND" not in process.stdout.readline():
                raise atlas.AtlasError("the replicas did not start; their own message stands above.")
            yield ReplicaClient("127.0.0.1", port, token=token.read_text(encoding="utf-8"))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)
            process.stdout.close()
