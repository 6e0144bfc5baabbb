"""What lies about the diagonals of matrices: EyeLike and Trilu."""

from __future__ import annotations

import math

from onnx import TensorProto

from dmlgpu.frontends.onnx.elements import data_type_of
from dmlgpu.frontends.onnx.node import Node, reshaped
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import functions


@operator("EyeLike")
def eye_like(node: Node) -> Value:
    """Ones on a diagonal of a matrix of zeros."""
    shape = node.shape(0)
    if len(shape) != 2:
        raise node.refusal(f"input 0 must have 2 dimensions, got {list(shape)}")
    element = node.integer("dtype")
    given = node.value(0)
    data_type = data_type_of(element, str(node)) if element else given.data_type
    is_bool = element == TensorProto.BOOL if element else given.is_bool
    place = _bounded(node.integer("k"), shape[0], shape[1])
    found = functions.diagonal_matrix1(
        value=1,
        diagonal_fill_begin=place,
        diagonal_fill_end=place + 1,
        value_data_type=data_type,
        output_sizes=shape,
        graph=node.builder,
    )
    return node.valued(found, shape, is_bool=is_bool)


@operator("Trilu", since=14)
def triangle(node: Node) -> Value:
    """Keep one side of a diagonal, that included; zeros elsewhere."""
    shape = node.shape(0)
    if len(shape) < 2:
        raise node.refusal(f"input 0 must have at least 2 dimensions, got {list(shape)}")
    rows, columns = shape[-2:]
    place = _bounded(node.host_integer(1) if node.has(1) else 0, rows, columns)
    begin, end = (-rows, place) if node.flag("upper", True) else (place + 1, columns)
    x = reshaped(node.tensor(0), (math.prod(shape[:-2]), rows, columns))
    if begin >= end:
        return node.valued(x, shape)
    found = functions.diagonal_matrix1(x, value=0, diagonal_fill_begin=begin, diagonal_fill_end=end)
    return node.valued(found, shape)


def _bounded(place: int, rows: int, columns: int) -> int:
    """Return the number of a diagonal, or that of the next one outside the matrix."""
    return min(max(place, -rows), columns)
