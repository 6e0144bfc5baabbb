"""Dispatchables of a model: operators, serialised graphs, ONNX models, shaders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dmlgpu.catalog import FieldKind, operator
from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import OutOfMemory
from dmlgpu.common.memory import host_budget
from dmlgpu.frontends.dxdispatch.bindings import allow_points, parse_bindings
from dmlgpu.frontends.dxdispatch.model import BindPoint, Dispatchable, GraphDispatchable, OperatorDispatchable
from dmlgpu.frontends.dxdispatch.node import Node, child_path, listing, quoted
from dmlgpu.frontends.dxdispatch.onnx_models import OnnxOptions, parse_onnx
from dmlgpu.frontends.dxdispatch.operators import parse_operator
from dmlgpu.frontends.dxdispatch.paths import Access
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.frontends.dxdispatch.serialized_graph import read_graph
from dmlgpu.frontends.dxdispatch.shaders import PORTING, parse_shader
from dmlgpu.frontends.dxdispatch.values import optional, parse_flags

_KEYS = ("executionFlags", "bindings", "dmlCompileType")
_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")


def parse_dispatchable(
    name: str, node: Node, resources: Mapping[str, Resource], access: Access, options: OnnxOptions
) -> Dispatchable:
    """Return a member of ``dispatchables``.

    Raises:
        ModelError: naming the path of the offending key; for HLSL with how to port it.
        MissingFile: when a file that it refers to does not exist.
        OutOfMemory: when its files take more than ``memory.host_budget``.
    """
    kind = node.get("type") or node.get("Type") or node.require("type", "a dispatchable")
    match kind.string().lower():
        case "hlsl":
            raise kind.error(PORTING)
        case "wgsl":
            return parse_shader(name, node, access)
        case "onnx":
            return parse_onnx(name, node, access, options)
        case "dmlserializedgraph":
            return _graph(name, node, access)
    return _operator(name, node, resources)


def _operator(name: str, node: Node, resources: Mapping[str, Resource]) -> OperatorDispatchable:
    desc, fields = parse_operator(node, _KEYS)
    inputs, outputs = bind_points(desc)
    bindings = node.get("bindings")
    allow_points(bindings, inputs, desc.operator)
    return OperatorDispatchable(
        name=name,
        path=node.path,
        inputs=inputs,
        outputs=outputs,
        flags=_flags(node),
        initial_inputs=parse_bindings(bindings, child_path(node.path, "bindings"), inputs, resources, initial=True),
        desc=desc,
        fields=fields,
        as_graph=optional(node.get("dmlCompileType"), _is_graph, False),
    )


def _is_graph(node: Node) -> bool:
    if node.string() not in _COMPILE_TYPES:
        raise node.error(f"must be {listing(_COMPILE_TYPES)}, got {quoted(node.string())}")
    return node.value == "DmlCompileGraph"


def _flags(node: Node) -> ExecutionFlags:
    flags: ExecutionFlags = optional(
        node.get("executionFlags"),
        lambda at: parse_flags(at, ExecutionFlags, "DML_EXECUTION_FLAG_"),
        ExecutionFlags.NONE,
    )
    return flags


def bind_points(desc: OperatorDesc) -> tuple[tuple[BindPoint, ...], tuple[BindPoint, ...]]:
    """Return the input and the output fields of a description, in struct order."""
    points: dict[FieldKind, list[BindPoint]] = {FieldKind.INPUT: [], FieldKind.OUTPUT: []}
    for field in operator(desc.operator).tensor_fields:
        value = getattr(desc, field.python_name)
        points[field.kind].append(BindPoint(field.name, value if isinstance(value, tuple) else (value,)))
    return tuple(points[FieldKind.INPUT]), tuple(points[FieldKind.OUTPUT])


def _graph(name: str, node: Node, access: Access) -> GraphDispatchable:
    """Return a serialised graph; the files of its weights lie beside it, each named like its constant."""
    node.allow(("type", "sourcePath", "executionFlags"), "a serialised graph")
    source = node.require("sourcePath", "a serialised graph")
    path = access.source(source)

    def weights(constant: str) -> bytes:
        return _file(access.source(Node(str(path.parent / f"{constant}.bin"), f"{path.name}: weights")), source)

    found = read_graph(_file(path, source), path.name, weights)
    return GraphDispatchable(name, node.path, found.inputs, found.outputs, _flags(node), (), found.graph)


def _file(path: Path, source: Node) -> bytes:
    needed, budget = 4 * path.stat().st_size, host_budget()
    if budget is not None and needed > budget:
        raise OutOfMemory(
            f"{source.path}: {needed:,} bytes to read {quoted(str(path))} exceed the {budget:,} that may be used of "
            "the host's memory"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise source.error(f"cannot read {quoted(str(path))}: {error.strerror or error}") from error
