"""Functions kept in a separate process and called there one at a time.

A baseline must not gain or lose by what the process around it has done: settings of the C library, memory
that others freed. So it gets a fresh process, which makes what it needs once and then waits for its turn:

    with SeparateProcess(naive_calls, layers, "float32") as naive:
        fetch = naive.run("one forward")      # this process sleeps meanwhile: a clock around it is fair
        fetch()                               # the answer, fetched after the clock has stopped
        naive.extra_nbytes("one forward")
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atlas_engine.errors import EvalError
from atlas_engine.runtime import resident_nbytes
from studies.speed.measure import measure

__all__ = ["Calls", "SeparateProcess", "extra_nbytes", "nbytes_at_rest"]

Calls = Mapping[str, Callable[[], tuple[Tensor, ...]]]
"""What a process can be asked for, by name."""

_SECONDS_TO_END = 10.0


class SeparateProcess:
    """A process that holds `make(*args)`, started anew: nothing of this one's memory or settings is in it."""

    def __init__(self, make: Callable[..., Calls], *args: object) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit the settings of malloc
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, torch.get_num_threads(), make, args), daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def run(self, name: str) -> Callable[[], tuple[Tensor, ...]]:
        """Make one call there and wait for it. Returns a function that fetches the latest call's answer."""
        self._ask("run", name)
        return self._answer

    def extra_nbytes(self, name: str) -> float:
        """`extra_nbytes` of one call, in its process."""
        return cast("float", self._ask("extra_nbytes", name))

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def __enter__(self) -> SeparateProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _answer(self) -> tuple[Tensor, ...]:
        arrays = cast("tuple[NDArray[np.float32], ...]", self._ask("answer", ""))
        return tuple(map(torch.from_numpy, arrays))

    def _ask(self, verb: str, name: str) -> object:
        with contextlib.suppress(OSError):  # if it has ended, receiving says so
            self._connection.send((verb, name))
        return self._receive()

    def _receive(self) -> object:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join(_SECONDS_TO_END)
            raise EvalError(
                f"the process of the baseline ended (exit code {self._process.exitcode}) before it answered. "
                "Its own message, if any, stands above; with none, free some memory and run again."
            ) from None


def extra_nbytes(fn: Callable[[], object]) -> float:
    """The most bytes this process holds during a call beyond those at rest; NaN where that is not known.

    A first call pays for what comes once: compiled code, threads. An answer that is a view of something large
    holds all of it: give a copy.
    """
    fn()
    at_rest = nbytes_at_rest()
    peak = measure(fn, check=lambda _: True, warmup=0, repeat=1).peak_nbytes
    return float("nan") if peak is None else float(peak - at_rest)


def nbytes_at_rest() -> int:
    """Bytes this process holds after freed memory was returned to the system, where that can be done."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return resident_nbytes() or 0


def _serve(
    connection: Connection, threads: int, make: Callable[..., Calls], args: tuple[object, ...]
) -> None:
    """In the other process: make the calls, say so, then answer until the connection closes."""
    torch.set_num_threads(threads)
    calls = make(*args)
    gc.disable()  # as `measure` does around a call
    connection.send(None)
    answer: tuple[Tensor, ...] = ()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            verb, name = connection.recv()
            if verb == "run":
                answer = calls[name]()
                connection.send(None)
            elif verb == "answer":
                connection.send(tuple(tensor.numpy() for tensor in answer))
            else:
                connection.send(extra_nbytes(calls[name]))
