"""Sequences and optionals as containers of tensors, which are resolved during translation."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper

from dmlgpu.frontends.onnx.loops import NeedsBranch
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import Steps, mark_version, operator
from dmlgpu.frontends.onnx.symbolic import plain_array
from dmlgpu.frontends.onnx.tensor_proto import stored_type
from dmlgpu.frontends.onnx.values import Bounds, EmptyOptional, OnnxSequence, OnnxValue

MAX_ITEMS = 4096
"""Maximum number of tensors that one node splits a tensor into."""

_PLAIN = 13
"""Operator set version of the nodes that compute the results of container nodes."""


# ---- sequences -------------------------------------------------------------------------------------------------------


@operator("SequenceConstruct", of_containers=True)
def construct(node: OnnxNode) -> OnnxValue:
    """Return the inputs as a sequence."""
    items = [node.value(index) for index in range(len(node))]
    return _sequence(items, items[0])


@operator("SequenceEmpty", of_containers=True)
def empty(node: OnnxNode) -> OnnxValue:
    """Return a sequence without tensors."""
    element = node.integer("dtype", TensorProto.FLOAT)
    return OnnxSequence((), *stored_type(element, str(node)))


@operator("SequenceLength", of_containers=True)
def length(node: OnnxNode) -> OnnxValue:
    """Return the number of tensors."""
    return node.known(np.array(len(node.sequence(0).items), np.int64))


@operator("SequenceAt", host=(1,), of_containers=True)
def at(node: OnnxNode) -> OnnxValue:
    """Return the tensor at a position, which may count from the end."""
    items = node.sequence(0).items
    return items[_position(node, 1, len(items))]


@operator("SequenceErase", host=(1,), of_containers=True)
def erase(node: OnnxNode) -> OnnxValue:
    """Return a sequence without the tensor at a position, by default the last one."""
    sequence = node.sequence(0)
    items = list(sequence.items)
    del items[_position(node, 1, len(items))]
    return _sequence(items, sequence)


@operator("SequenceInsert", host=(2,), of_containers=True)
def insert(node: OnnxNode) -> OnnxValue:
    """Return a sequence with another tensor before a position, by default at the end."""
    sequence, tensor = node.sequence(0), node.value(1)
    if tensor.element != sequence.element:
        raise node.rejection(
            f"the tensor must be of the type of the sequence {sequence.type_name}, got {tensor.type_name}"
        )
    items = list(sequence.items)
    items.insert(_position(node, 2, len(items), may_be_end=True) if node.has(2) else len(items), tensor)
    return _sequence(items, sequence)


@operator("ConcatFromSequence", of_containers=True)
def concatenate(node: OnnxNode) -> Steps:
    """Join the tensors along an axis, or along a new one."""
    items = node.sequence(0).items
    if not items:
        raise node.rejection("the sequence must have tensors to join")
    rank = len(items[0].shape) + node.flag("new_axis")
    axis = node.axis(node.integer("axis"), rank)
    return (yield from joined(node, items, axis, is_new=node.flag("new_axis")))


@operator("SplitToSequence", host=(1,), of_containers=True)
def split(node: OnnxNode) -> Steps:
    """Split a tensor along an axis: into pieces of given sizes, of one size with a smaller last one, or of size 1."""
    tensor = node.value(0)
    axis = node.axis(node.integer("axis"), len(tensor.shape))
    size = int(tensor.shape[axis])
    sizes = [1] * size
    if node.has(1):
        node.check_rank(1, 0, 1)
        listed = [int(number) for number in plain_array(node.host(1)).reshape(-1)]
        is_chunk = not node.shape(1)
        if min(listed, default=0) < 0 or (is_chunk and listed[0] < 1) or (not is_chunk and sum(listed) != size):
            raise node.rejection(f"split must be a size of at least 1, or sizes that sum up to {size}, got {listed}")
        sizes = [min(listed[0], size - start) for start in range(0, size, listed[0])] if is_chunk else listed
    if len(sizes) > MAX_ITEMS:
        raise node.rejection(f"a tensor is split into at most {MAX_ITEMS} tensors, got {len(sizes)}")
    if not sizes:
        return _sequence([], tensor)
    names = [f"piece {index}" for index in range(len(sizes))]
    nodes = [_node("Split", ["tensor", "sizes"], names, axis=axis)]
    values = {"tensor": tensor, "sizes": node.known(np.array(sizes, np.int64))}
    if not node.has(1) and not node.flag("keepdims", True):
        values["axes"] = node.known(np.array([axis], np.int64))
        nodes += [_node("Squeeze", [name, "axes"], [f"{name} squeezed"]) for name in names]
        names = [f"{name} squeezed" for name in names]
    return _sequence((yield _computed(nodes, values, names)), tensor)


def joined(
    node: OnnxNode, items: Sequence[OnnxValue], axis: int, *, is_new: bool
) -> Generator[NeedsBranch, list[OnnxValue], list[OnnxValue]]:
    """Return tensors joined along an axis or a new one."""
    names = [f"item {index}" for index in range(len(items))]
    values, nodes = dict(zip(names, items, strict=True)), []
    if is_new:
        values["axes"] = node.known(np.array([axis], np.int64))
        nodes = [_node("Unsqueeze", [name, "axes"], [f"{name} unsqueezed"]) for name in names]
        names = [f"{name} unsqueezed" for name in names]
    nodes.append(_node("Concat", names, ["joined"], axis=axis))
    return (yield _computed(nodes, values, ["joined"]))


def _sequence(items: Sequence[OnnxValue], like: OnnxValue) -> OnnxSequence:
    """Return tensors as a sequence of the type of one of them, or of another sequence."""
    return OnnxSequence((), like.data_type, like.coded, items=tuple(items))


def _position(node: OnnxNode, index: int, count: int, *, may_be_end: bool = False) -> int:
    """Return an input that is a position among ``count``, the last one if it is absent."""
    position = plain_array(node.host(index)).reshape(-1) if node.has(index) else np.array([-1])
    if position.size != 1:
        raise node.rejection(f"the position must be one integer, got shape {list(node.shape(index))}")
    if not count and not may_be_end:
        raise node.rejection("the sequence has no tensors")
    Bounds(-count, count if may_be_end else count - 1, f"{node}: position").check(position)
    return int(position[0]) + (count if position[0] < 0 else 0)


def _node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """Return a node of tensors."""
    node = helper.make_node(op_type, inputs, outputs, **attributes)
    mark_version(node, _PLAIN)
    return node


def _computed(nodes: Sequence[NodeProto], values: Mapping[str, OnnxValue], outputs: Sequence[str]) -> NeedsBranch:
    """Return the request for values that nodes of tensors compute."""
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return NeedsBranch(helper.make_graph(nodes, "tensors", [], results), values=values)


# ---- optionals -------------------------------------------------------------------------------------------------------


@operator("Optional", of_containers=True)
def optional(node: OnnxNode) -> OnnxValue:
    """Return the input, or an optional without an element."""
    if node.has(0):
        return node.value(0)
    declared: TypeProto = node.attribute("type")
    if declared is None:
        raise node.rejection("an optional without an element must have the attribute type")
    return empty_optional(declared, str(node))


@operator("OptionalHasElement", of_containers=True)
def has_element(node: OnnxNode) -> OnnxValue:
    """Return whether there is an input, and it has an element."""
    return node.known(np.array(node.has(0) and not isinstance(node.value(0), EmptyOptional)))


@operator("OptionalGetElement", of_containers=True)
def get_element(node: OnnxNode) -> OnnxValue:
    """Return the element."""
    value = node.value(0)
    if isinstance(value, EmptyOptional):
        raise node.rejection("the optional has no element")
    return value


def empty_optional(element_type: TypeProto, what: str) -> EmptyOptional:
    """Return an optional without an element of a type."""
    of_sequence = element_type.WhichOneof("value") == "sequence_type"
    tensor = (element_type.sequence_type.elem_type if of_sequence else element_type).tensor_type
    return EmptyOptional((), *stored_type(tensor.elem_type, what), of_sequence=of_sequence)
