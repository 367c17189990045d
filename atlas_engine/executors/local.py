"""`local`: tasks one after another, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from typing_extensions import override

from atlas_engine.executors.task import Executor, perform

__all__ = ["LocalExecutor"]


class LocalExecutor(Executor):
    """This process. Ctrl-C ends the task under way, for it is this process that works on it."""

    name = "local"

    @override
    def run(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for position, message in enumerate(messages):
            yield position, perform(message)
