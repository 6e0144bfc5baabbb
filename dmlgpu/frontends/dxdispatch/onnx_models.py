"""ONNX models in a model: free dimensions, named and implicit bindings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common import coercion
from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.frontends.dxdispatch.bindings import element_range, lookup
from dmlgpu.frontends.dxdispatch.files import FileAccess
from dmlgpu.frontends.dxdispatch.json_node import UINT32_MAX, JsonNode, listing, nearest, optional, quoted
from dmlgpu.frontends.dxdispatch.model import BoundArray, OnnxDispatch, OnnxDispatchable
from dmlgpu.frontends.dxdispatch.resources import Resource

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.model import OnnxModel as Graph

_KEYS = (
    "type",
    "sourcePath",
    "freeDimensionNameOverrides",
    "freeDimensionDenotationOverrides",
    "sessionOptionsConfigEntries",
    "graphOptimizationLevel",
    "loggingLevel",
)


@dataclass(frozen=True)
class OnnxOptions:
    """The caller's options for ONNX dispatchables; they override the model.

    Attributes:
        name_overrides: Sizes of dimensions by name (``--onnx_free_dim_name_override``).
        denotation_overrides: Sizes of dimensions by denotation (``--onnx_free_dim_denotation_override``).
        shapes: Shapes of inputs and outputs, by the tensor's name (``--binding_shape``).

    Raises:
        InvalidArgument: If a field is not a mapping of names to sizes from 1 to 2^32 - 1.
    """

    name_overrides: Mapping[str, int] = field(default_factory=dict)
    denotation_overrides: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = coercion.between(1, UINT32_MAX)
        sizes = coercion.mapping_of(size, "sizes")
        shapes = coercion.mapping_of(coercion.tuple_of(size, "sizes"), "sequences of sizes")
        for name, convert in (("name_overrides", sizes), ("denotation_overrides", sizes), ("shapes", shapes)):
            object.__setattr__(self, name, coercion.argument("OnnxOptions", name, convert, getattr(self, name)))


def parse_onnx(name: str, node: JsonNode, access: FileAccess, options: OnnxOptions) -> OnnxDispatchable:
    """Return a dispatchable of type ``onnx``. ONNX Runtime's own options are checked for their kind, and ignored."""
    node.allow(_KEYS, "an ONNX dispatchable")
    sizes = _sizes(node.get("freeDimensionNameOverrides")) | dict(options.name_overrides)
    denoted = _sizes(node.get("freeDimensionDenotationOverrides")) | dict(options.denotation_overrides)
    for _, member in (node.get("sessionOptionsConfigEntries") or JsonNode({})).items():
        member.string()
    for key in ("graphOptimizationLevel", "loggingLevel"):
        optional(node.get(key), JsonNode.integer)
    source = node.require("sourcePath", "an ONNX dispatchable")
    return OnnxDispatchable(name, node.path, _read(access.source(source), source, sizes, denoted), options.shapes)


def of_file(source: Path, options: OnnxOptions) -> OnnxDispatchable:
    """Return an ONNX file as a dispatchable."""
    node = JsonNode(str(source), str(source))
    model = _read(source, node, options.name_overrides, options.denotation_overrides)
    return OnnxDispatchable(source.name, str(source), model, options.shapes)


def _sizes(node: JsonNode | None) -> dict[str, int]:
    return {name: member.integer(1, UINT32_MAX) for name, member in node.items()} if node is not None else {}


def _read(path: Path, source: JsonNode, sizes: Mapping[str, int], denoted: Mapping[str, int]) -> Graph:
    try:
        from dmlgpu.frontends.onnx.model import read  # noqa: PLC0415  an extra
    except ImportError as error:
        raise source.error(f"dispatchables of type 'onnx' need the extra `dmlgpu[onnx]`: {error}") from None
    try:
        return read(path, sizes=sizes, denoted=denoted)
    except ModelError as error:
        raise source.error(str(error)) from error
    except NotSupported as error:
        error.add_note(f"in {source.path}")
        raise


def parse_onnx_dispatch(node: JsonNode, onnx: OnnxDispatchable, resources: Mapping[str, Resource]) -> OnnxDispatch:
    """Return the command that runs an ONNX model; bindings may be missing, all of them too."""
    bindings = node.get("bindings") or JsonNode({}, node.path)
    inputs = [model_input.name for model_input in onnx.model.inputs]
    names = [*inputs, *onnx.model.outputs]
    tensors = {}
    for name, member in bindings.items():
        if name not in names:
            suggestion = nearest(name, names) or f"; known are {listing(names)}"
            raise member.error(f"the ONNX model has no such input or output: {quoted(name)}{suggestion}")
        tensors[name] = _bound(member, resources, is_input=name in inputs)
    return OnnxDispatch(onnx.name, tensors, node.path)


def _bound(member: JsonNode, resources: Mapping[str, Resource], *, is_input: bool) -> BoundArray:
    if isinstance(member.value, list | tuple):
        if len(member.value) != 1:
            raise member.error(f"tensors of ONNX models take one resource, got {len(member.value)}")
        (member,) = member.elements()
    shape = None
    if isinstance(member.value, str):
        resource = lookup(member, resources, "resource")
    else:
        shape = optional(member.get("shape"), _shape)
        if member.get("name") is None:
            member.allow(("shape",), "a binding of an ONNX model's tensor without a resource")
            return BoundArray(None, shape, member.path)
        resource, offset, _ = element_range(member, resources)
        if offset:
            raise member.error("elementOffset must be 0, as ONNX models take resources from their start")
    if resource.deferred and is_input:
        raise member.error(f"the deferred resource {quoted(resource.name)} can only be an output of an ONNX model")
    return BoundArray(resource.name, shape, member.path)


def _shape(node: JsonNode) -> tuple[int, ...] | None:
    sizes = node.integers()
    if len(sizes) > MAX_DIMENSIONS:
        raise node.expected(f"at most {MAX_DIMENSIONS} sizes")
    return sizes or None
