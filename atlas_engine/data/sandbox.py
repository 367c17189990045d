"""The helper process that decodes strangers' images, seen from the parent.

Image decoders are written in C and fed by strangers: if one crashes, hangs or takes all the memory, only the
helper dies. The parent ends it, names the image in an ImageError, and starts another helper for the next one.

    with Decoder() as decoder:
        pixels = decoder.decode(data, name="cat.jpg", limits=ImageLimits())

Both directions send frames, never pickles:

    4 bytes  length of the header ┐ big-endian
    8 bytes  length of the body   ┘
    header   JSON: request {name, limits}; reply {height, width} or {error}; once, at the start, {ready}
    body     request: the file's bytes; reply: the pixels (H W 3)
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from atlas_engine.data.formats import ADVICE
from atlas_engine.data.image import ImageLimits, Pixels
from atlas_engine.errors import AtlasError, ImageError

__all__ = ["Decoder", "receive", "send", "shared_decoder"]

_LENGTHS = struct.Struct("!IQ")
_MAX_HEADER_BYTES = 1 << 20
_START_SECONDS = 60.0  # a cold import of numpy and PIL on a busy machine takes a few

# The child sees the parent's modules and nothing else of it: `-I` keeps the working folder and PYTHON*
# variables out, and the environment is cut down to what an interpreter needs, so no token reaches a decoder.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from atlas_engine.data.sandbox_worker import main; main(int(sys.argv[2]))"
)
_LOST_HELPER = (OSError, EOFError, ValueError, RecursionError)  # raised if it is gone, or sends nonsense
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMPDIR", "LANG")


class Decoder:
    """One helper process, started at the first image, and again after a crash. Threads may share it."""

    def __init__(self, *, address_space: int = 2 << 30) -> None:
        self._address_space = address_space
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            forget = weakref.WeakMethod(self._forget_after_fork)
            os.register_at_fork(after_in_child=lambda: _call_if_alive(forget))

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def decode(self, data: bytes, *, name: str, limits: ImageLimits) -> Pixels:
        """The pixels (H W 3) of a file's bytes, or an ImageError that begins with `name`."""
        header = {"name": name, "limits": limits.as_dict()}
        with self._lock:
            process = self._running()
            try:
                with _deadline(process, limits.seconds) as timed_out:
                    send(_pipe(process.stdin), header, data)
                    reply = receive(_pipe(process.stdout), max_body_bytes=3 * limits.max_pixels)
            except _LOST_HELPER:
                raise ImageError(f"{name}: {self._end_lost_helper(timed_out, limits)}") from None
            except BaseException:
                self._stop()  # its reply to this image must not answer the next one
                raise
        return _reply_pixels(reply, name=name)

    def close(self) -> None:
        """End the helper. The next image would start another."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "not started" if self.pid is None else f"process {self.pid}"
        return f"Decoder({state}, at most {self._address_space >> 20} MiB)"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        self._process = _start(self._address_space)
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def _end_lost_helper(self, timed_out: threading.Event, limits: ImageLimits) -> str:
        """Stop the helper, and return what happened in words."""
        process = self._process
        if timed_out.is_set() or process is None:
            self._stop()
            return f"took longer than {limits.seconds:g} s to decode and was stopped. {ADVICE}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        how = _describe_end(process.poll())
        self._stop()
        return f"made the decoder crash ({how}), so it is not taken. The file may be damaged. {ADVICE}"

    def _forget_after_fork(self) -> None:
        # The helper belongs to the parent, and the lock may have been held at the moment of the fork.
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # it is not our child: there is nothing to wait for, or to warn of
            _close_pipes(process)


@functools.cache
def shared_decoder() -> Decoder:
    """The helper that all callers in this process share; it ends with the interpreter."""
    decoder = Decoder()
    atexit.register(decoder.close)
    return decoder


def send(stream: IO[bytes], header: dict[str, Any], body: bytes | memoryview = b"") -> None:
    """Write one frame to an unbuffered pipe."""
    text = json.dumps(header).encode("ascii")
    for part in (_LENGTHS.pack(len(text), len(body)) + text, body):
        rest = memoryview(part)
        while rest:
            rest = rest[stream.write(rest) :]


def receive(stream: IO[bytes], *, max_body_bytes: int) -> tuple[dict[str, Any], bytearray]:
    """Read one frame; EOFError if the other side is gone, ValueError if it sends nonsense."""
    header_bytes, body_bytes = _LENGTHS.unpack(_read_exactly(stream, _LENGTHS.size))
    if header_bytes > _MAX_HEADER_BYTES or body_bytes > max_body_bytes:
        raise ValueError(f"a frame of {header_bytes} + {body_bytes} bytes is too large")
    header = json.loads(_read_exactly(stream, header_bytes))
    if not isinstance(header, dict):
        raise ValueError("a header must be an object")
    return header, _read_exactly(stream, body_bytes)


def _read_exactly(stream: IO[bytes], nbytes: int) -> bytearray:
    data = bytearray(nbytes)
    view, filled = memoryview(data), 0
    while filled < nbytes:
        count = stream.readinto(view[filled:])  # type: ignore[attr-defined]  # raw pipes have it, IO does not say
        if not count:
            raise EOFError("the other side has closed the pipe")
        filled += count
    return data


def _start(address_space: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-c", _BOOT, json.dumps(sys.path), str(address_space)]
    variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each would reserve address space
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=variables | threads,
        )
    except OSError as error:
        raise AtlasError(f"the helper process that decodes images could not start: {error}.") from None
    try:
        with _deadline(process, _START_SECONDS):
            receive(_pipe(process.stdout), max_body_bytes=0)
    except BaseException as error:
        process.kill()
        stderr = _pipe(process.stderr).read().decode("utf-8", "replace").strip()
        process.wait()
        _close_pipes(process)
        if not isinstance(error, _LOST_HELPER):
            raise
        why = stderr.splitlines()[-1] if stderr else f"no answer ({_describe_end(process.returncode)})"
        raise AtlasError(f"the helper process that decodes images could not start: {why}.") from None
    return process


@contextlib.contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kill the process after so many seconds, which ends a blocked read or write of its pipes.

    The event is set if that happened.
    """
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()
        timer.join()


def _reply_pixels(reply: tuple[dict[str, Any], bytearray], *, name: str) -> Pixels:
    """The pixels (H W 3) of a reply, checked: a helper that a stranger took over may send anything."""
    header, body = reply
    if isinstance(error := header.get("error"), str):
        raise ImageError(error)
    height, width = header.get("height"), header.get("width")
    if type(height) is not int or type(width) is not int or min(height, width) < 1:
        raise ImageError(f"{name}: the decoder gave an answer without a size, so it is not taken. {ADVICE}")
    if len(body) != height * width * 3:
        raise ImageError(
            f"{name}: the decoder gave an answer of the wrong size, so it is not taken. {ADVICE}"
        )
    pixels = np.frombuffer(body, np.uint8).reshape(height, width, 3)
    pixels.flags.writeable = False
    return pixels


def _describe_end(returncode: int | None) -> str:
    if returncode is None:
        return "it talked nonsense"
    if returncode >= 0:
        return f"it ended with code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # all three were asked for in _start
    return stream


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        _pipe(stream).close()


def _call_if_alive(method: weakref.WeakMethod[Any]) -> None:
    if (bound := method()) is not None:
        bound()
