"""A decoding helper that a stranger has taken over: in place of decoding, it runs the attack that is sent.

It is started as the real helper is, by `data.sandbox`, with this module's `main` in the place of the helper's
own; all else is the real program. An attack is JSON [name, *arguments]; the answer is the sentence of an
ImageError, also JSON: {"got": ...} if the attack had success, {"refused": ...} if the system refused it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from atlas_engine.data import sandbox_worker
from atlas_engine.data.confinement import confine
from atlas_engine.errors import ImageError

LIBC = ctypes.CDLL(None, use_errno=True)


def main(address_space, layers=None):
    sandbox_worker.decode = obey
    if layers is not None:
        sandbox_worker.confine = partial(confine, **layers)
    sandbox_worker.main(address_space)


def obey(data, *, name, limits):
    attack, *arguments = json.loads(data)
    raise ImageError(json.dumps(attempt(attack, *arguments)))


def attempt(attack, *arguments):
    try:
        return {"got": ATTACKS[attack](*arguments)}
    except OSError as error:
        return {"refused": error.strerror or type(error).__name__}
    except (ImportError, RuntimeError, ValueError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def read_file(path):
    return Path(path).read_bytes()[:4000].decode("latin-1")


def write_file(path):
    Path(path).write_text("written by a stranger")
    return "written"


def read_memory_by_proc(pid, address, nbytes):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - as an attacker would
        memory.seek(address)
        return memory.read(nbytes).decode("latin-1")


def read_memory_by_call(pid, address, nbytes):
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(nbytes)
    here, there = Vector(ctypes.addressof(buffer), nbytes), Vector(address, nbytes)
    call(LIBC.process_vm_readv, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return buffer.raw.decode("latin-1")


def attach(pid):
    call(LIBC.ptrace, 0x4206, pid, None, None)  # PTRACE_SEIZE, which does not stop it
    return "attached"


def connect(kind, family, address):
    address = tuple(address) if isinstance(address, list) else address
    with socket.socket(getattr(socket, family), getattr(socket, kind)) as out:
        out.settimeout(3)
        out.connect(address)
        out.send(b"stolen")
    return "sent"


def run_program():
    return subprocess.run(["/bin/echo", "ran"], capture_output=True, text=True, check=True).stdout


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "forked"


def lift_limit():
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "lifted"


def run_machine_code():
    LIBC.mmap.restype = ctypes.c_void_p
    page = LIBC.mmap(
        None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0)
    )  # may be read, written and run
    if page in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "mapped"


def send_signal(pid):
    os.kill(pid, signal.SIGURG)  # ignored by default
    return "sent"


def list_variables():
    return dict(os.environ)


def list_open_files():
    """What each descriptor is, by its type in octal: 1 a pipe, 2 a device, 10 a file, 14 a socket."""
    return {number: stat_type for number in range(256) if (stat_type := file_type(number)) is not None}


def file_type(number):
    try:
        return oct(os.fstat(number).st_mode >> 12)
    except OSError as error:
        return None if error.errno == 9 else "unknown"


def compute(seconds):
    """Compute on, with every alarm and signal switched off that the system lets us switch off."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    for refused_or_not in (
        lambda: signal.signal(signal.SIGXCPU, signal.SIG_IGN),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU]),
        lambda: resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2),
    ):
        with contextlib.suppress(OSError, ValueError):
            refused_or_not()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "computed"


def import_module(name):
    return __import__(name).__name__


def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


ATTACKS = {
    name: function
    for name, function in list(vars().items())
    if callable(function) and getattr(function, "__module__", None) == __name__
}

if __name__ == "__main__":  # without any confinement, to show that the attacks are real
    print(json.dumps(attempt(*json.loads(sys.argv[1]))))  # noqa: T201
