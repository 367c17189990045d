"""ONNX nodes that do what `data.preprocess.to_pixels` does, for images of any size, to the same bit.

    graph = OnnxGraph()
    pixels = add_preprocessing(graph, "image", size=224, resize="shortest", interpolation="bicubic")

torch resizes uint8 images as PIL does: along the width, then along the height, each time with weights that
are rounded to 16 bits and a result that is rounded to 8. Every output pixel is a weighted sum of K input
pixels ("taps"), so each pass is a product with a banded matrix, which the graph computes from the size of its
input. A weight of 16 bits is split into two parts, so that both products are exact in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlas_engine.errors import ConfigError

if TYPE_CHECKING:
    import onnx

__all__ = ["OPSET", "OnnxGraph", "add_preprocessing"]

OPSET = 18
CUBIC_A = -0.5  # of the cubic kernel that torch and PIL use where they antialias
RADII = {"bilinear": 1.0, "bicubic": 2.0}  # of the kernels, in output pixels
WEIGHT_BITS = 15  # of a weight's magnitude
MAX_PRECISION = 22  # of the fraction of a weight, in bits
LOW_PART = 256.0  # a weight is LOW_PART · high + low

Name = str
"""The name of a value in the graph."""


class OnnxGraph:
    """Nodes and constants as they are added; `op` and `constant` return the name of the new value."""

    def __init__(self, prefix: str = "atlas_") -> None:
        self.prefix = prefix  # of the names that are made up
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: NDArray[Any] | float, dtype: type[np.generic] = np.float64) -> Name:
        """A constant of that type."""
        from onnx import numpy_helper

        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def op(
        self, kind: str, *inputs: Name | float | NDArray[Any], output: Name = "", **attributes: object
    ) -> Name:
        """The output of a new node; numbers among the inputs become float64 constants."""
        from onnx import helper

        output = output or f"{self.prefix}value_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def as_double(self, value: Name) -> Name:
        """The value in float64."""
        from onnx import TensorProto

        return self.op("Cast", value, to=TensorProto.DOUBLE)

    def as_float(self, value: Name) -> Name:
        """The value in float32."""
        from onnx import TensorProto

        return self.op("Cast", value, to=TensorProto.FLOAT)

    def as_index(self, value: Name) -> Name:
        """The value in int64."""
        from onnx import TensorProto

        return self.op("Cast", value, to=TensorProto.INT64)

    def unsqueeze(self, value: Name, *axes: int) -> Name:
        """The value with axes of length 1 added."""
        return self.op("Unsqueeze", value, self.constant(np.array(axes), np.int64))

    def slice(self, value: Name, start: Name, end: Name, *, axis: int) -> Name:
        """value[start:end] along an axis; start and end are int64 scalars."""
        bounds = [self.unsqueeze(bound, 0) for bound in (start, end)]
        return self.op("Slice", value, *bounds, self.constant(np.array([axis]), np.int64))


def add_preprocessing(graph: OnnxGraph, image: Name, *, size: int, resize: str, interpolation: str) -> Name:
    """The pixels (3 S S) of an image (H W 3) uint8 after resize and crop, in float32 from 0 to 255."""
    if interpolation not in RADII:
        raise ConfigError(f"interpolation is '{interpolation}', and only {', '.join(RADII)} can be exported.")
    shape = graph.op("Shape", image)
    height, width = (
        graph.as_double(graph.op("Gather", shape, graph.constant(axis, np.int64))) for axis in (0, 1)
    )
    new_height, new_width = _scaled_size(graph, height, width, size=size, resize=resize)
    across = _resize_weights(graph, width, new_width, size=size, interpolation=interpolation)
    down = _resize_weights(graph, height, new_height, size=size, interpolation=interpolation)
    used = graph.slice(graph.slice(image, across.start, across.end, axis=1), down.start, down.end, axis=0)
    planes = graph.as_float(graph.op("Transpose", used, perm=[2, 0, 1]))  # (3 H W)
    narrow = _weighted_sums(graph, planes, across, from_left=False)  # (3 H S)
    return _weighted_sums(graph, narrow, down, from_left=True)  # (3 S S)


def _scaled_size(graph: OnnxGraph, height: Name, width: Name, *, size: int, resize: str) -> tuple[Name, Name]:
    """Height and width before the crop (`data.preprocess`): the shorter one is `size`, or both are."""
    if resize == "squash":
        return graph.constant(size), graph.constant(size)
    scale = graph.op("Div", size, graph.op("Min", height, width))
    new_height, new_width = (
        graph.op("Max", size, graph.op("Floor", graph.op("Mul", side, scale))) for side in (height, width)
    )
    return new_height, new_width


class _Weights(NamedTuple):
    """One pass: out = (LOW_PART · high + low) in[start:end] / unit, rounded. high and low are (S L)."""

    start: Name
    end: Name
    high: Name
    low: Name
    unit: Name


def _resize_weights(
    graph: OnnxGraph, length: Name, new_length: Name, *, size: int, interpolation: str
) -> _Weights:
    """The weights of a resize from `length` to `new_length` pixels, for the `size` pixels in the middle."""
    op = graph.op
    scale = op("Div", length, new_length)
    widening = op("Max", scale, 1.0)  # the kernel covers several input pixels where the image shrinks
    support = op("Mul", widening, RADII[interpolation])
    # the first and the last tap of every output pixel (O)
    centre = op("Mul", scale, op("Add", op("Range", 0.0, new_length, 1.0), 0.5))
    first = op("Max", op("Floor", op("Add", op("Sub", centre, support), 0.5)), 0.0)
    last = op("Min", op("Floor", op("Add", op("Add", centre, support), 0.5)), length)
    # the kernel at the taps (O K), normalised to sum 1
    count = op("Add", op("Mul", op("Ceil", support), 2.0), 1.0)
    taps = op("Range", 0.0, count, 1.0)
    offset = op("Add", op("Add", taps, graph.unsqueeze(op("Sub", first, centre), 1)), 0.5)
    distance = op("Abs", op("Mul", offset, op("Reciprocal", widening)))
    inside = op("Less", op("Add", taps, graph.unsqueeze(first, 1)), graph.unsqueeze(last, 1))
    kernel = op("Where", inside, _kernel(graph, distance, interpolation), 0.0)
    weights = op("Div", kernel, op("ReduceSum", kernel, graph.constant(np.array([1]), np.int64)))
    # rounded to integers, with as many bits of fraction as the largest weight leaves room for
    unit = _weight_unit(graph, op("ReduceMax", weights, keepdims=0))
    whole = op("Floor", op("Add", op("Mul", op("Abs", weights), unit), 0.5))
    signed = op("Mul", op("Sign", weights), whole)
    # the rows of the crop, as a matrix (S L) over the input pixels that they touch
    crop = graph.as_index(op("Round", op("Div", op("Sub", new_length, size), 2.0)))  # to even, as in Python
    crop_end = op("Add", crop, graph.constant(size, np.int64))
    rows, firsts = (graph.slice(value, crop, crop_end, axis=0) for value in (signed, first))
    start = op("ReduceMin", firsts, keepdims=0)
    touched = op("Add", op("Sub", op("ReduceMax", firsts, keepdims=0), start), count)
    columns = graph.as_index(op("Add", taps, graph.unsqueeze(op("Sub", firsts, start), 1)))
    shape = op(
        "Concat",
        graph.constant(np.array([size]), np.int64),
        graph.unsqueeze(graph.as_index(touched), 0),
        axis=0,
    )
    matrix = op("ScatterElements", op("Expand", 0.0, shape), columns, rows, axis=1)
    end = op("Min", op("Add", start, touched), length)
    matrix = graph.slice(matrix, graph.constant(0, np.int64), graph.as_index(op("Sub", end, start)), axis=1)
    # in two parts, whose sums over pixels stay below 2²⁴: exact in float32
    high = op("Round", op("Div", matrix, LOW_PART))
    low = op("Sub", matrix, op("Mul", high, LOW_PART))
    return _Weights(
        graph.as_index(start), graph.as_index(end), graph.as_float(high), graph.as_float(low), unit
    )


def _kernel(graph: OnnxGraph, distance: Name, interpolation: str) -> Name:
    """The triangle, or the cubic kernel of Keys with a = −1/2, at distances ≥ 0 in output pixels."""
    op = graph.op
    if interpolation == "bilinear":
        return op("Max", op("Sub", 1.0, distance), 0.0)
    near = op("Sub", op("Mul", distance, CUBIC_A + 2), CUBIC_A + 3)
    near = op("Add", op("Mul", op("Mul", near, distance), distance), 1.0)
    far = op("Add", op("Mul", op("Sub", distance, 5.0), distance), 8.0)
    far = op("Mul", op("Sub", op("Mul", far, distance), 4.0), CUBIC_A)
    beyond = op("Where", op("Less", distance, 2.0), far, 0.0)
    return op("Where", op("Less", distance, 1.0), near, beyond)


def _weight_unit(graph: OnnxGraph, largest: Name) -> Name:
    """2^p for the first p at which the largest weight in units of 2^−(p+1) would not fit WEIGHT_BITS."""
    doubled = 2.0 ** np.arange(1, MAX_PRECISION + 1)
    fits = graph.op("Less", graph.op("Add", graph.op("Mul", doubled, largest), 0.5), 2.0**WEIGHT_BITS)
    precision = graph.op("ReduceSum", graph.as_double(fits), keepdims=0)
    return graph.op("Pow", 2.0, precision)


def _weighted_sums(graph: OnnxGraph, planes: Name, weights: _Weights, *, from_left: bool) -> Name:
    """weights @ planes or planes @ weightsᵀ, rounded half up and cut to 0 … 255, in float32."""
    op = graph.op

    def multiply(part: Name) -> Name:
        if from_left:
            return graph.as_double(op("MatMul", part, planes))
        return graph.as_double(op("MatMul", planes, op("Transpose", part, perm=[1, 0])))

    total = op("Add", op("Mul", multiply(weights.high), LOW_PART), multiply(weights.low))
    rounded = op("Floor", op("Add", op("Div", total, weights.unit), 0.5))
    return graph.as_float(op("Clip", rounded, 0.0, 255.0))
