"""A task, its answer, and how both travel: as JSON and safetensors bytes, never as pickled objects.

    def count(folder: str, *, ending: str) -> Answer:                      # a function of a module
        return Answer({"count": len(list(Path(folder).glob(f"*{ending}")))})

    task = Task(key_of("count", folder, ".jpg"), "counting", count, {"folder": folder, "ending": ".jpg"})
    answer = unpack_answer(perform(pack_task(task, threads=1)))

`perform` is all that a worker does, in whichever process it lives. It sets the number of torch's threads, for
that changes the last bits of sums, and refuses a task from another version of the program or of torch.
"""

from __future__ import annotations

import contextlib
import json
import pkgutil
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from typing_extensions import Self

from atlas_engine import errors
from atlas_engine.config import software_version
from atlas_engine.errors import AtlasError, ExecutorError

__all__ = [
    "Answer",
    "Executor",
    "Task",
    "here",
    "pack_error",
    "pack_task",
    "perform",
    "task_facts",
    "unpack_answer",
]


@dataclass(frozen=True)
class Answer:
    """What a task gives back: facts as plain JSON types, and a safetensors file's bytes, or none."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Task:
    """A function of a module and arguments of JSON types, under a key of all that decides the answer."""

    key: str
    note: str  # what it is about, in a word
    function: Callable[..., Answer]
    arguments: Mapping[str, Any]


class Executor(ABC):
    """Carries tasks out somewhere: a context that is closed at its end."""

    name: str

    def __init__(self, threads: int | None) -> None:
        """`threads` is how many of torch's a task has; None leaves this process as it is."""
        self.threads = threads

    @abstractmethod
    def run(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """The replies as they come, each with the position of its message.

        Messages are taken as there is room for them. Closing the iterator stops the tasks under way.
        """

    def close(self) -> None:  # noqa: B027 - an executor that starts nothing has nothing to free
        """Free what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def task_facts(threads: int | None) -> tuple[object, ...]:
    """What decides the bits of an answer besides a task's data and settings, to be hashed into its key."""
    return (software_version(), torch.__version__, threads or torch.get_num_threads())


def here() -> dict[str, str]:
    """The versions that all machines of a run must have."""
    return {"atlas-studio": software_version(), "torch": torch.__version__.partition("+")[0]}


# ---- messages to a worker


def pack_task(task: Task, *, threads: int | None) -> bytes:
    """The task as JSON."""
    name = f"{task.function.__module__}:{task.function.__qualname__}"
    if "<" in name or "." in task.function.__qualname__ or name.startswith("__main__"):
        raise TypeError(f"{name} cannot be sent to another process: a task needs a function of a module.")
    message = {"function": name, "arguments": dict(task.arguments), "threads": threads, "versions": here()}
    return json.dumps(message, allow_nan=False).encode()


def perform(message: bytes) -> bytes:
    """Carry one packed task out. Returns the packed answer, or what went wrong, in words."""
    given = json.loads(message)
    try:
        _require_versions(given["versions"])
        with _torch_threads(given["threads"]):
            answer = pkgutil.resolve_name(given["function"])(**given["arguments"])
    except AtlasError as error:
        return pack_error(error)
    except Exception as error:  # the border: a worker lives on, and the program that waits for it hears why
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"unexpected {type(error).__name__} in {where.name}, line {where.lineno}: {error}"
        return pack_error(ExecutorError(text))
    return _pack({"facts": answer.facts}, answer.tensors)


def pack_error(error: AtlasError) -> bytes:
    """What went wrong as a reply."""
    return _pack({"error": [type(error).__name__, str(error)]})


def unpack_answer(reply: bytes) -> Answer:
    """The answer in a reply; the error in it is raised, under the class that it had where it was raised."""
    length = int.from_bytes(reply[:8], "little")
    given = json.loads(reply[8 : 8 + length])
    if "error" in given:
        name, text = given["error"]
        kind = getattr(errors, name, None) if name in errors.__all__ else None
        raise (kind if isinstance(kind, type) and issubclass(kind, AtlasError) else ExecutorError)(text)
    return Answer(given["facts"], reply[8 + length :])


def _pack(head: Mapping[str, Any], tensors: bytes = b"") -> bytes:
    """Eight bytes with the length of the JSON, the JSON, and the tensors."""
    text = json.dumps(head, allow_nan=False).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def _require_versions(theirs: Mapping[str, str]) -> None:
    for package, own in here().items():
        if theirs.get(package) != own:
            raise ExecutorError(
                f"a worker has {package} {own}, but the run was started with {theirs.get(package)}. "
                "Their answers could differ: install the same versions on every machine."
            )


@contextlib.contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    """So many threads in torch, and as many as before afterwards."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
