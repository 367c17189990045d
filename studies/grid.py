"""The runner that every study shares: a grid of measurements, each made once and kept in a file.

A study says which cells one data set has under one seed, and how each is measured:

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[FewShotRow]]:
        problem = draw_problem(folder, …, seed=seed)
        for method in methods:
            yield Cell(f"{dataset}, {method.name}", facts, measure, FewShotRow, {"dataset": dataset})

    for row, fresh in run_grid(folders, cells_of, seeds=3, ledger=Ledger("few-shot.json.rows")): ...

The facts of a cell decide its outcome, so their hash is its key in the ledger. A run that is killed continues
where it stopped, and one that asks for more measures only what is new. The code is no fact: after a change of
a method, remove its lines from the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from atlas_engine.config import Settings
from atlas_engine.errors import ConfigError, EvalError

__all__ = ["Cell", "Ledger", "OnStart", "StudyRow", "drop_repeats", "ignore_note", "key_of", "run_grid"]

OnStart = Callable[[str], None]
"""Is called with a note on what begins."""

Row = TypeVar("Row")
Source = TypeVar("Source")


def ignore_note(_: str) -> None:
    """The default `OnStart`: do nothing."""


@dataclass(frozen=True)
class StudyRow:
    """One line of a study's JSON: its fields are the keys."""

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Cell(Generic[Row]):
    """One measurement of a grid, not yet made.

    `names` are fields of the row that say what things are called in this run. They are no part of the key: a
    folder that was renamed keeps its rows.
    """

    note: str  # for `on_start`
    facts: tuple[object, ...]  # all that decides the outcome, as plain JSON types
    measure: Callable[[], Mapping[str, Any]]  # gives plain JSON types
    row: Callable[..., Row]  # is called with what was measured, and with `names`
    names: Mapping[str, object] = field(default_factory=dict)


def run_grid(
    datasets: Mapping[str, Source],
    cells_of: Callable[[str, Source, int], Iterable[Cell[Row]]],
    *,
    seeds: int,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[Row, bool]]:
    """The row of every cell, and whether it was measured now; the first seed of all data sets comes first."""
    for seed in range(seeds):
        for dataset, source in datasets.items():
            on_start(f"{dataset}, reading")
            for cell in cells_of(dataset, source, seed):
                on_start(cell.note)
                fields, fresh = ledger.once(key_of(*cell.facts), cell.measure)
                yield cell.row(**{**fields, **cell.names}), fresh


class Ledger:
    """Measurements by key, in memory and, where a path is given, as lines of JSON in a file.

    A line is written as soon as its measurement is done. A last line that a kill cut off is dropped.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._rows: dict[str, dict[str, Any]] = {}
        if self.path is not None and self.path.exists():
            self._rows = _read_rows(self.path)

    def get(self, key: str) -> dict[str, Any] | None:
        """The measurement under this key; None where there is none."""
        return self._rows.get(key)

    def put(self, key: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a measurement. Returns it as `get` will."""
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
        """The measurement under this key, made now if there is none; and whether it was made now."""
        known = self.get(key)
        return (self.put(key, measure()), True) if known is None else (known, False)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Ledger({len(self)} rows{'' if self.path is None else f' in {self.path.name}'})"


def key_of(*facts: object) -> str:
    """A hash of facts that are plain JSON types; 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def drop_repeats(settings: Settings, *names: str, in_order: bool = False) -> None:
    """Keep each item of these lists once, as given or sorted; refuse an empty list. For `__post_init__`."""
    for name in names:
        given = getattr(settings, name)
        if not given:
            raise ConfigError(f"{type(settings).__name__}.{name} is empty but must have at least one.")
        once = dict.fromkeys(given)
        kept = tuple(sorted(once) if in_order else once)
        object.__setattr__(settings, name, kept)  # frozen: only here, before anyone has seen it


def _read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by key; whatever follows the last newline is cut off the file."""
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
