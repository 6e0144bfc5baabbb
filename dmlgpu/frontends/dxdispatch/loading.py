"""From a model's JSON to a checked ``Model``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmlgpu.enums import ExecutionFlags
from dmlgpu.errors import ModelError
from dmlgpu.frontends.dxdispatch.bindings import allow_points, lookup, parse_bindings
from dmlgpu.frontends.dxdispatch.model import BindPoint, Command, Dispatch, Dispatchable, Model, Print, WriteFile
from dmlgpu.frontends.dxdispatch.node import Node, child_path, listing, quoted
from dmlgpu.frontends.dxdispatch.operators import parse_operator
from dmlgpu.frontends.dxdispatch.paths import Access, MissingFile
from dmlgpu.frontends.dxdispatch.resources import IMAGE_SUFFIXES, Resource, parse_resource
from dmlgpu.frontends.dxdispatch.text import parse_json
from dmlgpu.frontends.dxdispatch.values import optional, parse_flags
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.schema import FieldKind, operator

_FOREIGN = {"hlsl": "HLSL shaders", "onnx": "ONNX models", "dmlserializedgraph": "serialised DirectML graphs"}
_DISPATCHABLE_KEYS = ("executionFlags", "bindings", "dmlCompileType")


def load(model: Mapping[str, Any] | str | os.PathLike[str], *, allow_paths: bool = False) -> Model:
    """Read and check a model.

    Args:
        model: the path of a JSON file, or what such a file holds as a Python mapping. References to files start in
            the model's folder, for a mapping in the current directory.
        allow_paths: whether the model may read and write any regular file. Without it the model reads what lies in
            its folder and below, and writes into the output directory and below, symbolic links resolved. With it
            relative references are also looked up in the current directory.

    Raises:
        ModelError: for malformed JSON (with line and column) and for whatever the format does not allow (with
            the path of the offending key), also for a reference to a file that the model may not read.
        MissingFile: when the model or a file that it refers to does not exist; also a FileNotFoundError.
    """
    if isinstance(model, Mapping):
        return _parse(Node(model), Access(Path(), allow_paths), None)
    source = Path(model)
    try:
        raw = source.read_bytes()
    except FileNotFoundError as error:
        raise MissingFile(str(source), "there is no such model file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(str(source), f"the model file cannot be read: {reason}") from error
    return _parse(Node(parse_json(raw, str(source))), Access(source.parent, allow_paths), source)


def _parse(root: Node, access: Access, source: Path | None) -> Model:
    root.allow(("$schema", "resources", "dispatchables", "commands"), "a model")
    resources = {
        name: parse_resource(name, node, access) for name, node in root.require("resources", "a model").items()
    }
    dispatchables = {
        name: _dispatchable(name, node, resources) for name, node in root.require("dispatchables", "a model").items()
    }
    commands = root.require("commands", "a model").elements()
    parsed = tuple(_command(node, resources, dispatchables, access) for node in commands)
    return Model(resources, dispatchables, parsed, access, source)


# -- dispatchables --------------------------------------------------------------------------------------------------


def _dispatchable(name: str, node: Node, resources: Mapping[str, Resource]) -> Dispatchable:
    kind = node.get("type") or node.get("Type") or node.require("type", "a dispatchable")
    foreign = _FOREIGN.get(kind.string().lower())
    if foreign is not None:
        raise kind.error(
            f"dispatchables of type {quoted(kind.string())} ({foreign}) are not offered, only DirectML operators"
        )
    desc, fields = parse_operator(node, _DISPATCHABLE_KEYS)
    inputs, outputs = bind_points(desc)
    bindings = node.get("bindings")
    allow_points(bindings, inputs, desc.operator)
    _check_compile_type(node.get("dmlCompileType"))
    return Dispatchable(
        name=name,
        desc=desc,
        inputs=inputs,
        outputs=outputs,
        flags=optional(
            node.get("executionFlags"),
            lambda at: parse_flags(at, ExecutionFlags, "DML_EXECUTION_FLAG_"),
            ExecutionFlags.NONE,
        ),
        initial_inputs=parse_bindings(bindings, child_path(node.path, "bindings"), inputs, resources, initial=True),
        path=node.path,
        fields=fields,
    )


def _check_compile_type(node: Node | None) -> None:
    """Accept either way to compile: both give the same results."""
    known = ("DmlCompileOp", "DmlCompileGraph")
    if node is not None and node.string() not in known:
        raise node.error(f"must be {listing(known)}, got {quoted(node.string())}")


def bind_points(desc: OperatorDesc) -> tuple[tuple[BindPoint, ...], tuple[BindPoint, ...]]:
    """Return the input and the output fields of a description, in struct order."""
    points: dict[FieldKind, list[BindPoint]] = {FieldKind.INPUT: [], FieldKind.OUTPUT: []}
    for field in operator(desc.operator).tensor_fields:
        value = getattr(desc, field.python_name)
        points[field.kind].append(BindPoint(field.name, value if isinstance(value, tuple) else (value,)))
    return tuple(points[FieldKind.INPUT]), tuple(points[FieldKind.OUTPUT])


# -- commands -------------------------------------------------------------------------------------------------------


def _command(
    node: Node, resources: Mapping[str, Resource], dispatchables: Mapping[str, Dispatchable], access: Access
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
        f"commands of type {quoted(kind.string())} are not offered, only 'dispatch', 'print' and 'writeFile'"
    )


def _dispatch(node: Node, resources: Mapping[str, Resource], dispatchables: Mapping[str, Dispatchable]) -> Dispatch:
    node.allow(("type", "dispatchable", "bindings", "threadGroupCount"), "a dispatch command")
    _check_thread_groups(node.get("threadGroupCount"))
    dispatchable = lookup(node.require("dispatchable", "a dispatch command"), dispatchables, "dispatchable")
    bindings = node.require("bindings", "a dispatch command")
    allow_points(bindings, dispatchable.inputs + dispatchable.outputs, dispatchable.desc.operator)
    inputs, outputs = (
        parse_bindings(bindings, bindings.path, points, resources, initial=False)
        for points in (dispatchable.inputs, dispatchable.outputs)
    )
    return Dispatch(dispatchable.name, inputs, outputs, node.path)


def _check_thread_groups(node: Node | None) -> None:
    """Check thread groups, which are for HLSL: DirectML operators ignore them."""
    if node is not None and (len(node.integers(1)) != 3):
        raise node.expected("three integers")


def _print(node: Node, resources: Mapping[str, Resource]) -> Print:
    node.allow(("type", "resource", "verbose"), "a print command")
    resource = lookup(node.require("resource", "a print command"), resources, "resource")
    return Print(resource.name, optional(node.get("verbose"), Node.boolean, False), node.path)


def _write_file(node: Node, resources: Mapping[str, Resource], access: Access) -> WriteFile:
    node.allow(("type", "resource", "targetPath", "dimensions"), "a writeFile command")
    resource = lookup(node.require("resource", "a writeFile command"), resources, "resource")
    target = node.require("targetPath", "a writeFile command")
    file = Path(target.string())
    if file.suffix.lower() in IMAGE_SUFFIXES:
        raise target.error("images are not offered; write a .npy file")
    if not file.name:
        raise target.error("must name a file, got an empty path")
    climbs = not file.is_absolute() and os.path.normpath(file).split(os.sep)[0] == os.pardir
    if climbs and not access.everywhere:
        raise target.error(f"must lie below the output directory, got {quoted(target.string())}")
    return WriteFile(resource.name, file, _dimensions(node.get("dimensions"), resource), node.path)


def _dimensions(node: Node | None, resource: Resource) -> tuple[int, ...] | None:
    sizes = () if node is None else node.integers(1)
    if not sizes or node is None:
        return None
    count = 1
    for position, size in enumerate(sizes, start=1):
        count *= size
        if count > resource.element_count or (position == len(sizes) and count < resource.element_count):
            got = count if position == len(sizes) else f"{count} or more"
            raise node.error(
                f"must multiply to the {resource.element_count} elements of {quoted(resource.name)}, got {got}"
            )
    return sizes
