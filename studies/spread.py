"""A grid of measurements spread over an executor's workers: `atlas eval few-shot … --on WHERE`.

The parts of a grid are its data sets under one seed each. The command lists the cells of a part, and sends
the keys of those that its ledger lacks to a worker. A worker repeats the whole command, with an
`AssignedLedger` in the place of the ledger: `run_grid` measures the cells of its part there, and then the
command is left. So a study is written once, and every study whose rows come from `run_grid` can be spread.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.errors import EvalError
from atlas_engine.executors import Answer, Executor, Ledger, Task, key_of, run_tasks

if TYPE_CHECKING:
    from studies.grid import Cell, OnStart

__all__ = ["AssignedLedger", "SpreadLedger", "assigned_ledger", "measure_part", "run_assigned", "run_spread"]

_ASSIGNED: ContextVar[AssignedLedger | None] = ContextVar("_ASSIGNED", default=None)


class SpreadLedger(Ledger):
    """A ledger whose missing rows are measured by the workers of an executor, which repeat these words."""

    def __init__(
        self,
        path: Path | None,
        words: Sequence[str],
        open_executor: Callable[[], Executor],
        *,
        measure: Callable[..., Answer] | None = None,
    ) -> None:
        """`measure` is what a worker calls, by default `measure_part`."""
        super().__init__(path)
        self.words, self.open_executor, self.measure = tuple(words), open_executor, measure or measure_part


class AssignedLedger(Ledger):
    """A worker's ledger: the part of a grid that it is to measure."""

    def __init__(self, dataset: str, seed: int, keys: Sequence[str]) -> None:
        super().__init__()
        self.dataset, self.seed, self.missing = dataset, seed, set(keys)


class PartMeasured(BaseException):
    """Leaves a command that a worker repeats, once its part is measured; no `except Exception` stops it."""


@dataclass(frozen=True)
class _Line:
    """A cell without what it holds in memory: how its row is made."""

    key: str
    row: Callable[..., Any]
    names: Mapping[str, object]


def run_spread(
    datasets: Mapping[str, Any],
    cells_of: Callable[[str, Any, int], Iterable[Cell[Any]]],
    *,
    seeds: int,
    ledger: SpreadLedger,
    on_start: OnStart,
) -> Iterator[tuple[Any, bool]]:
    """What `run_grid` gives, in its order, with the cells of each part measured by a worker."""
    parts: list[list[_Line]] = []  # in the order of the rows
    fresh: set[str] = set()
    known_parts = Ledger()

    def tasks() -> Iterator[Task]:
        for seed in range(seeds):
            for dataset, source in datasets.items():
                on_start(f"{dataset}, reading")
                cells = cells_of(dataset, source, seed)
                lines = [_Line(key_of(*cell.facts), cell.row, cell.names) for cell in cells]
                parts.append(lines)
                missing = sorted({line.key for line in lines if ledger.get(line.key) is None})
                if missing:
                    arguments = {"words": list(ledger.words), "folder": str(Path.cwd())}
                    part = {"dataset": dataset, "seed": seed, "keys": missing}
                    yield Task(key_of(*missing), f"{dataset}, seed {seed}", ledger.measure, arguments | part)

    def keep(task: Task) -> None:
        rows = (known_parts.get(task.key) or {}).get("rows", {})
        for key, row in rows.items():
            ledger.put(key, row)
            fresh.add(key)
        on_start(f"{task.note}, {len(rows)} rows")

    def rows_of(lines: Sequence[_Line]) -> Iterator[tuple[Any, bool]]:
        for line in lines:
            yield line.row(**{**(ledger.get(line.key) or {}), **line.names}), line.key in fresh

    given = 0
    with ledger.open_executor() as executor:
        for _ in run_tasks(tasks(), executor=executor, ledger=known_parts, on_end=keep):
            while given < len(parts) and all(ledger.get(line.key) is not None for line in parts[given]):
                yield from rows_of(parts[given])
                given += 1
    for lines in parts[given:]:
        yield from rows_of(lines)


# ---- in a worker


def measure_part(*, words: list[str], folder: str, dataset: str, seed: int, keys: list[str]) -> Answer:
    """The rows of one part of the grid that the command `words` measures, by their keys."""
    from atlas_engine.cli.main import atlas_group

    ledger = AssignedLedger(dataset, seed, keys)
    token, talk = _ASSIGNED.set(ledger), io.StringIO()
    try:
        with _in_folder(folder), contextlib.redirect_stdout(talk), contextlib.redirect_stderr(talk):
            command = atlas_group()
            with command.make_context("atlas", list(words)) as context:
                command.invoke(context)
    except PartMeasured:
        return Answer({"rows": dict(ledger.known())})
    except click.ClickException as error:
        raise EvalError(error.format_message()) from error
    finally:
        _ASSIGNED.reset(token)
    raise EvalError(f"'atlas {' '.join(words[:2])}' has no grid of measurements with {dataset}.")


def assigned_ledger() -> AssignedLedger | None:
    """The part that this process is to measure for another one; None in a command that a person typed."""
    return _ASSIGNED.get()


def run_assigned(
    datasets: Mapping[str, Any],
    cells_of: Callable[[str, Any, int], Iterable[Cell[Any]]],
    *,
    ledger: AssignedLedger,
) -> None:
    """Measure the cells of the part, and leave the command; a grid of other data sets is passed over.

    So a command may have several grids, as long as no two share the name of a data set.
    """
    if ledger.dataset not in datasets:
        return
    for cell in cells_of(ledger.dataset, datasets[ledger.dataset], ledger.seed):
        key = key_of(*cell.facts)
        if key in ledger.missing:
            ledger.put(key, cell.measure())
            ledger.missing.remove(key)
    if ledger.missing:
        raise EvalError(
            "a worker found other images or vectors than the command that sent it. Give all machines the "
            "same files under the same paths."
        )
    raise PartMeasured


@contextlib.contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """The working folder of the command, where this machine has it: paths may be relative to it."""
    before = Path.cwd()
    if Path(folder).is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
