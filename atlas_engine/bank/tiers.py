"""The vectors of a bank file in two tiers, disk and memory, and the thread that reads ahead.

    tiers = VectorTiers("bank.safetensors", memory_nbytes=2**30)     # reads the header and the index
    tiers.panel(m, [3, 17])                                          # block m of two vectors, on the CPU
    tiers.rate({3: 0.9, 17: 0.4})                                    # 17 leaves memory before 3
    tiers.prefetch([5, 8], blocks=[0, 1, 2])                         # read in the background

The unit is a block of a vector. Memory keeps what was read until its limit; then the vector with the lowest
score goes, and of equals the one that was used longest ago. The third tier is the bank that a run composes
with, on its device (`bank.tiered`). What is read does not depend on where it was found: numbers are equal bit
for bit from every tier.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.bank_file import BankFile
from atlas_engine.bank.index import open_index
from atlas_engine.bank.panels import Panel
from atlas_engine.errors import BankError

__all__ = ["VectorTiers"]

_log = logging.getLogger(__name__)

Rows = Mapping[str, Tensor]
"""One vector's part of a block: (1 …) by the tensors' names in the file."""


@dataclass
class _HeldVector:
    """What memory has of one vector: its blocks by position, and when it was last used."""

    blocks: dict[int, Rows] = field(default_factory=dict)
    nbytes: int = 0
    used: int = 0


class VectorTiers:
    """A bank file, its index, and what was read of it. Threads may share it."""

    def __init__(self, path: Path | str, *, memory_nbytes: int) -> None:
        self.path, self.memory_limit_nbytes = Path(path), memory_nbytes
        self.file = BankFile(path)
        try:
            self.index = open_index(self.file)
        except BaseException:
            self.file.close()
            raise
        weakref.finalize(self, self.file.close)  # for a session that nobody closes
        self.scores: dict[int, float] = {}
        self.memory_nbytes = 0
        self.read_nbytes = 0
        """Bytes of vectors read from disk so far."""
        self._held: dict[int, _HeldVector] = {}
        self._lock, self._one_reader = threading.RLock(), threading.Lock()
        self._clock = itertools.count(1)
        self._closed = threading.Event()
        self._fetcher = ThreadPoolExecutor(1, thread_name_prefix="atlas-prefetch")

    def panel(self, m: int, tasks: Sequence[int]) -> Panel:
        """The panel of block `m` with these tasks, in this order, on the CPU, in memory of its own."""
        rows = [self._rows(task, m) for task in tasks]
        return self.file.panel_from(m, {key: torch.cat([row[key] for row in rows]) for key in rows[0]})

    def rate(self, scores: Mapping[int, float]) -> None:
        """Replace the vectors' scores; a vector without one counts as the lowest."""
        with self._lock:
            self.scores = dict(scores)

    def prefetch(self, tasks: Sequence[int], blocks: Sequence[int]) -> None:
        """Read these blocks of these vectors into memory, in the background and in this order.

        It ends where memory is full of vectors that score as high.
        """
        if not self._closed.is_set():
            self._fetcher.submit(self._fetch, tuple(tasks), tuple(blocks))

    def wait(self) -> None:
        """Return once everything asked for by `prefetch` so far is read."""
        self._fetcher.submit(lambda: None).result()

    def memory_nbytes_of(self, task: int) -> int:
        """Bytes of this vector in memory."""
        with self._lock:
            held = self._held.get(task)
            return 0 if held is None else held.nbytes

    def close(self) -> None:
        """End the reading in the background, forget what is in memory, and close the file."""
        self._closed.set()
        self._fetcher.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._held.clear()
            self.memory_nbytes = 0
        self.file.close()

    def _fetch(self, tasks: Sequence[int], blocks: Sequence[int]) -> None:
        try:
            for task, m in itertools.product(tasks, blocks):
                if self._closed.is_set() or not self._has_room_for(task, m):
                    return
                self._rows(task, m)
        except (BankError, OSError) as error:  # whoever needs the vector will meet the error again
            _log.warning("reading ahead stopped: %s", error)

    def _has_room_for(self, task: int, m: int) -> bool:
        """Whether the vector's part of block `m` fits into memory, if need be in place of a lower score."""
        with self._lock:
            if self.memory_nbytes + self.file.vector_nbytes(m) <= self.memory_limit_nbytes:
                return True
            least = min((self._score(other) for other in self._held), default=float("inf"))
            return least < self._score(task)

    def _rows(self, task: int, m: int) -> Rows:
        """The vector's part of block `m`: from memory, else from disk, checked, and then kept."""
        kept = self._kept_rows(task, m)
        if kept is not None:
            return kept
        with self._one_reader:
            kept = self._kept_rows(task, m)  # read by another thread meanwhile
            if kept is not None:
                return kept
            rows = {key: self.file.read_row(key, task) for key in self.file.keys_of(m)}
            for key, row in rows.items():
                self.index.check(key, task, row)
            self._keep(task, m, rows)
            return rows

    def _kept_rows(self, task: int, m: int) -> Rows | None:
        with self._lock:
            held = self._held.get(task)
            if held is None or m not in held.blocks:
                return None
            held.used = next(self._clock)
            return held.blocks[m]

    def _keep(self, task: int, m: int, rows: Rows) -> None:
        nbytes = sum(row.nbytes for row in rows.values())
        with self._lock:
            self.read_nbytes += nbytes
            held = self._held.setdefault(task, _HeldVector())
            held.used = next(self._clock)
            held.blocks[m] = rows
            held.nbytes += nbytes
            self.memory_nbytes += nbytes
            while self.memory_nbytes > self.memory_limit_nbytes:
                self._drop(min(self._held, key=self._worth))

    def _worth(self, task: int) -> tuple[float, int]:
        return self._score(task), self._held[task].used

    def _score(self, task: int) -> float:
        return self.scores.get(task, float("-inf"))

    def _drop(self, task: int) -> None:
        self.memory_nbytes -= self._held.pop(task).nbytes
