"""Tensors made from sizes and numbers: ConstantOfShape, Range, EyeLike, and Trilu."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.frontends.onnx.expressions import broadcast_to, reshaped
from dmlgpu.frontends.onnx.node import Array, OnnxNode, checked_shape
from dmlgpu.frontends.onnx.registry import Steps, operator
from dmlgpu.frontends.onnx.tensor_proto import data_type_of
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml


@operator("ConstantOfShape", host=(0,))
def constant_of_shape(node: OnnxNode) -> OnnxValue:
    """Fill with one number."""
    shape = checked_shape(node, node.host_integers(0))
    attribute = node.attribute("value")
    value = (
        OnnxValue.of_array(np.zeros(1, np.float32)) if attribute is None else OnnxValue.of_tensor(attribute, str(node))
    )
    assert value.array is not None
    if 0 in shape:
        return OnnxValue(shape, value.data_type, value.coded, np.zeros(shape, value.data_type.numpy))
    number = value.array.reshape(-1)[0].item()
    filled = dml.fill_value_constant(node.builder, shape or (1,), value.data_type, number)
    return node.valued(filled, shape, coded=value.coded)


@operator("Range", host=lambda node: (0, 1, 2) if node.data_type(0).is_float else (2,))
def range_(node: OnnxNode) -> Steps | OnnxValue:
    """Fill with start, start + step, ... below a limit."""
    read = node.host_number if node.data_type(0).is_float else node.host_integer
    delta = read(2)
    if delta == 0:
        raise node.rejection("the step must not be 0")
    if any(node.value(index).array is None for index in (0, 1)):
        return _range_on_device(node, delta)
    start = read(0)
    return _sequence(node, _length(start, read(1), delta), delta, None if is_symbolic(start) else start)


def _range_on_device(node: OnnxNode, delta: float) -> Steps:
    """Compute a range whose start stays on the device: the host reads only the length, which selects the graph."""
    for index in (0, 1):
        node.check_rank(index, 0, 1)
        if math.prod(node.shape(index)) != 1:
            raise node.rejection(f"input {index} must have one element, got shape {list(node.shape(index))}")
    length = yield node.decided((0, 1), _length_of, delta)
    return _sequence(node, length, delta, None)


def _length_of(start: Array, limit: Array, delta: float) -> int:
    return _length(start.item(), limit.item(), delta)


def _length(start: float, limit: float, delta: float) -> int:
    return math.ceil(min(max((limit - start) / delta, 0), MAX_ELEMENTS + 1))


def _sequence(node: OnnxNode, length: int, delta: float, start: float | None) -> OnnxValue:
    """Return numbers with equal steps from a start on; if it is None, from the element of the first input on."""
    data_type = node.data_type(0)
    (count,) = checked_shape(node, (length,))
    if not count:
        return node.known(np.zeros(0, data_type.numpy))
    if start is not None:
        return node.valued(dml.fill_value_sequence(node.builder, (count,), data_type, start, delta))
    rest = dml.fill_value_sequence(node.builder, (count,), data_type, 0, delta)
    return node.valued(dml.add(rest, broadcast_to(reshaped(node.tensor(0), (1,)), (count,))))


@operator("EyeLike")
def eye_like(node: OnnxNode) -> OnnxValue:
    """Fill a diagonal of a matrix of zeros with ones."""
    shape = node.shape(0)
    if len(shape) != 2:
        raise node.rejection(f"input 0 must have 2 dimensions, got {list(shape)}")
    element = node.integer("dtype")
    like = node.value(0)
    data_type = data_type_of(element, str(node)) if element else like.data_type
    coded = (element if element == TensorProto.BOOL else 0) if element else like.coded
    diagonal = _bounded(node.integer("k"), shape[0], shape[1])
    result = directml.diagonal_matrix1(
        value=1,
        diagonal_fill_begin=diagonal,
        diagonal_fill_end=diagonal + 1,
        value_data_type=data_type,
        output_sizes=shape,
        graph=node.builder,
    )
    return node.valued(result, shape, coded=coded)


@operator("Trilu", since=14, host=(1,))
def triangle(node: OnnxNode) -> OnnxValue:
    """Keep one side of a diagonal and the diagonal itself; fill the rest with zeros."""
    shape = node.shape(0)
    if len(shape) < 2:
        raise node.rejection(f"input 0 must have at least 2 dimensions, got {list(shape)}")
    rows, columns = shape[-2:]
    diagonal = _bounded(node.host_integer(1) if node.has(1) else 0, rows, columns)
    begin, end = (-rows, diagonal) if node.flag("upper", True) else (diagonal + 1, columns)
    x = reshaped(node.tensor(0), (math.prod(shape[:-2]), rows, columns))
    if begin >= end:
        return node.valued(x, shape)
    result = directml.diagonal_matrix1(x, value=0, diagonal_fill_begin=begin, diagonal_fill_end=end)
    return node.valued(result, shape)


def _bounded(place: int, rows: int, columns: int) -> int:
    """Return the index of a diagonal, clamped to the first one outside the matrix."""
    return min(max(place, -rows), columns)
