"""Tensors from sizes and numbers: ConstantOfShape, Range."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.frontends.onnx.node import Node, checked_shape
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml


@operator("ConstantOfShape")
def constant_of_shape(node: Node) -> Value:
    """One number everywhere."""
    shape = checked_shape(node, node.host_integers(0))
    given = node.attribute("value")
    value = Value.of_array(np.zeros(1, np.float32)) if given is None else Value.of_tensor(given, str(node))
    assert value.array is not None
    if 0 in shape:
        return node.known(np.zeros(shape, np.bool_ if value.is_bool else value.data_type.numpy))
    number = value.array.reshape(-1)[0].item()
    filled = dml.fill_value_constant(node.builder, shape or (1,), value.data_type, number)
    return node.valued(filled, shape, is_bool=value.is_bool)


@operator("Range")
def range_(node: Node) -> Value:
    """Numbers from a start on, by steps."""
    data_type = node.data_type(0)
    read = node.host_number if data_type.is_float else node.host_integer
    start, limit, delta = (read(number) for number in range(3))
    if delta == 0:
        raise node.refusal("the step must not be 0")
    steps = max((limit - start) / delta, 0)
    (count,) = checked_shape(node, (math.ceil(min(steps, MAX_ELEMENTS + 1)),))
    if not count:
        return node.known(np.zeros(0, data_type.numpy))
    return node.valued(dml.fill_value_sequence(node.builder, (count,), data_type, start, delta))
