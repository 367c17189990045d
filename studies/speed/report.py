"""What a benchmark found, as a card, a table and one JSON line."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from atlas_engine.views.tables import table

__all__ = ["Bar", "Report", "machine", "render"]


def machine() -> dict[str, str]:
    """What the numbers depend on: cores, threads, versions and device; never the name of the host."""
    import torch

    return {
        "cores": f"{os.cpu_count()} ({torch.get_num_threads()} threads used)",
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


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
        """Whether the value is on the right side; NaN never is."""
        return self.value <= self.limit if self.relation == "<=" else self.value >= self.limit

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON types; a value that is not finite is null."""
        return {
            "measure": self.measure,
            "value": self.value if math.isfinite(self.value) else None,
            "relation": self.relation,
            "limit": self.limit,
            "unit": self.unit,
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Bar:
        """The bar that `as_dict` gave; null is NaN."""
        value = math.nan if data["value"] is None else data["value"]
        return cls(data["measure"], value, data["relation"], data["limit"], data["unit"])


@dataclass(frozen=True)
class Report:
    """One suite's outcome: `what` was timed, the `ceiling` it could reach at best, and further `notes`."""

    name: str
    what: str
    ceiling: str
    bars: tuple[Bar, ...]
    notes: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=machine)

    @property
    def passed(self) -> bool:
        """Whether every bar is met."""
        return all(bar.passed for bar in self.bars)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain JSON types."""
        return {
            "name": self.name,
            "passed": self.passed,
            "what": self.what,
            "ceiling": self.ceiling,
            "machine": self.machine,
            "bars": [bar.as_dict() for bar in self.bars],
            "notes": self.notes,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The report that `as_dict` gave."""
        bars = tuple(map(Bar.from_dict, data["bars"]))
        return cls(data["name"], data["what"], data["ceiling"], bars, data["notes"], data["machine"])


def render(report: Report) -> str:
    """The card, the table of bars, and the JSON line."""
    facts = {"timed": report.what, "ceiling": report.ceiling, **report.machine, **report.notes}
    width = max(map(len, facts))
    card = "\n".join(f"  {name:{width}}  {fact}" for name, fact in facts.items())
    rows = [
        (bar.measure, bar.value, f"{bar.relation} {bar.limit:.4g}", bar.unit, bar.passed)
        for bar in report.bars
    ]
    bars = table(rows, ("measure", "value", "bar", "unit", "passed"))
    return f"# {report.name}\n{card}\n\n{bars}\n\n{json.dumps(report.as_dict())}\n"
