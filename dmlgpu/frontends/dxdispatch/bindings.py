"""Bindings of a model: the bytes of resources for each tensor of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.dxdispatch.json_node import UINT64_MAX, JsonNode, child_path, listing, nearest, optional, quoted
from dmlgpu.frontends.dxdispatch.model import Bindings, BindPoint, BoundTensor
from dmlgpu.frontends.dxdispatch.resources import Resource

T = TypeVar("T")

# Operators and shaders use only the name and the elements; the shape is for ONNX models.
_KEYS = (
    "name",
    "elementOffset",
    "elementCount",
    "elementSizeInBytes",
    "elementStride",
    "format",
    "shape",
    "counter",
    "counterOffsetBytes",
)


def parse_bindings(
    node: JsonNode | None,
    parent_path: str,
    points: tuple[BindPoint, ...],
    resources: Mapping[str, Resource],
    *,
    initial: bool,
) -> Bindings:
    """Return the bindings in a ``bindings`` object, flattened.

    Args:
        node: The object, or None if the model has none.
        parent_path: Path of its parent.
        points: Bind points to look up.
        resources: Resources of the model.
        initial: Whether this is for initialization, which binds tensors with OWNED_BY_DML, or for a dispatch, which
            binds all others.
    """
    bound: list[BoundTensor | None] = []
    for point in points:
        path = child_path(parent_path, point.name)
        sources = _sources(node.get(point.name) if node is not None else None, path, point)
        for source, tensor in zip(sources, point.tensors, strict=True):
            bound.append(_bind(source, path, point.name, tensor, resources, initial=initial))
    return tuple(bound)


def allow_points(node: JsonNode | None, points: tuple[BindPoint, ...], operator: str) -> None:
    """Reject bindings to names that are not tensors of the operator."""
    names = [point.name for point in points]
    for name, member in node.items() if node is not None else ():
        if name not in names:
            suggestion = nearest(name, names) or f"; known are {listing(names)}"
            raise member.error(f"{operator} has no such tensor to bind here: {quoted(name)}{suggestion}")


def _sources(member: JsonNode | None, path: str, point: BindPoint) -> tuple[JsonNode | None, ...]:
    count = len(point.tensors)
    if member is None or member.value is None:
        return (None,) * count
    sources = member.elements() if isinstance(member.value, list | tuple) else (member,)
    if len(sources) != count:
        raise ModelError(
            path, f"{point.name} has {count} {'tensor' if count == 1 else 'tensors'}, got {len(sources)} resources"
        )
    return tuple(None if source.value is None else source for source in sources)


def _bind(
    source: JsonNode | None,
    path: str,
    name: str,
    tensor: TensorDesc | None,
    resources: Mapping[str, Resource],
    *,
    initial: bool,
) -> BoundTensor | None:
    is_bound = tensor is not None and tensor.owned_by_dml == initial
    if source is None:
        if not is_bound:
            return None
        when = " at initialization, as it has the flag OWNED_BY_DML" if initial else ""
        raise ModelError(path, f"{name} needs a resource{when}, but none is bound")
    if tensor is None:
        raise source.error(f"the description leaves out the optional tensor {name}, so nothing can be bound to it")
    if not is_bound and initial:
        raise source.error(f"{name} lacks the flag OWNED_BY_DML: the dispatch command binds it, not the dispatchable")
    if not is_bound:
        raise source.error(f"{name} has the flag OWNED_BY_DML: the dispatchable binds it, not the dispatch command")
    return _range(source, name, tensor, resources)


def _range(source: JsonNode, name: str, tensor: TensorDesc, resources: Mapping[str, Resource]) -> BoundTensor:
    """Return the range of a binding, by default from the start of the resource, with the size of the tensor."""
    if isinstance(source.value, str):
        resource, offset, size = lookup(source, resources, "resource"), 0, tensor.byte_size
    else:
        resource, offset, explicit_size = element_range(source, resources)
        size = explicit_size or tensor.byte_size
    if resource.deferred:
        raise source.error(f"the deferred resource {quoted(resource.name)} can only be an output of an ONNX model")
    if offset + size > resource.allocated_size:
        raise source.error(
            f"{name} needs {size} bytes from byte {offset} on, "
            f"but resource {quoted(resource.name)} has {resource.allocated_size} bytes"
        )
    if size < tensor.byte_size:
        raise source.error(f"gives {name} {size} bytes, but it takes {tensor.byte_size}")
    return BoundTensor(resource.name, offset, size, tensor)


def element_range(source: JsonNode, resources: Mapping[str, Resource]) -> tuple[Resource, int, int]:
    """Return resource, offset and size in bytes of the elements of a binding.

    Size 0 means that of the tensor or shader. Sizes are rounded up to 4 bytes, as for tensors and resources.
    """
    source.allow(_KEYS, "a binding")
    _check_ignored(source)
    resource = lookup(source.require("name", "a binding"), resources, "resource")
    first = optional(source.get("elementOffset"), _uint64, 0)
    count = optional(source.get("elementCount"), _uint64, 0)
    size_node = source.get("elementSizeInBytes") or source.get("elementStride")
    bits = 8 * optional(size_node, JsonNode.integer, 0) or resource.data_type.bits
    if not bits and (first or count):
        raise source.error(
            f"elementSizeInBytes must be given, as resource {quoted(resource.name)} holds mixed types"
            " and has no element size"
        )
    if first * bits % 8:
        raise source.error(f"elementOffset must be at a whole byte, got {first} elements of {bits} bits")
    return resource, first * bits // 8, -(-count * bits // 32) * 4


def _uint64(node: JsonNode) -> int:
    return node.integer(0, UINT64_MAX)


def _check_ignored(source: JsonNode) -> None:
    for key in ("format", "counter"):
        optional(source.get(key), JsonNode.string)
    optional(source.get("counterOffsetBytes"), _uint64)
    optional(source.get("shape"), JsonNode.integers)


def lookup(node: JsonNode, known: Mapping[str, T], what: str) -> T:
    """Return the entry of ``known`` that a string names."""
    name = node.string()
    if name not in known:
        raise node.error(f"the model has no {what} {quoted(name)}{nearest(name, list(known))}")
    return known[name]
