"""Nodes that read tensors without elements: their results have none either, or follow from nothing."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper

from dmlgpu.enums import DataType
from dmlgpu.frontends.onnx.elements import ELEMENT_TYPES
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensor import MAX_DIMENSIONS

_MOST_ELEMENTS = 4096
_MOST_RESULTS = 2**26
"""Beyond any result without elements, or computed from nothing, that a model means."""


def compute(node: Node) -> list[Value | None] | None:
    """Return the outputs of a node some of whose inputs are empty; None where its other inputs matter.

    The reference computes the shapes, with zeros in place of what only the device knows: its results count where they
    have no elements, or where nothing was replaced.
    """
    values = [one for one in node.inputs if one is not None]
    for one in values:
        if one.array is None and len(one.shape) <= 1 and one.data_type in (DataType.INT64, DataType.INT32):
            node.read(one)  # axes and sizes
    if any(one.array is None and not one.is_empty and int(np.prod(one.shape)) > _MOST_ELEMENTS for one in values):
        return None
    if any(map(_is_absurd, values)):
        raise node.refusal(f"sizes of at most {_MOST_RESULTS} elements together are computed from tensors without any")
    replaced = any(one.array is None and not one.is_empty for one in values)
    feeds = {
        name: np.zeros(value.shape, np.bool_ if value.is_bool else value.data_type.numpy)
        if value.array is None
        else value.host_array
        for name, value in zip(node.proto.input, node.inputs, strict=True)
        if value is not None
    }
    found = _reference(node, feeds)
    if found is None or (replaced and any(one.size for one in found)):
        return None
    return [node.known(one) for one in found]


def _is_absurd(value: Value) -> bool:
    """Return whether a few integers, as sizes or paddings, would make a result that no memory holds."""
    if value.array is None or value.data_type.is_float or not 0 < value.array.size <= 2 * MAX_DIMENSIONS:
        return False
    return math.prod(abs(int(one)) + 1 for one in value.array.reshape(-1)) > _MOST_RESULTS


def _reference(node: Node, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - slow to import, and few models need it

    inputs = [helper.make_tensor_value_info(name, _element(one), one.shape) for name, one in feeds.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.proto.output if name]
    graph = helper.make_graph([node.proto], "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.proto.domain, node.version)])
    try:
        return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, feeds)]
    except Exception:  # the reference knows no such case; the operator refuses it by name
        return None


def _element(array: np.ndarray) -> int:
    return TensorProto.BOOL if array.dtype == np.bool_ else ELEMENT_TYPES[DataType.from_numpy(array.dtype)]
