"""Weights in eight bits in an ONNX graph: less than half of the size, and nearly the same answers.

    w = s · q        q in −127 … 127, one scale s (float16) for every 8 numbers of an output channel

Weights are stored as signed bytes and multiplied out when the file is loaded (ONNX's DequantizeLinear), so
activations and products stay in float32. Activations are not rounded, as dynamic quantisation would: the
margins between classes are too small for it. Small and grouped convolutions, which hold few weights and lose
most, and the last product, which gives the logits, stay as they are unless they are large. `atlas eval
exports` measures what is left of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atlas_engine.exporting.onnx_graph import OnnxGraph

if TYPE_CHECKING:
    import onnx

__all__ = ["quantise"]

GROUP = 8  # numbers that share a scale
LEVELS = 127
MIN_WEIGHTS = 60_000  # of a product that is rounded
MIN_LAST_WEIGHTS = 4_000_000  # of the last product: the head of thousands of classes


def quantise(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The graph with the weights of every large Gemm, MatMul and Conv in eight bits."""
    from onnx import GraphProto, numpy_helper

    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = [node.output[0] for node in graph.node if _channel_axis(node, weights, 1) is not None]
    result = GraphProto()
    result.CopyFrom(graph)
    del result.node[:], result.initializer[:]
    added, restored = OnnxGraph(prefix="atlas_int8_"), dict[str, str]()
    for node in graph.node:
        least = MIN_LAST_WEIGHTS if products and node.output[0] == products[-1] else MIN_WEIGHTS
        axis = _channel_axis(node, weights, least)
        copy = result.node.add()
        copy.CopyFrom(node)
        if axis is None:
            continue
        name = node.input[1]
        if name not in restored:
            restored[name] = _add_restored(added, numpy_helper.to_array(weights[name]), channel_axis=axis)
        copy.input[1] = restored[name]
    for node in reversed(added.nodes):
        result.node.insert(0, node)  # before all that use them
    still_used = {name for node in result.node for name in node.input}
    result.initializer.extend(tensor for tensor in graph.initializer if tensor.name in still_used)
    result.initializer.extend(added.constants)
    return result


def _channel_axis(node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto], least: int) -> int | None:
    """The axis of the weight that holds the output channels; None for a node that stays as it is."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[1] not in weights:
        return None
    shape = tuple(weights[node.input[1]].dims)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if np.prod(shape) < least or ("group" in attributes and attributes["group"].i != 1):
        return None
    if node.op_type == "MatMul":
        return 1 if len(shape) == 2 else None
    if node.op_type == "Conv":
        return 0
    return 0 if "transB" in attributes and attributes["transB"].i else 1


def _add_restored(graph: OnnxGraph, weight: NDArray[np.float32], *, channel_axis: int) -> str:
    """The name of the weight after rounding, as nodes make it from bytes and scales."""
    channels_first = np.moveaxis(weight, channel_axis, 0)
    per_channel = channels_first[0].size
    group = GROUP if per_channel % GROUP == 0 else per_channel
    rows = channels_first.reshape(-1, group)
    # scales are rounded first, upwards, and the bytes are those that suit the rounded ones
    wanted = np.maximum(np.abs(rows).max(axis=1) / LEVELS, np.finfo(np.float16).tiny)
    scales = wanted.astype(np.float16)
    scales = np.where(scales < wanted, np.nextafter(scales, np.float16(np.inf)), scales)
    stored = graph.constant(np.rint(rows / scales[:, None].astype(np.float32)), np.int8)
    wide_scales = graph.as_float(graph.constant(scales, np.float16))
    wide = graph.op("DequantizeLinear", stored, wide_scales, axis=0)
    shape = graph.constant(np.array(channels_first.shape), np.int64)
    restored = graph.op("Reshape", wide, shape)
    return restored if channel_axis == 0 else graph.op("Transpose", restored, perm=[1, 0])
