"""The table of benchmark suites. Knows their names; a suite's module is imported when it is run.

To add one: write a function that gives a `Report`, and add its row to `SUITES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atlas_engine.errors import EvalError, unknown_name

if TYPE_CHECKING:
    from studies.speed.report import Report

__all__ = ["SUITES", "Suite", "choose"]


@dataclass(frozen=True)
class Suite:
    """One row: a name, what is timed, and the `module:function` that gives the report."""

    name: str
    summary: str
    target: str

    def run(self) -> Report:
        """Import the suite's module, and run it."""
        module, _, function = self.target.partition(":")
        report: Report = getattr(importlib.import_module(module), function)()
        return report


SUITES = (
    Suite(
        "engine",
        "composition and its gradient against the naive formulation and against reading the bank",
        "studies.speed.engine:engine",
    ),
    Suite(
        "few-shot",
        "adapting to a few pictures, and its first answer, in plain training passes",
        "studies.speed.few_shot:few_shot",
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
)


def choose(names: Sequence[str], *, suites: Sequence[Suite] | None = None) -> list[Suite]:
    """The suites called so, in the order asked for; all of them when none is named."""
    rows = SUITES if suites is None else suites
    known = {suite.name: suite for suite in rows}
    for name in names:
        if name not in known:
            raise EvalError(unknown_name("suite", name, known))
    return [known[name] for name in dict.fromkeys(names)] or list(rows)
