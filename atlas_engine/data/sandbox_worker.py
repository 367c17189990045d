"""The program of the helper process: bytes in, pixels out, until the pipe closes.

`data.sandbox` starts it and describes the frames. It does not import torch. Before it reads the first image,
it limits its own memory and gives up files, processes and the network (`data.confinement`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import sys
from typing import IO

from atlas_engine.data.confinement import confine
from atlas_engine.data.decode import decode, load_decoders
from atlas_engine.data.image import ImageLimits
from atlas_engine.data.sandbox import receive, send
from atlas_engine.errors import ImageError

__all__ = ["main"]

_MAX_BODY_BYTES = 1 << 40  # no limit: the parent has counted the bytes already


def main(address_space: int) -> None:
    """Serve requests from stdin on stdout; return when stdin ends, as it does when the parent dies."""
    requests, replies = _take_over_pipes()
    load_decoders()
    _limit_resources(address_space)
    _silence_stderr()
    given_up = confine()
    send(replies, {"ready": True, "confinement": dataclasses.asdict(given_up)})
    while True:
        try:
            header, data = receive(requests, max_body_bytes=_MAX_BODY_BYTES)
        except EOFError:
            return
        limits = ImageLimits.from_dict(header["limits"])
        _set_alarms(seconds=limits.seconds, cpu_seconds=limits.cpu_seconds)
        _answer(replies, bytes(data), name=header["name"], limits=limits)
        _set_alarms(seconds=0, cpu_seconds=0)


def _answer(replies: IO[bytes], data: bytes, *, name: str, limits: ImageLimits) -> None:
    try:
        pixels = decode(data, name=name, limits=limits)
    except ImageError as error:
        send(replies, {"error": str(error)})
    else:
        height, width, _ = pixels.shape
        send(replies, {"height": height, "width": width}, pixels.data.cast("B"))


def _take_over_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Unbuffered copies of stdin and stdout; what a library might print goes to the null device instead."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return requests, replies


def _silence_stderr() -> None:
    # Until now it could say why an import failed. From now on nobody reads it, and a full pipe would block.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def _limit_resources(address_space: int) -> None:
    """Limit our memory, write no core files, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "win32":
        return
    import resource

    # Some systems (macOS) refuse the value; the time limit then has to do.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def _set_alarms(*, seconds: float, cpu_seconds: float) -> None:
    """End this process (SIGPROF) after so many seconds of computing; 0 switches the alarms off.

    The parent ends it after so many seconds by the clock; if the parent is dead, an alarm does later.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, 2 * math.ceil(seconds))
