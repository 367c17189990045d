"""What a benchmark found, as a card, a table and one JSON line. Knows nothing of how it was measured."""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from atlas_engine.views.tables import table

__all__ = ["Bar", "Report", "machine", "render"]


@dataclass(frozen=True)
class Bar:
    """A measure held against a limit: `Bar("ratio to the bare tower", 1.05, "<=", 1.11)`."""

    measure: str
    value: float
    relation: Literal["<=", ">="]
    limit: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value is on the right side; a value that is not a number never is."""
        return self.value <= self.limit if self.relation == "<=" else self.value >= self.limit


@dataclass(frozen=True)
class Report:
    """One suite's outcome: `what` was timed, the `ceiling` it could reach at best, and further `notes`."""

    name: str
    what: str
    ceiling: str
    bars: tuple[Bar, ...]
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every bar is met."""
        return all(bar.passed for bar in self.bars)

    def as_dict(self) -> dict[str, Any]:
        """All of it, and the machine, as plain JSON types."""
        return {
            "name": self.name,
            "passed": self.passed,
            "what": self.what,
            "ceiling": self.ceiling,
            "machine": machine(),
            "bars": [
                {
                    "measure": bar.measure,
                    "value": bar.value if math.isfinite(bar.value) else None,
                    "relation": bar.relation,
                    "limit": bar.limit,
                    "unit": bar.unit,
                    "passed": bar.passed,
                }
                for bar in self.bars
            ],
            "notes": self.notes,
        }


def render(report: Report) -> str:
    """The card, the table of bars, and the JSON line."""
    facts = {"timed": report.what, "ceiling": report.ceiling, **machine(), **report.notes}
    width = max(map(len, facts))
    card = "\n".join(f"  {name:{width}}  {fact}" for name, fact in facts.items())
    rows = [
        (bar.measure, bar.value, f"{bar.relation} {bar.limit:.4g}", bar.unit, bar.passed)
        for bar in report.bars
    ]
    bars = table(rows, ("measure", "value", "bar", "unit", "passed"))
    return f"# {report.name}\n{card}\n\n{bars}\n\n{json.dumps(report.as_dict())}\n"


def machine() -> dict[str, str]:
    """What the numbers depend on: cores, threads, versions and device; never the name of the host."""
    return {
        "cores": f"{os.cpu_count()} ({torch.get_num_threads()} threads used)",
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
