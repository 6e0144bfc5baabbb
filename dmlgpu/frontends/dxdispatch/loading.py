"""Load a model from JSON: resources, dispatchables and commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmlgpu.catalog import FieldKind, operator
from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.common.memory import check_host_memory
from dmlgpu.frontends.dxdispatch.bindings import allow_points, lookup, parse_bindings
from dmlgpu.frontends.dxdispatch.files import IMAGE_SUFFIXES, FileAccess, MissingFile, check_writable
from dmlgpu.frontends.dxdispatch.json_node import (
    JsonNode,
    child_path,
    listing,
    optional,
    parse_flags,
    parse_json,
    quoted,
)
from dmlgpu.frontends.dxdispatch.model import (
    BindPoint,
    Command,
    Dispatch,
    Dispatchable,
    DxModel,
    GraphDispatchable,
    OnnxDispatch,
    OnnxDispatchable,
    OperatorDispatchable,
    Print,
    ShaderDispatchable,
    TableDispatch,
    WriteFile,
)
from dmlgpu.frontends.dxdispatch.onnx_models import OnnxOptions, of_file, parse_onnx, parse_onnx_dispatch
from dmlgpu.frontends.dxdispatch.operators import parse_operator
from dmlgpu.frontends.dxdispatch.resources import Resource, parse_resource
from dmlgpu.frontends.dxdispatch.serialized_graph import read_graph
from dmlgpu.frontends.dxdispatch.shaders import PORTING, parse_shader, parse_shader_dispatch, thread_groups


def load(
    model: Mapping[str, Any] | str | os.PathLike[str], *, allow_paths: bool = False, onnx: OnnxOptions | None = None
) -> DxModel:
    """Load and validate a model.

    Args:
        model: Path of a JSON file, or its content as a Python mapping; or the path of an ONNX file (``.onnx``), which
            stands for a model that dispatches it once with implicit bindings. Relative paths start in the folder of the
            model, or for a mapping in the current directory.
        allow_paths: Whether the model may read and write any regular file. By default, it may read files in its folder
            and below, and write into the output directory and below, after resolving symbolic links. If True, relative
            paths are also looked up in the current directory.
        onnx: Options of ONNX dispatchables, or None.

    Raises:
        ModelError: If the JSON is malformed (the message has line and column), the format is violated (it has the path
            of the key), or the model refers to a file that it must not read.
        MissingFile: If the model or a file that it refers to does not exist; also a FileNotFoundError.
    """
    options = OnnxOptions() if onnx is None else onnx
    if isinstance(model, Mapping):
        return _parse(JsonNode(model), FileAccess(Path(), allow_paths), None, options)
    source = Path(model)
    if source.suffix.lower() == ".onnx" and source.is_file():
        dispatchable = of_file(source, options)
        command = OnnxDispatch(dispatchable.name, {}, str(source))
        return DxModel(
            {}, {dispatchable.name: dispatchable}, (command,), FileAccess(source.parent, allow_paths), source
        )
    try:
        raw = source.read_bytes()
    except FileNotFoundError as error:
        raise MissingFile(str(source), "there is no such model file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(str(source), f"the model file cannot be read: {reason}") from error
    return _parse(JsonNode(parse_json(raw, str(source))), FileAccess(source.parent, allow_paths), source, options)


def _parse(root: JsonNode, access: FileAccess, source: Path | None, options: OnnxOptions) -> DxModel:
    root.allow(("$schema", "resources", "dispatchables", "commands"), "a model")
    resources = {
        name: parse_resource(name, node, access) for name, node in root.require("resources", "a model").items()
    }
    dispatchables = {
        name: parse_dispatchable(name, node, resources, access, options)
        for name, node in root.require("dispatchables", "a model").items()
    }
    commands = root.require("commands", "a model").elements()
    parsed = tuple(_command(node, resources, dispatchables, access) for node in commands)
    return DxModel(resources, dispatchables, parsed, access, source)


# -- commands -------------------------------------------------------------------------------------------------------


def _command(
    node: JsonNode, resources: Mapping[str, Resource], dispatchables: Mapping[str, Dispatchable], access: FileAccess
) -> Command:
    kind = node.require("type", "a command")
    match kind.string().lower():
        case "dispatch":
            return _dispatch(node, resources, dispatchables)
        case "print":
            return _print(node, resources)
        case "writefile":
            return _write_file(node, resources, access)
    raise kind.error(
        f"commands of type {quoted(kind.string())} are not supported, only 'dispatch', 'print' and 'writeFile'"
    )


def _dispatch(node: JsonNode, resources: Mapping[str, Resource], dispatchables: Mapping[str, Dispatchable]) -> Dispatch:
    node.allow(("type", "dispatchable", "bindings", "threadGroupCount"), "a dispatch command")
    dispatchable = lookup(node.require("dispatchable", "a dispatch command"), dispatchables, "dispatchable")
    if isinstance(dispatchable, ShaderDispatchable):
        return parse_shader_dispatch(node, dispatchable, resources)
    thread_groups(node.get("threadGroupCount"))  # only shaders have them; others ignore them
    if isinstance(dispatchable, OnnxDispatchable):
        return parse_onnx_dispatch(node, dispatchable, resources)
    bindings = node.require("bindings", "a dispatch command")
    subject = dispatchable.desc.operator if isinstance(dispatchable, OperatorDispatchable) else "the graph"
    allow_points(bindings, dispatchable.inputs + dispatchable.outputs, subject)
    inputs, outputs = (
        parse_bindings(bindings, bindings.path, points, resources, initial=False)
        for points in (dispatchable.inputs, dispatchable.outputs)
    )
    return TableDispatch(dispatchable.name, inputs, outputs, node.path)


def _print(node: JsonNode, resources: Mapping[str, Resource]) -> Print:
    node.allow(("type", "resource", "verbose"), "a print command")
    resource = lookup(node.require("resource", "a print command"), resources, "resource")
    return Print(resource.name, optional(node.get("verbose"), JsonNode.boolean, False), node.path)


def _write_file(node: JsonNode, resources: Mapping[str, Resource], access: FileAccess) -> WriteFile:
    node.allow(("type", "resource", "targetPath", "dimensions"), "a writeFile command")
    resource = lookup(node.require("resource", "a writeFile command"), resources, "resource")
    target = node.require("targetPath", "a writeFile command")
    file = Path(target.string())
    if not file.name:
        raise target.error("must name a file, got an empty path")
    climbs = not file.is_absolute() and os.path.normpath(file).split(os.sep)[0] == os.pardir
    if climbs and not access.everywhere:
        raise target.error(f"must lie below the output directory, got {quoted(target.string())}")
    is_image = file.suffix.lower() in IMAGE_SUFFIXES
    dimensions = _dimensions(node.get("dimensions"), resource, in_part=is_image)
    if is_image:
        check_writable(target, resource, dimensions)
    return WriteFile(resource.name, file, dimensions, node.path)


def _dimensions(node: JsonNode | None, resource: Resource, *, in_part: bool) -> tuple[int, ...] | None:
    """Return the sizes to write a resource with; ``in_part``: its first elements will do, as for images."""
    sizes = () if node is None else node.integers(1)
    if not sizes or node is None:
        return None
    if resource.deferred:
        raise node.error(f"the deferred resource {quoted(resource.name)} has the sizes that the ONNX model gives it")
    count = 1
    for position, size in enumerate(sizes, start=1):
        count *= size
        too_few = position == len(sizes) and count < resource.element_count and not in_part
        if count > resource.element_count or too_few:
            got = count if position == len(sizes) else f"{count} or more"
            raise node.error(
                f"must multiply to the {resource.element_count} elements of {quoted(resource.name)}, got {got}"
            )
    return sizes


_OPERATOR_KEYS = ("executionFlags", "bindings", "dmlCompileType")
_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")


def parse_dispatchable(
    name: str, node: JsonNode, resources: Mapping[str, Resource], access: FileAccess, options: OnnxOptions
) -> Dispatchable:
    """Return a member of ``dispatchables``."""
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


def _operator(name: str, node: JsonNode, resources: Mapping[str, Resource]) -> OperatorDispatchable:
    desc, fields = parse_operator(node, _OPERATOR_KEYS)
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


def _is_graph(node: JsonNode) -> bool:
    if node.string() not in _COMPILE_TYPES:
        raise node.error(f"must be {listing(_COMPILE_TYPES)}, got {quoted(node.string())}")
    return node.value == "DmlCompileGraph"


def _flags(node: JsonNode) -> ExecutionFlags:
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


def _graph(name: str, node: JsonNode, access: FileAccess) -> GraphDispatchable:
    """Return a serialized graph, whose weights are files of the same folder, named after their constants."""
    node.allow(("type", "sourcePath", "executionFlags"), "a serialized graph")
    source = node.require("sourcePath", "a serialized graph")
    path = access.source(source)

    def weights(constant: str) -> bytes:
        return _file(access.source(JsonNode(str(path.parent / f"{constant}.bin"), f"{path.name}: weights")), source)

    serialized = read_graph(_file(path, source), path.name, weights)
    return GraphDispatchable(name, node.path, serialized.inputs, serialized.outputs, _flags(node), (), serialized.graph)


def _file(path: Path, source: JsonNode) -> bytes:
    check_host_memory(4 * path.stat().st_size, source.path, f"read {quoted(str(path))}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise source.error(f"cannot read {quoted(str(path))}: {error.strerror or error}") from error
