"""A weights file of any kind as names, shapes and tensors.

with open_checkpoint(path) as file:
    file.shapes["visual.proj"], file.read("visual.proj")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from atlas_engine.clip.checkpoints.torchfile import TorchFile
from atlas_engine.errors import ModelError

__all__ = ["ENDINGS", "Checkpoint", "Shapes", "open_checkpoint"]

ENDINGS = (".safetensors", ".pt", ".pth", ".bin")

Shapes = Mapping[str, tuple[int, ...]]


class Checkpoint(Protocol):
    """An open weights file."""

    @property
    def shapes(self) -> Shapes:
        """Every tensor's shape, by name."""
        ...

    @property
    def class_names(self) -> frozenset[str]:
        """The classes of the modules that are pickled in the file; empty if it holds tensors alone."""
        ...

    def read(self, name: str) -> Tensor:
        """One tensor on the CPU."""
        ...


@contextmanager
def open_checkpoint(path: Path | str) -> Iterator[Checkpoint]:
    """The weights file at `path`, open inside the `with`. Nothing that the file holds is run."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ModelError(f"{path} is not a weights file. Give one that ends in {', '.join(ENDINGS)}.")
    if not path.is_file():
        raise ModelError(f"{path} does not exist. Check the path.")
    if path.suffix == ".safetensors":
        with _open_safetensors(path) as file:
            yield _Safetensors(file)
    else:
        with TorchFile(path) as torch_file:
            yield torch_file


class _Safetensors:
    class_names: frozenset[str] = frozenset()

    def __init__(self, file: Any) -> None:  # noqa: ANN401 - safetensors has no types
        self._file = file
        names = file.keys()
        self.shapes: Shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


def _open_safetensors(path: Path) -> Any:  # noqa: ANN401 - safetensors has no types
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"{path.name} is damaged or no safetensors file: {reason}. Fetch or save it again."
        ) from error
