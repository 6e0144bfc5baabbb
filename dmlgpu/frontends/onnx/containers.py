"""Sequences and optionals at the borders of a graph, which takes and returns only tensors."""

from __future__ import annotations

from onnx import NodeProto, TypeProto, helper

from dmlgpu.frontends.onnx.registry import mark_version
from dmlgpu.frontends.onnx.values import EmptyOptional, OnnxValue

_SEQUENCES_SINCE, _OPTIONALS_SINCE = 11, 15


def constructed(name: str, value: OnnxValue) -> tuple[NodeProto, dict[str, OnnxValue]]:
    """Return a node that constructs a sequence or an empty optional from tensors, and the tensors by name."""
    if isinstance(value, EmptyOptional):
        return empty_optional(name, value.type_proto.optional_type.elem_type), {}
    parts = {item_name(name, index): element for index, element in enumerate(value.parts)}
    return sequence_of(name, list(parts), value.element), parts


def item_name(name: str, index: int) -> str:
    """Return the name of an element of a sequence."""
    return f"{name}: element {index}"


def sequence_of(name: str, items: list[str], element: int) -> NodeProto:
    """Return a node that constructs a sequence of tensors of an ONNX type."""
    if items:
        node = helper.make_node("SequenceConstruct", items, [name])
    else:
        node = helper.make_node("SequenceEmpty", [], [name], dtype=element)
    mark_version(node, _SEQUENCES_SINCE)
    return node


def empty_optional(name: str, element_type: TypeProto) -> NodeProto:
    """Return a node that constructs an optional without an element of a type."""
    node = helper.make_node("Optional", [], [name], type=element_type)
    mark_version(node, _OPTIONALS_SINCE)
    return node
