"""Cast and CastLike."""

from __future__ import annotations

from onnx import TensorProto

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder.expression import Expression
from dmlgpu.enums import DataType
from dmlgpu.frontends.onnx.elements import data_type_of
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value


@operator("Cast")
def cast(node: Node) -> Value:
    """Convert elements."""
    element = node.integer("to")
    wanted = data_type_of(element, str(node))
    return _converted(node, wanted, element == TensorProto.BOOL)


@operator("CastLike")
def cast_like(node: Node) -> Value:
    """Convert elements to the type of another tensor."""
    return _converted(node, node.data_type(1), node.value(1).is_bool)


def _converted(node: Node, wanted: DataType, is_bool: bool) -> Value:
    given = node.value(0)
    found = node.tensor(0)
    if is_bool and not given.is_bool:
        found = as_truth(found)
    elif wanted is not given.data_type:
        if DataType.INT4 in (wanted, given.data_type) or DataType.UINT4 in (wanted, given.data_type):
            raise node.refusal("4-bit elements are quantised and dequantised, not cast")
        found = dml.cast(found, wanted)
    return node.valued(found, node.shape(0), is_bool=is_bool)


def as_truth(found: Expression) -> Expression:
    """Return 1 where an element is not 0, NaN included, of type UINT8."""
    zero = found.graph.constant([0], found.data_type).broadcast_to(found.sizes)
    return dml.logical_not(dml.equals(found, zero))
