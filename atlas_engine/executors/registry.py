"""The table of executors, and how one is named: `local`, `processes`, `processes:4`, `ray`, `ray://HOST:PORT`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from atlas_engine.cluster import RAY_SCHEME
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.executors.local import LocalExecutor
from atlas_engine.executors.on_ray import RayExecutor
from atlas_engine.executors.processes import ProcessesExecutor
from atlas_engine.executors.task import Executor

__all__ = ["EXECUTORS", "ExecutorRow", "open_executor"]


@dataclass(frozen=True)
class ExecutorRow:
    """One place to carry tasks out, and what opens it with the rest of its name and the number of threads."""

    about: str
    open: Callable[[str, int | None], Executor]


def _local(rest: str, threads: int | None) -> Executor:
    if rest:
        raise ConfigError(f"local takes nothing behind it, but got '{rest}'. Give processes:{rest}?")
    return LocalExecutor(threads=threads)


def _processes(rest: str, threads: int | None) -> Executor:
    if rest and not (rest.isdecimal() and int(rest)):
        raise ConfigError(f"'processes:{rest}' needs a whole number of at least 1, as in processes:4.")
    return ProcessesExecutor(threads=threads, count=int(rest) if rest else None)


def _ray(rest: str, threads: int | None) -> Executor:
    if rest and not rest.startswith("//"):
        raise ConfigError(f"'ray:{rest}' is no address of a Ray cluster. Write it as ray://10.0.0.5:10001.")
    return RayExecutor(threads=threads, address=f"{RAY_SCHEME}{rest[2:]}" if rest else None)


EXECUTORS: Mapping[str, ExecutorRow] = MappingProxyType(
    {
        "local": ExecutorRow("one after another, in this process", _local),
        "processes": ExecutorRow("in N processes of this machine, by default one for each core", _processes),
        "ray": ExecutorRow("on a Ray cluster, or in a Ray started on this machine", _ray),
    }
)


def open_executor(on: str = "local", *, threads: int | None = None) -> Executor:
    """The executor of that name, to be closed. `threads` is how many of torch's each task has.

    With the same number of threads all of them give the same bits on machines of one kind; None leaves
    `local` as it is, and is 1 in the others.
    """
    name, _, rest = on.partition(":")
    if name not in EXECUTORS:
        raise ConfigError(unknown_name("executor", name, EXECUTORS))
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads} but must be at least 1.")
    return EXECUTORS[name].open(rest, threads)
