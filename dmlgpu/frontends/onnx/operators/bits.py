"""BitShift."""

from __future__ import annotations

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.constants import same
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs.expression import Expression


@operator("BitShift")
def bit_shift(node: Node) -> Value:
    """Shift bits; signed elements keep their sign to the right, and a count outside the width shifts all bits out."""
    (a, b), shape = node.broadcast(node.value(0), node.value(1))
    signed = a.data_type
    unsigned = signed if signed.name.startswith("U") else DataType[f"U{signed.name}"]
    x, count = (one.reinterpret(one.sizes, one.desc.strides, unsigned) for one in (a, b))
    known = node.value(1).array
    in_range = known is not None and bool(((known >= 0) & (known < signed.bits)).all())

    def shifted(bits: Expression) -> Expression:
        shift = dml.bit_shift_left if node.text("direction") == "LEFT" else dml.bit_shift_right
        found = shift(bits, count)
        return found if in_range else dml.if_(count < signed.bits, found, same(bits, 0))

    if signed is unsigned or node.text("direction") == "LEFT":
        found = shifted(x)
    else:  # the complement of a negative number is shifted, and turned round again
        zero = same(a, 0)
        every = dml.if_(a < zero, same(a, -1), zero)
        every = every.reinterpret(every.sizes, every.desc.strides, unsigned)
        found = shifted(x ^ every) ^ every
    return node.valued(found.reinterpret(found.sizes, found.desc.strides, signed), shape)
