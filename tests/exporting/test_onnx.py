"""The ONNX file answers as the library does: the same pixels to the bit, the same probabilities."""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import atlas_engine as atlas
from atlas_engine.calibration import Calibration
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.exporting import onnx_int8
from atlas_engine.exporting.formats import expected_nbytes
from atlas_engine.exporting.onnx_graph import OPSET, OnnxGraph, add_preprocessing
from atlas_engine.exporting.onnx_model import IMAGES, LOGITS, assemble_onnx, make_network_onnx, make_onnx
from tests.engines import tiny_engine
from tests.exporting.models import CLASSES, make_recipe, small_bank

SAME_AS_TORCH = 1e-4  # of probabilities; sums in another order differ by far less


def run(model, image, *outputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(list(outputs) or None, {"image": image})


def noise(height, width, seed=0):
    """Noise of coarse and fine grain: both ends of what a resize has to do."""
    draw = np.random.default_rng(seed)
    coarse = np.kron(draw.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3)), np.ones((8, 8, 1)))
    fine = draw.integers(0, 256, (height, width, 3))
    return np.where(draw.random((height, 1, 1)) < 0.5, coarse[:height, :width], fine).astype(np.uint8)


# ---- resize and crop


def preprocessing_model(**spec):
    graph = OnnxGraph()
    output = add_preprocessing(graph, "image", **spec)
    made = helper.make_graph(
        graph.nodes,
        "preprocessing",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["H", "W", 3])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [3, spec["size"], spec["size"]])],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.fixture(
    scope="module",
    params=[
        {"size": 32, "resize": "shortest", "interpolation": "bicubic"},
        {"size": 224, "resize": "shortest", "interpolation": "bilinear"},
        {"size": 128, "resize": "squash", "interpolation": "bicubic"},
    ],
    ids=lambda spec: f"{spec['resize']}-{spec['interpolation']}-{spec['size']}",
)
def resized(request):
    return preprocessing_model(**request.param), request.param


@settings(max_examples=25, deadline=None, derandomize=True)
@given(height=st.integers(8, 500), width=st.integers(8, 500), seed=st.integers(0, 99))
def test_an_image_of_any_size_becomes_the_same_pixels_to_the_bit(resized, height, width, seed):
    session, spec = resized
    image = noise(height, width, seed)
    (pixels,) = session.run(None, {"image": image})
    assert np.array_equal(pixels, to_pixels(Image("noise", image), **spec).numpy())


@pytest.mark.parametrize("shape", [(8, 240), (240, 8), (32, 32), (33, 32), (1500, 2000)], ids=str)
def test_odd_shapes_become_the_same_pixels_too(resized, shape):
    session, spec = resized
    image = noise(*shape)
    (pixels,) = session.run(None, {"image": image})
    assert np.array_equal(pixels, to_pixels(Image("noise", image), **spec).numpy())


# ---- the whole file


def small_classifier(head="none", **more):
    return tiny_engine().classifier(make_recipe(head, **more), bank=small_bank())


@pytest.mark.parametrize("head", ["none", "tip", "linear-probe"])
def test_every_kind_of_head_gives_the_probabilities_of_the_library(head):
    recipe = make_recipe(head)
    images = [atlas.read_image(noise(60, 90, seed), name="noise") for seed in range(3)]
    wanted = tiny_engine().compare(images, recipe, bank=small_bank()).adapted.probs.numpy()
    model = make_onnx(tiny_engine().classifier(recipe, bank=small_bank()))
    for image, row in zip(images, wanted, strict=True):
        probabilities, answer = run(model, image.pixels)
        assert np.abs(probabilities - row).max() < SAME_AS_TORCH
        assert answer == row.argmax()


@pytest.fixture(scope="module")
def classifier():
    return small_classifier()


@pytest.fixture(scope="module")
def network(classifier):
    return make_network_onnx(classifier, images=IMAGES, logits=LOGITS).graph


def test_the_metadata_says_what_it_is_and_where_it_comes_from(classifier, network):
    model = assemble_onnx(classifier, network, int8=False)
    meta = {prop.key: prop.value for prop in model.metadata_props}
    assert tuple(json.loads(meta["classes"])) == CLASSES
    assert meta["model_fingerprint"] == classifier.recipe.model_fingerprint
    assert json.loads(meta["task_vectors"]) == list(small_bank().tasks)
    assert json.loads(meta["reject_below"]) is None
    shapes = [[dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]]
    assert shapes == [["height", "width", 3]]


def test_temperature_and_threshold_are_inside(classifier, network):
    image, spec = noise(40, 40), classifier.backbone.preprocessing
    pixels = to_pixels(Image("n", image), spec.size, resize=spec.resize, interpolation=spec.interpolation)
    with torch.no_grad():
        logits = classifier.network(classifier.backbone.as_input(pixels[None].float() / 255))[0]
    warm = (logits / 3.0).softmax(dim=0).numpy()
    largest = float(logits.max())
    for limit, wanted in ((largest - 0.1, warm.argmax()), (largest + 0.1, -1)):
        calibration = Calibration(3.0, limit, 0.9)
        recipe = dataclasses.replace(classifier.recipe, calibration=calibration)
        calibrated = dataclasses.replace(classifier, recipe=recipe)
        probabilities, answer = run(assemble_onnx(calibrated, network, int8=False), image)
        assert np.abs(probabilities - warm).max() < SAME_AS_TORCH
        assert answer == wanted


def test_a_class_of_negatives_is_none_of_these(classifier, network):
    image = noise(40, 40)
    (likeliest,) = run(assemble_onnx(classifier, network, int8=False), image, "answer")
    names = tuple(NONE_OF_THESE if number == likeliest else name for number, name in enumerate(CLASSES))
    renamed = dataclasses.replace(classifier, recipe=dataclasses.replace(classifier.recipe, classes=names))
    assert run(assemble_onnx(renamed, network, int8=False), image, "answer") == [-1]


# ---- eight bits


def test_weights_in_eight_bits_are_as_near_as_their_rounding_allows(monkeypatch):
    monkeypatch.setattr(onnx_int8, "MIN_WEIGHTS", 1000)
    draw = np.random.default_rng(0)
    weight, bias = draw.normal(size=(64, 32)).astype(np.float32), draw.normal(size=64).astype(np.float32)
    v, last = (draw.normal(size=size).astype(np.float32) for size in ((64, 40), (40, 50)))
    x = draw.normal(size=(5, 32)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["hidden"], transB=1),
        helper.make_node("MatMul", ["hidden", "v"], ["wide"]),
        helper.make_node("MatMul", ["wide", "u"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 50])],
        [onnx.numpy_helper.from_array(a, n) for n, a in (("w", weight), ("b", bias), ("v", v), ("u", last))],
    )
    made = onnx_int8.quantise(graph)
    kinds = [node.op_type for node in made.node]
    assert kinds.count("DequantizeLinear") == 2, "the last product stays as it is"
    assert {"w", "v"}.isdisjoint(tensor.name for tensor in made.initializer)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    wanted = (x @ weight.T + bias) @ v @ last
    # a weight is off by 1/254 of the largest of its 8 at most, and the errors do not add up
    assert 0 < np.abs(y - wanted).max() < 0.02 * np.abs(wanted).max()


# ---- the bundled model, as a user exports it


@pytest.fixture(scope="module")
def exported(engine, examples, tmp_path_factory):
    recipe = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    folder = tmp_path_factory.mktemp("exported") / "apples"
    return recipe, recipe.export(folder, engine=engine)


def test_the_exported_apples_answer_as_the_library_does(engine, exported, examples, capsys, monkeypatch):
    recipe, written = exported
    assert [name for name, _ in written.files] == ["model.onnx", "run.py"]
    told = expected_nbytes(engine.classifier(recipe), format="onnx")
    assert told == pytest.approx(written.nbytes, rel=0.1)
    files = sorted((examples / "apples" / "try").rglob("*.jpg"))
    wanted = engine.compare(files, recipe).adapted
    session = onnxruntime.InferenceSession(written.folder / "model.onnx")
    for file, row in zip(files, wanted.probs.numpy(), strict=True):
        image = atlas.read_image(file).pixels
        (probabilities,) = session.run(["probabilities"], {"image": image})
        assert np.abs(probabilities - row).max() < SAME_AS_TORCH
    # the ten lines beside it, run as they stand
    monkeypatch.chdir(written.folder)
    monkeypatch.setattr(sys, "argv", ["run.py", str(files[0])])
    runpy.run_path("run.py")
    first, *ranked = capsys.readouterr().out.splitlines()
    assert first == wanted.labels[0]
    assert ranked[0].split("%  ") == [f"{wanted.top(1)[0][0].prob:6.1%}"[:-1], first]
