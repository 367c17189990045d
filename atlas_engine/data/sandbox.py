"""The helper process that decodes strangers' images, seen from the parent.

Image decoders are written in C and fed by strangers: if one crashes, hangs or takes all the memory, only the
helper dies. The parent ends it, names the image in an ImageError, and starts another helper for the next one.
If a stranger takes the helper over, they find neither files nor a network there (`data.confinement`), and the
parent closes its own memory to other processes before it starts one.

    with Decoder() as decoder:
        pixels = decoder.decode(data, name="cat.jpg", limits=ImageLimits())
        decoder.confinement         # what the helper gave up on this machine

Both directions send frames, never pickles:

    4 bytes  length of the header ┐ big-endian
    8 bytes  length of the body   ┘
    header   JSON: request {name, limits}; reply {height, width} or {error}; at the start {ready, confinement}
    body     request: the file's bytes; reply: the pixels (H W 3)
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from atlas_engine.data.confinement import Confinement, hide_process
from atlas_engine.data.formats import ADVICE
from atlas_engine.data.image import ImageLimits, Pixels, StopQuestion, raise_if_stopped
from atlas_engine.errors import AtlasError, ImageError

__all__ = ["Decoder", "receive", "send", "shared_decoder"]

_LENGTHS = struct.Struct("!IQ")
_MAX_HEADER_BYTES = 1 << 20
_START_SECONDS = 60.0  # a cold import of numpy and PIL on a busy machine takes a few
_ASK_SECONDS = 0.1  # between two questions whether to stop

# The child sees the parent's modules and nothing else of it: `-I` keeps the working folder and PYTHON*
# variables out, and the environment is cut down to what an interpreter needs, so no token reaches a decoder.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from atlas_engine.data.sandbox_worker import main; main(int(sys.argv[2]))"
)
_LOST_HELPER = (OSError, EOFError, ValueError, RecursionError)  # raised if it is gone, or sends nonsense
_CPU_SIGNALS = ("SIGPROF", "SIGXCPU")  # the end of a process that has computed for too long
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMPDIR", "LANG")


class Decoder:
    """One helper process, started at the first image, and again after a crash. Threads may share it."""

    def __init__(self, *, address_space: int = 2 << 30) -> None:
        self._address_space = address_space
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._confinement = Confinement()
        if hasattr(os, "register_at_fork"):
            forget = weakref.WeakMethod(self._forget_after_fork)
            os.register_at_fork(after_in_child=lambda: _call_if_alive(forget))

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        process = self._process
        return None if process is None else process.pid

    @property
    def confinement(self) -> Confinement:
        """What the helper has given up; it is started if there is none."""
        with self._lock:
            self._running(None)
            return self._confinement

    def decode(
        self, data: bytes, *, name: str, limits: ImageLimits, stop: StopQuestion | None = None
    ) -> Pixels:
        """The pixels (H W 3) of a file's bytes, or an ImageError that begins with `name`.

        StoppedError within a second after `stop` is true, also while other threads' images are decoded.
        """
        header = {"name": name, "limits": limits.as_dict()}
        with self._turn(stop, name):
            process = self._running(stop)
            _allow_cpu_seconds(process.pid, limits.cpu_seconds + 2)  # the helper's own alarm comes first
            try:
                with _watched(process, limits.seconds, stop) as watch:
                    send(_pipe(process.stdin), header, data)
                    reply = receive(_pipe(process.stdout), max_body_bytes=3 * limits.keep_pixels)
            except _LOST_HELPER:
                why = self._end_lost_helper(watch, limits)
                raise_if_stopped(lambda: watch.stopped, name)
                raise ImageError(f"{name}: {why}") from None
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

    @contextlib.contextmanager
    def _turn(self, stop: StopQuestion | None, name: str) -> Iterator[None]:
        """Hold the helper alone; while others hold it, ask whether to stop."""
        lock = self._lock
        raise_if_stopped(stop, name)
        while not lock.acquire(timeout=-1 if stop is None else _ASK_SECONDS):
            raise_if_stopped(stop, name)
        try:
            yield
        finally:
            lock.release()

    def _running(self, stop: StopQuestion | None) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        self._process, self._confinement = _start(self._address_space, stop)
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def _end_lost_helper(self, watch: _Watch, limits: ImageLimits) -> str:
        """Stop the helper, and return what happened in words."""
        process = self._process
        if watch.killed or process is None:
            self._stop()
            return f"took longer than {limits.seconds:g} s to decode and was stopped. {ADVICE}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        how = _describe_end(process.poll())
        self._stop()
        if how in _CPU_SIGNALS:
            return f"takes more than {limits.cpu_seconds:g} s of computing, so it is not taken. {ADVICE}"
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


def _start(address_space: int, stop: StopQuestion | None) -> tuple[subprocess.Popen[bytes], Confinement]:
    """A helper that waits for its first image, and what it has given up."""
    hide_process()  # from now on a stranger's bytes are decoded by a process of the same user
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
        with _watched(process, _START_SECONDS, stop) as watch:
            ready, _ = receive(_pipe(process.stdout), max_body_bytes=0)
        return process, Confinement(**ready["confinement"])
    except BaseException as error:
        process.kill()
        stderr = _pipe(process.stderr).read().decode("utf-8", "replace").strip()
        process.wait()
        _close_pipes(process)
        if not isinstance(error, _LOST_HELPER):
            raise
        raise_if_stopped(lambda: watch.stopped, "the helper process that decodes images")
        why = stderr.splitlines()[-1] if stderr else f"no answer ({_describe_end(process.returncode)})"
        raise AtlasError(f"the helper process that decodes images could not start: {why}.") from None


@dataclass
class _Watch:
    """Whether the watched process was killed, and whether because the caller asked to stop."""

    killed: bool = False
    stopped: bool = False


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes], seconds: float, stop: StopQuestion | None) -> Iterator[_Watch]:
    """Kill the process after so many seconds or at a stop: that ends a blocked read or write of its pipes."""
    watch, over = _Watch(), threading.Event()
    end = time.monotonic() + seconds

    def look() -> None:
        left = seconds
        while not over.wait(left if stop is None else min(left, _ASK_SECONDS)):
            left = end - time.monotonic()
            watch.stopped = stop is not None and stop()
            if watch.stopped or left <= 0:
                watch.killed = True
                process.kill()
                return

    thread = threading.Thread(target=look, name="decoder-watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _allow_cpu_seconds(pid: int, seconds: float) -> None:
    """Let a process compute for so many seconds more, even if it was taken over; later the kernel ends it.

    Only Linux limits another process. The helper cannot lift the limit: it may not make that system call.
    """
    if sys.platform != "linux":
        return
    import resource

    with contextlib.suppress(OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user and kernel mode
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        resource.prlimit(pid, resource.RLIMIT_CPU, (math.ceil(used + seconds), hard))


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
