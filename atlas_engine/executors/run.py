"""Tasks through an executor: what is known is taken from the ledger, the rest is carried out and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from atlas_engine.errors import AtlasError
from atlas_engine.executors.ledger import Ledger
from atlas_engine.executors.task import Executor, Task, pack_task, unpack_answer

__all__ = ["Done", "run_tasks"]

OnEnd = Callable[[Task], None]
"""Is called with a task that was carried out just now, in the order in which tasks end."""


@dataclass(frozen=True)
class Done:
    """A task with the facts of its answer, and whether it was carried out now."""

    task: Task
    facts: Mapping[str, Any]
    fresh: bool
    ledger: Ledger = field(repr=False)

    def tensors(self) -> bytes:
        """The bytes of the answer's safetensors file, read when they are asked for; b"" without one."""
        return self.ledger.tensors(self.task.key)


def run_tasks(
    tasks: Iterable[Task], *, executor: Executor, ledger: Ledger, on_end: OnEnd = lambda _: None
) -> Iterator[Done]:
    """Every task with its answer, in the order of the tasks, as soon as those before it are done.

    Tasks are taken as there is room for them, and an answer is kept in the ledger as soon as it is there,
    whatever its place. A task that fails stops no other: its error is raised when all have ended, and a run
    started again repeats only what failed. Closing the iterator, as Ctrl-C does, stops the tasks under way.
    """
    order: list[Task] = []  # all tasks that were taken
    sent: list[int] = []  # places in `order` of those that the executor got
    fresh: set[int] = set()
    failed: dict[int, AtlasError] = {}

    def messages() -> Iterator[bytes]:
        keys = set()
        for task in tasks:
            order.append(task)
            if ledger.get(task.key) is None and task.key not in keys:
                keys.add(task.key)
                sent.append(len(order) - 1)
                yield pack_task(task, threads=executor.threads)

    def from_ledger(place: int) -> Done:
        task = order[place]
        return Done(task, ledger.get(task.key) or {}, place in fresh, ledger)

    given = 0  # how many of `order` the caller has
    with closing(executor.run(messages())) as replies:  # type: ignore[type-var]
        for position, reply in replies:
            place = sent[position]
            try:
                answer = unpack_answer(reply)
            except AtlasError as error:
                failed[place] = error
            else:
                ledger.put(order[place].key, answer.facts, answer.tensors)
                fresh.add(place)
            on_end(order[place])
            while given < len(order) and ledger.get(order[given].key) is not None:
                yield from_ledger(given)
                given += 1
    if failed:
        raise _first_of(failed, order)
    yield from (from_ledger(place) for place in range(given, len(order)))


def _first_of(failed: dict[int, AtlasError], order: list[Task]) -> AtlasError:
    """The error of the first task that failed, with the task's name and how many others failed."""
    place = min(failed)
    error = failed[place]
    others = f" ({len(failed) - 1} more failed.)" if len(failed) > 1 else ""
    return type(error)(f"{order[place].note}: {error}{others}")
