"""Compare int8 and float16 models node by node, because roundings in opposite directions add up in their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device
from packaged.comparing import difference_of

Array = NDArray[Any]

_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")
"""Operators whose integers may differ by one, because a quotient near a half may round either way."""

_QUANTIZED_LSTM = "DynamicQuantizeLSTM"


def with_float_states(model: ModelProto) -> ModelProto:
    """Return a model with LSTM of dequantised weights in place of DynamicQuantizeLSTM.

    onnxruntime rounds inputs and states of the latter to 8 bits in each step, dmlgpu does not.
    """
    known = {initializer.name: initializer for initializer in model.graph.initializer}
    known |= {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    nodes = [
        _with_floats(node, known, model) if node.op_type == _QUANTIZED_LSTM else node for node in list(model.graph.node)
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _with_floats(node: NodeProto, known: Mapping[str, Any], model: ModelProto) -> NodeProto:
    names = [*node.input, *[""] * 12][:12]
    weights = []
    for weight, scale in ((1, 8), (2, 10)):
        weights_, by, zero = (numpy_helper.to_array(known[names[name]]) for name in (weight, scale, scale + 1))
        entries = (len(weights_), 1, -1)
        floats = (weights_.astype(np.float32) - zero.reshape(entries)) * by.reshape(entries)
        weights.append(f"{names[weight]} as floats")
        turned = np.ascontiguousarray(floats.transpose(0, 2, 1), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(turned, weights[-1]))
    lstm = helper.make_node("LSTM", [names[0], *weights, *names[3:8]], list(node.output), name=node.name)
    lstm.attribute.extend(node.attribute)
    return lstm


def worst_node(model: ModelProto, inputs: Mapping[str, Array], device: Device) -> tuple[float, str]:
    """Return the largest difference of a node of the main graph, and its name.

    onnxruntime computes each node by itself, from what the device computed before it. Integers of roundings may be one
    apart.
    """
    opened = ModelProto()
    opened.CopyFrom(model)
    declared = {output.name for output in model.graph.output}
    computed = [node for node in model.graph.node if node.op_type != "Constant" and not _has_bodies(node)]
    names = [name for node in computed for name in node.output if name and name not in declared]
    opened.graph.output.extend(ValueInfoProto(name=name) for name in names)
    known = {initializer.name: numpy_helper.to_array(initializer) for initializer in model.graph.initializer} | dict(
        inputs
    )
    known |= {name: array for node in model.graph.node for name, array in _constant(node)}
    known |= load(opened, device).run(inputs)
    return max(
        (
            (difference, f"{node.op_type} {node.name!r}")
            for node in computed
            for difference in _apart(node, known, model)
        ),
        default=(0.0, ""),
    )


def _has_bodies(node: NodeProto) -> bool:
    return any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute)


def _constant(node: NodeProto) -> Iterator[tuple[str, Array]]:
    if node.op_type == "Constant":
        yield node.output[0], numpy_helper.to_array(node.attribute[0].t)


def _apart(node: NodeProto, known: Mapping[str, Array], model: ModelProto) -> Iterator[float]:
    """Return how far each output of a node is from what onnxruntime computes of the same inputs."""
    names = [name for name in node.output if name]
    expected = _alone(node, {name: known[name] for name in dict.fromkeys(node.input) if name}, names, model)
    for name, reference in zip(names, expected, strict=True):
        array = known[name]
        if node.op_type in _ROUNDING and array.dtype.kind in "iu" and array.shape == reference.shape:
            yield 0.0 if np.abs(array.astype(int) - reference.astype(int)).max(initial=0) <= 1 else float("inf")
        else:
            yield difference_of(array, reference)


def _alone(node: NodeProto, feeds: Mapping[str, Array], names: list[str], model: ModelProto) -> list[Array]:
    """Return what onnxruntime computes of a node by itself."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feed.dtype), feed.shape)
        for name, feed in feeds.items()
    ]
    graph = helper.make_graph([node], "node", inputs, [ValueInfoProto(name=name) for name in names])
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return onnxruntime_session(alone).run(names, dict(feeds))


def onnxruntime_session(model: ModelProto) -> onnxruntime.InferenceSession:
    """Return a model on onnxruntime's CPU provider."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
