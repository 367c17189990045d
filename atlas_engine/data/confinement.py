"""What the decoding helper gives up before it sees a stranger's bytes: whoever takes it over gains nothing.

    hide_process()              # the parent: its memory and environment can no longer be read through /proc
    given_up = confine()        # the helper: Confinement(capabilities=True, landlock=7, seccomp=True, ...)

Linux offers the parts below, each since another version and not in every container. Each is taken where it is
offered, and none depends on another; the parent learns which took effect, and `atlas doctor` tells it.

    no new privileges   no program that the helper starts may gain rights
    capabilities        a helper that runs as root loses root's rights
    limits              no new open files, no new processes, no byte written to a file, no core file
    Landlock            no path can be opened, no TCP connection made, no other process inspected or signalled
    seccomp             only the system calls that decoding needs; all others fail with EPERM

Other systems offer none of this; there the limits on memory and time have to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Confinement", "confine", "hide_process"]


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """Which parts took effect; `landlock` is the version of its rules, 0 without it."""

    no_new_privileges: bool = False
    capabilities: bool = False
    limits: bool = False
    landlock: int = 0
    seccomp: bool = False

    @property
    def sealed(self) -> bool:
        """Whether files and the network are out of reach: seccomp alone, or Landlock with its TCP rules."""
        return self.seccomp or self.landlock >= _LANDLOCK_TCP

    def __str__(self) -> str:
        parts = {
            "seccomp": self.seccomp,
            f"Landlock {self.landlock}": self.landlock > 0,
            "no new privileges": self.no_new_privileges,
            "no capabilities": self.capabilities,
            "no new files or processes": self.limits,
        }
        return ", ".join(words for words, there in parts.items() if there) or "none"


def hide_process() -> bool:
    """Whether this process is now closed to others of its user: no /proc/PID/mem or environ, no debugger."""
    return _linux() and _prctl(_PR_SET_DUMPABLE, 0)


def confine(*, landlock: bool = True, seccomp: bool = True) -> Confinement:
    """Give up everything but reading and writing the pipes that are open already, for good.

    All modules that decoding needs have to be imported before. The two flags leave a part out, for the tests
    that hold each part alone.
    """
    if not _linux():
        return Confinement()
    import resource  # noqa: F401 - while paths can still be opened

    given_up = Confinement(
        no_new_privileges=_prctl(_PR_SET_NO_NEW_PRIVS, 1),
        capabilities=_drop_capabilities(),
        landlock=_restrict_paths() if landlock else 0,
        limits=_limit_counts(),
    )
    return dataclasses.replace(given_up, seccomp=seccomp and _allow_only_decoding())


def _linux() -> bool:
    return sys.platform.startswith("linux")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


def _prctl(option: int, value: int) -> bool:
    zero = ctypes.c_ulong(0)
    return bool(_libc().prctl(option, ctypes.c_ulong(value), zero, zero, zero) == 0)


# ---- capabilities and limits


def _drop_capabilities() -> bool:
    """Whether this process has none of root's rights left."""
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3 of the structure; this process
    return bool(_libc().capset(header, bytes(24)) == 0)


def _limit_counts() -> bool:
    """Whether this process can open no more files, start no processes, and write neither files nor cores."""
    import resource

    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
    with contextlib.suppress(ValueError, OSError):
        for limit in limits:
            resource.setrlimit(limit, (0, 0))
        return True
    return False


# ---- Landlock: rules on paths, TCP ports, signals and abstract sockets, of which we allow none

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # system calls, the same on every architecture
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_TCP = 4  # the first version with rules for TCP
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # version → how many rights on paths it knows


def _restrict_paths() -> int:
    """The version of Landlock that now denies this process every path, or 0."""
    libc = _libc()
    version = int(libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG))
    if version < 1:
        return 0
    rights = max(count for since, count in _LANDLOCK_RIGHTS.items() if since <= version)
    fields = [(1 << rights) - 1]  # every kind of access to paths
    if version >= _LANDLOCK_TCP:
        fields.append(0b11)  # TCP: bind, connect
    if version >= 6:
        fields.append(0b11)  # scope: abstract Unix sockets, signals
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return 0
    try:
        return version if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


# ---- seccomp: a small program that the kernel runs before each system call

# System calls that decoding needs: memory, the pipes, clocks and alarms, and the end. None concerns signals:
# whoever takes the helper over can neither ignore nor block the one that ends it for computing too long.
_ALLOWED = {
    "x86_64": {
        **{"read": 0, "write": 1, "close": 3, "lseek": 8, "munmap": 11, "brk": 12, "writev": 20},
        **{"sched_yield": 24, "mremap": 25, "madvise": 28, "setitimer": 38, "getpid": 39, "exit": 60},
        **{"gettimeofday": 96, "getrusage": 98, "gettid": 186, "futex": 202, "restart_syscall": 219},
        **{"clock_gettime": 228, "exit_group": 231, "getrandom": 318},
    },
    "aarch64": {
        **{"close": 57, "lseek": 62, "read": 63, "write": 64, "writev": 66, "exit": 93, "exit_group": 94},
        **{"futex": 98, "setitimer": 103, "clock_gettime": 113, "sched_yield": 124, "restart_syscall": 128},
        **{"getrusage": 165, "gettimeofday": 169, "getpid": 172, "gettid": 178, "brk": 214, "munmap": 215},
        **{"mremap": 216, "madvise": 233, "getrandom": 278},
    },
}
_MAPPING = {"x86_64": (9, 10), "aarch64": (222, 226)}  # mmap and mprotect: allowed without PROT_EXEC
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_PROT_EXEC = 4

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # operations of classic BPF
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32  # where the kernel puts them; the low half of the argument
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_SET_FILTER, _ALL_THREADS = 1, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _allow_only_decoding() -> bool:
    """Whether the kernel now refuses this process every system call that decoding does not need."""
    machine = platform.machine()
    if machine not in _ALLOWED or struct.calcsize("P") != 8:
        return False
    instructions = b"".join(_filter(machine))
    program = _Program(len(instructions) // 8, instructions)
    call: Callable[..., int] = _libc().syscall
    return call(_SECCOMP_CALL[machine], _SET_FILTER, _ALL_THREADS, ctypes.byref(program)) == 0


def _filter(machine: str) -> Iterator[bytes]:
    """The instructions: kill calls of another architecture, allow those listed, refuse the rest."""
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_JUMP_IF_EQUAL, _AUDIT_ARCH[machine], if_true=1)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    for number in _MAPPING[machine]:
        yield _instruction(_JUMP_IF_EQUAL, number, if_false=4)
        yield _instruction(_LOAD, _THIRD_ARGUMENT)  # the protection
        yield _instruction(_JUMP_IF_ANY_BIT, _PROT_EXEC, if_false=1)
        yield _instruction(_RETURN, _REFUSE)
        yield _instruction(_RETURN, _ALLOW)
    for number in _ALLOWED[machine].values():
        yield _instruction(_JUMP_IF_EQUAL, number, if_false=1)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _REFUSE)


def _instruction(operation: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
