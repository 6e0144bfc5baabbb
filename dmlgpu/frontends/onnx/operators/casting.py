"""Cast, CastLike and BitCast."""

from __future__ import annotations

from onnx import TensorProto

from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.frontends.onnx.constants import same
from dmlgpu.frontends.onnx.elements import data_type_of
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


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
        found = converted(found, wanted)
    return node.valued(found, node.shape(0), is_bool=is_bool)


def converted(found: Expression, wanted: DataType) -> Expression:
    """Return elements in another type as CAST has it: floats are truncated and saturate, integers wrap.

    Elements of 4 bits, which CAST has not, are dequantised and quantised by a scale of 1; what becomes one wraps.
    """
    if found.data_type is wanted:
        return found
    if found.data_type.bits < 8:
        found = functions.dequantize(found, (_one(found),), quantization_type=QuantizationType.SCALE)
    if wanted.bits >= 8:
        return dml.cast(found, wanted)
    whole = dml.cast(found, DataType.INT32)
    low = -8 if wanted is DataType.INT4 else 0
    wrapped = dml.cast(dml.modulus_floor(whole + -low, same(whole, 16)) + low, DataType.FLOAT32)
    return functions.quantize(wrapped, (_one(wrapped),), quantization_type=QuantizationType.SCALE, output_type=wanted)


def _one(found: Expression) -> Expression:
    """Return a scale of 1 for all elements."""
    return found.graph.constant([1.0], DataType.FLOAT32).reinterpret((1,) * len(found.sizes))


def as_truth(found: Expression) -> Expression:
    """Return 1 where an element is not 0, NaN included, of type UINT8."""
    found = converted(found, DataType.FLOAT32) if found.data_type.bits < 8 else found
    return dml.logical_not(dml.equals(found, same(found, 0)))


@operator("BitCast")
def bit_cast(node: Node) -> Value:
    """See the bits as elements of another type of the same width."""
    element = node.integer("to")
    wanted = data_type_of(element, str(node))
    given = node.value(0)
    if wanted.bits != given.data_type.bits:
        raise node.refusal(f"a type of {given.data_type.bits} bits is needed, got {wanted.name}")
    found = node.tensor(0)
    if wanted.bits < 8:
        found = converted(found, wanted)  # which wraps: the bits stay
    elif wanted is not given.data_type:
        found = dml.identity(found).reinterpret(found.sizes, None, wanted)
    return node.valued(found, given.shape, is_bool=element == TensorProto.BOOL)
