"""One ONNX file that answers an image of any size, with everything but decoding inside.

    model = make_onnx(classifier)                    # or int8=True
    write_onnx(classifier, Path("folder"))           # model.onnx, and run.py with the lines that use it

Inputs and outputs:

    image           uint8 (H W 3): red, green, blue, upright
    probabilities   float32 (C): softmax(logits / temperature)
    answer          int64 (): the number of the likeliest class, −1 where it is none of the classes

Class names and provenance are in the file's metadata, as texts or JSON.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.exporting.classifier import Classifier, require_packages
from atlas_engine.exporting.onnx_graph import OPSET, OnnxGraph, add_preprocessing
from atlas_engine.exporting.onnx_int8 import quantise
from atlas_engine.files import atomic_write

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MODEL_FILE",
    "RUN_FILE",
    "assemble_onnx",
    "make_network_onnx",
    "make_onnx",
    "require_onnx",
    "write_onnx",
]

MODEL_FILE, RUN_FILE = "model.onnx", "run.py"
FORMAT = "atlas-classifier-1"
IMAGES, LOGITS = "atlas_images", "atlas_logits"  # between the parts of the graph
IR_VERSION = 10  # runtimes since 2024 read it

RUN_LINES = '''\
"""Says which class an image shows: python run.py photo.jpg. Needs onnxruntime, numpy and pillow."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
image = ImageOps.exif_transpose(Image.open(sys.argv[1])).convert("RGB")
probabilities, answer = session.run(None, {"image": np.asarray(image)})
print(classes[answer] if answer >= 0 else "none of these")
for best in probabilities.argsort()[::-1][:3]:
    print(f"{probabilities[best]:6.1%}  {classes[best]}")
'''


def require_onnx() -> None:
    """Raise an `ExportError` that says what to install unless ONNX files can be made."""
    require_packages("onnx", "onnxscript")


def write_onnx(classifier: Classifier, folder: Path, *, int8: bool = False) -> None:
    """Write model.onnx and run.py to a folder."""
    data = make_onnx(classifier, int8=int8).SerializeToString()
    with atomic_write(folder / MODEL_FILE) as part:
        part.write_bytes(data)
    (folder / RUN_FILE).write_text(RUN_LINES, encoding="utf-8")


def make_onnx(classifier: Classifier, *, int8: bool = False) -> onnx.ModelProto:
    """The classifier from image to answer; with `int8`, weights and products in eight bits."""
    network = make_network_onnx(classifier, images=IMAGES, logits=LOGITS).graph
    return assemble_onnx(classifier, quantise(network) if int8 else network, int8=int8)


def assemble_onnx(classifier: Classifier, network: onnx.GraphProto, *, int8: bool) -> onnx.ModelProto:
    """Preprocessing, the network (from IMAGES to LOGITS) and the outputs in one file, with its metadata."""
    from onnx import TensorProto, checker, helper

    before, after = OnnxGraph("atlas_before_"), OnnxGraph("atlas_after_")
    _add_input(before, classifier)
    _add_outputs(after, classifier)
    nodes = [*before.nodes, *network.node, *after.nodes]
    constants = [*before.constants, *network.initializer, *after.constants]
    graph = helper.make_graph(
        nodes,
        "atlas_classifier",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["height", "width", 3])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [len(classifier.classes)]),
            helper.make_tensor_value_info("answer", TensorProto.INT64, []),
        ],
        constants,
        doc_string="An image (height, width, 3) of uint8 in, class probabilities and the answer out.",
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="atlas-studio",
    )
    texts = {"format": FORMAT, "precision": "int8" if int8 else "float32", **classifier.describe_as_texts()}
    helper.set_model_props(model, texts)
    checker.check_model(model)
    return model


def make_network_onnx(
    classifier: Classifier, *, images: str, logits: str, temperature: float = 1.0
) -> onnx.ModelProto:
    """The network alone: normalised images (1 3 S S) to logits (1 C) over the temperature."""
    with torch.no_grad():
        classifier.network(classifier.example)  # the head is made now, and is a constant of the graph
    network = classifier.network if temperature == 1.0 else _WarmNetwork(classifier.network, temperature)
    with _quietly():
        program = torch.onnx.export(
            network,
            (classifier.example,),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=[images],
            output_names=[logits],
        )
    assert program is not None  # it is None where a file is written
    return program.model_proto


class _WarmNetwork(nn.Module):
    """A network whose logits are divided by a temperature."""

    def __init__(self, network: nn.Module, temperature: float) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature

    def forward(self, images: Tensor) -> Tensor:
        """Logits over the temperature, (N C)."""
        logits: Tensor = self.network(images)
        return logits / self.temperature


def _add_input(graph: OnnxGraph, classifier: Classifier) -> None:
    """From `image` to normalised images (1 3 S S), as `Backbone.as_input` computes them."""
    spec = classifier.backbone.preprocessing
    pixels = add_preprocessing(
        graph, "image", size=spec.size, resize=spec.resize, interpolation=spec.interpolation
    )
    share = graph.op("Div", pixels, graph.constant(255.0, np.float32))
    mean, std = (
        graph.constant(np.reshape(values, (3, 1, 1)), np.float32) for values in (spec.mean, spec.std)
    )
    normalised = graph.op("Div", graph.op("Sub", share, mean), std)
    graph.op("Unsqueeze", normalised, graph.constant(np.array([0]), np.int64), output=IMAGES)


def _add_outputs(graph: OnnxGraph, classifier: Classifier) -> None:
    """From logits (1 C) to `probabilities` and `answer`."""
    logits = graph.op("Squeeze", LOGITS, graph.constant(np.array([0]), np.int64))
    warm = graph.op("Div", logits, graph.constant(classifier.calibration.temperature, np.float32))
    probabilities = graph.op("Softmax", warm, axis=0, output="probabilities")
    likeliest = graph.op("ArgMax", probabilities, axis=0, keepdims=0)
    limit = classifier.calibration.reject_below
    unsure = graph.op(
        "Less",
        graph.op("ReduceMax", logits, keepdims=0),
        graph.constant(-np.inf if limit is None else limit, np.float32),
    )
    if NONE_OF_THESE in classifier.classes:  # a class of images that are none of the others
        number = graph.constant(classifier.classes.index(NONE_OF_THESE), np.int64)
        unsure = graph.op("Or", unsure, graph.op("Equal", likeliest, number))
    graph.op("Where", unsure, graph.constant(-1, np.int64), likeliest, output="answer")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep torch's exporter from printing its progress, and from warning of its own parts."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
