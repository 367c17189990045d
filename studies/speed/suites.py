"""The table of benchmark suites. A suite's module is imported in the process that runs it.

    choose(["cache"])[0].run().passed

To add one: write a function that gives a `Report`, and add its row to `SUITES`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from atlas_engine.errors import EvalError, unknown_name
from studies.speed.report import Report

__all__ = ["SUITES", "Suite", "choose"]

_STDERR = 2  # whatever a suite prints: stdout is for reports


@dataclass(frozen=True)
class Suite:
    """One row: a name, what is timed, and the `module:function` that gives the report."""

    name: str
    summary: str
    target: str
    needs: str = ""  # a module of an extra, without which the suite is run by its name only, and says so

    def run(self) -> Report:
        """The suite's report, from a Python process of its own (`studies.speed.run`).

        What a suite leaves behind, in memory above all, would change what the next one measures.
        """
        with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
            output = Path(folder, "report.json")
            command = [sys.executable, "-m", "studies.speed.run", self.target, "--json", str(output)]
            code = subprocess.run(command, stdout=_STDERR, check=False).returncode
            if code or not output.is_file():
                raise EvalError(
                    f"suite '{self.name}' ended without a report (exit code {code}). Its own message, if "
                    "any, stands above; with none, free some memory and run again."
                )
            return Report.from_dict(json.loads(output.read_text(encoding="utf-8")))


SUITES = (
    Suite(
        "engine",
        "composition and its gradient against the naive formulation and against reading the bank",
        "studies.speed.engine:engine",
    ),
    Suite(
        "partitions",
        "composing 20 coefficients per block and vector against one, and one more fold against one run",
        "studies.speed.partitions:partitions",
    ),
    Suite(
        "few-shot",
        "adapting to a few images, and its first answer, in plain training passes",
        "studies.speed.few_shot:few_shot",
    ),
    Suite(
        "few-shot-vit",
        "adapting at the shapes of ViT-B/32 with 20 vectors, against its own passes through the bare tower",
        "studies.speed.few_shot_vit:few_shot_vit",
    ),
    Suite(
        "memory",
        "the planned memory of a run with a scaled-down ViT-L/14 and 20 vectors, against its measured peak",
        "studies.speed.memory:memory",
    ),
    Suite(
        "tiers",
        "a few-shot run with a budget from 500 vectors on disk, against 20 in memory",
        "studies.speed.tiers:tiers",
    ),
    Suite(
        "replicas",
        "questions answered by two replicas on Ray, against one and against this process",
        "studies.load_test.replicas:replicas",
        needs="ray",
    ),
    Suite(
        "predict",
        "a prediction against the bare tower, the imports and the cache",
        "studies.speed.predict:predict",
    ),
    Suite(
        "allocator",
        "a training step with freed memory kept or returned",
        "studies.speed.predict:allocator",
    ),
    Suite(
        "cache",
        "a cache hit against a bare SQLite read of the same bytes",
        "studies.speed.cache_hit:cache_hit",
    ),
    Suite(
        "try",
        "an image dropped in Try and answered over the network, against the engine alone",
        "studies.load_test.first_answer:first_answer",
    ),
)


def choose(names: Sequence[str], *, suites: Sequence[Suite] | None = None) -> list[Suite]:
    """The suites of these names, in this order and each once; all that can run here where none is named."""
    rows = SUITES if suites is None else suites
    known = {suite.name: suite for suite in rows}
    for name in names:
        if name not in known:
            raise EvalError(unknown_name("suite", name, known))
    can_run = [suite for suite in rows if not suite.needs or find_spec(suite.needs)]
    return [known[name] for name in dict.fromkeys(names)] or can_run
