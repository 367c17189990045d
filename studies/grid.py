"""What has been measured already, so that nothing is measured twice. Knows nothing of what is measured.

    ledger = Ledger("donors.rows")
    row, fresh = ledger.once(key, lambda: {"accuracy": 0.5})         # fresh: it was measured now

One JSON line a measurement, written when it is done: a run that is killed goes on where it was. A line that
was cut off by the kill is forgotten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from atlas_engine.config import Settings
from atlas_engine.errors import ConfigError, EvalError

__all__ = ["Ledger", "drop_repeats", "key_of"]

class Ledger:
    """Measurements by key: in memory alone, or also in a file of JSON lines."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._rows: dict[str, dict[str, Any]] = {}
        if self.path is not None and self.path.exists():
            self._rows = _read(self.path)

    def get(self, key: str) -> dict[str, Any] | None:
        """What was measured under this key, if anything was."""
        return self._rows.get(key)

    def put(self, key: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a measurement, and give it back as `get` will."""
        line = json.dumps({"key": key, **row}, allow_nan=False)
        if self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise EvalError(f"cannot write {self.path} ({error.strerror}). Make room for it.") from error
        self._rows[key] = dict(row)
        return self._rows[key]

    def once(self, key: str, measure: Callable[[], Mapping[str, Any]]) -> tuple[dict[str, Any], bool]:
        """What was measured under this key, else what is measured now; and whether it was now."""
        known = self.get(key)
        return (self.put(key, measure()), True) if known is None else (known, False)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Ledger({len(self)} rows{'' if self.path is None else f' in {self.path.name}'})"


def key_of(*facts: object) -> str:
    """A short name for everything that defines a measurement, given as plain JSON types."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file; what follows the last whole line is cut off it."""
    try:
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            with path.open("r+b") as file:
                file.truncate(len(whole))
    except OSError as error:
        raise EvalError(f"cannot read {path} ({error.strerror}). Move it away to start anew.") from error
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(whole.decode(errors="replace").splitlines(), start=1):
        try:
            row = dict(json.loads(line))
            rows[row.pop("key")] = row
        except (ValueError, KeyError, TypeError):
            raise EvalError(
                f"line {number} of {path} is none of ours. Remove that line, or move the file away."
            ) from None
    return rows


# TODO merged docstring: """Lists among the settings of a study: at least one item, and none twice. Knows nothing of any study."""
def drop_repeats(settings: Settings, *names: str, in_order: bool = False) -> None:
    """Check these lists in `__post_init__`, and keep each item once: as given, or from small to large."""
    for name in names:
        given = getattr(settings, name)
        if not given:
            raise ConfigError(f"{type(settings).__name__}.{name} is empty but must have at least one.")
        once = dict.fromkeys(given)
        kept = tuple(sorted(once) if in_order else once)
        object.__setattr__(settings, name, kept)  # frozen: only here, before anyone has seen it
