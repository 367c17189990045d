"""The runner that every study shares: a grid of measurements, each made once and kept in a file.

A study says which cells one data set has under one seed, and how each is measured:

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[FewShotRow]]:
        problem = draw_problem(folder, …, seed=seed)
        for method in methods:
            yield Cell(f"{dataset}, {method.name}", facts, measure, FewShotRow, {"dataset": dataset})

    for row, fresh in run_grid(folders, cells_of, seeds=3, ledger=Ledger("few-shot.json.rows")): ...

The facts of a cell decide its outcome, so their hash is its key in the ledger. A run that is killed continues
where it stopped, and one that asks for more measures only what is new (`executors.ledger`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from atlas_engine.config import Settings
from atlas_engine.errors import ConfigError
from atlas_engine.executors import Ledger, key_of
from studies.spread import AssignedLedger, SpreadLedger, run_assigned, run_spread

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
    """The row of every cell, and whether it was measured now; the first seed of all data sets comes first.

    The ledger may spread the work over other processes and machines (`spread`).
    """
    if isinstance(ledger, AssignedLedger):
        run_assigned(datasets, cells_of, ledger=ledger)
        return
    if isinstance(ledger, SpreadLedger):
        yield from run_spread(datasets, cells_of, seeds=seeds, ledger=ledger, on_start=on_start)
        return
    for seed in range(seeds):
        for dataset, source in datasets.items():
            on_start(f"{dataset}, reading")
            for cell in cells_of(dataset, source, seed):
                on_start(cell.note)
                fields, fresh = ledger.once(key_of(*cell.facts), cell.measure)
                yield cell.row(**{**fields, **cell.names}), fresh


def drop_repeats(settings: Settings, *names: str, in_order: bool = False) -> None:
    """Keep each item of these lists once, as given or sorted; refuse an empty list. For `__post_init__`."""
    for name in names:
        given = getattr(settings, name)
        if not given:
            raise ConfigError(f"{type(settings).__name__}.{name} is empty but must have at least one.")
        once = dict.fromkeys(given)
        kept = tuple(sorted(once) if in_order else once)
        object.__setattr__(settings, name, kept)  # frozen: only here, before anyone has seen it
