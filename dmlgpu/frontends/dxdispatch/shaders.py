"""Compute shaders in a model: WGSL in place of DxDispatch's HLSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.dxdispatch.bindings import element_range, lookup
from dmlgpu.frontends.dxdispatch.files import FileAccess
from dmlgpu.frontends.dxdispatch.json_node import JsonNode, child_path, listing, nearest, optional, parse_float, quoted
from dmlgpu.frontends.dxdispatch.model import ShaderDispatch, ShaderDispatchable
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.runtime import shader_source
from dmlgpu.runtime.executor import Range

PORTING = (
    "HLSL is not supported: port the shader to WGSL (StructuredBuffer becomes var<storage, read>, RWStructuredBuffer "
    "var<storage, read_write>, cbuffer var<uniform>, numthreads @workgroup_size, -D an override), and give it as type "
    "'wgsl' with 'sourcePath', 'entryPoint' and 'constants'; the commands stay as they are"
)
"""Advice for models with HLSL shaders."""

_KEYS = ("type", "sourcePath", "entryPoint", "constants")

T = TypeVar("T")


def parse_shader(name: str, node: JsonNode, access: FileAccess) -> ShaderDispatchable:
    """Return a dispatchable of type ``wgsl``.

    Raises:
        ModelError: If a key, the file or a declaration in it is invalid.
        MissingFile: If there is no such file.
    """
    node.allow(_KEYS, "a WGSL dispatchable")
    source = node.require("sourcePath", "a WGSL dispatchable")
    path = access.source(source)
    if path.stat().st_size > shader_source.LONGEST:
        raise source.error(f"a shader must have at most {shader_source.LONGEST:,} bytes, {quoted(path.name)} has more")
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise source.error(f"cannot read {quoted(path.name)} as UTF-8 text: {error}") from error
    plain = shader_source.without_comments(text)
    try:
        bindings = shader_source.bindings(plain)
    except ValueError as error:
        raise ModelError(source.path, f"{path.name}: {error}") from error
    return ShaderDispatchable(
        name,
        node.path,
        text,
        _entry_point(node, source, shader_source.entry_points(plain)),
        _constants(node.get("constants"), shader_source.overrides(plain)),
        bindings,
    )


def _entry_point(node: JsonNode, source: JsonNode, known: Sequence[str]) -> str:
    """Return the entry point: the named one, or the only one."""
    named = node.get("entryPoint")
    if named is None and len(known) == 1:
        return known[0]
    if named is None:
        raise source.error(f"entryPoint must name a @compute function, since the shader has several: {listing(known)}")
    if named.string() not in known:
        raise named.error(f"the shader has no @compute function {quoted(named.string())}, it has {listing(known)}")
    return named.string()


def _constants(node: JsonNode | None, known: Sequence[str]) -> dict[str, float]:
    values = {}
    for name, member in node.items() if node is not None else ():
        if name not in known:
            suggestion = nearest(name, known) or f", it has {listing(known)}"
            raise member.error(f"the shader has no override {quoted(name)}{suggestion}")
        values[name] = float(member.value) if isinstance(member.value, bool) else parse_float(member)
    return values


def parse_shader_dispatch(
    node: JsonNode, shader: ShaderDispatchable, resources: Mapping[str, Resource]
) -> ShaderDispatch:
    """Return the command that runs a shader.

    Raises:
        ModelError: If a binding is missing, unknown, outside its resource, or written and read at once.
    """
    bindings = node.require("bindings", "a dispatch command")
    names = [binding.name for binding in shader.bindings]
    for name, member in bindings.items():
        if name not in names:
            suggestion = nearest(name, names) or f"; known are {listing(names)}"
            raise member.error(f"the shader has no such variable to bind here: {quoted(name)}{suggestion}")
    ranges: dict[int, Range[str]] = {}
    writers: dict[str, str] = {}
    for binding in shader.bindings:
        source = bindings.get(binding.name)
        if source is None:
            raise ModelError(
                child_path(bindings.path, binding.name), f"{binding.name} needs a resource, but none is bound"
            )
        ranges[binding.number] = _range(source, resources, whole=binding.kind == "uniform")
        if binding.kind == "storage":
            writers[ranges[binding.number].buffer] = binding.name
    for binding in shader.bindings:
        other = writers.get(ranges[binding.number].buffer, binding.name)
        if other != binding.name and binding.kind != "uniform":
            raise ModelError(
                child_path(bindings.path, binding.name),
                f"must be another resource than that of {other}, which the shader may write",
            )
    return ShaderDispatch(shader.name, ranges, thread_groups(node.get("threadGroupCount")), node.path)


def _range(member: JsonNode, resources: Mapping[str, Resource], *, whole: bool) -> Range[str]:
    """Return the byte range of a binding: the initial values of the resource, or all of it."""
    if isinstance(member.value, list | tuple):
        if len(member.value) != 1:
            raise member.error(f"must be one resource, got {len(member.value)}")
        (member,) = member.elements()
    if isinstance(member.value, str):
        resource, offset, size = lookup(member, resources, "resource"), 0, 0
    else:
        resource, offset, size = element_range(member, resources)
    if resource.deferred:
        raise member.error(f"the deferred resource {quoted(resource.name)} can only be an output of an ONNX model")
    end = resource.allocated_size if whole else -(-resource.extent // 4) * 4
    size = size or max(end - offset, 0)
    if not 0 < size <= resource.allocated_size - offset:
        raise member.error(
            f"must lie within the {resource.allocated_size} bytes of resource {quoted(resource.name)}, "
            f"got {size} bytes from byte {offset} on"
        )
    if offset % 4:
        raise member.error(f"must begin at a multiple of 4 bytes, got byte {offset}")
    return Range(resource.name, offset, size)


def thread_groups(node: JsonNode | None) -> tuple[int, int, int]:
    """Return ``threadGroupCount``: three integers of at least 1, by default [1, 1, 1]."""
    groups = (1, 1, 1) if node is None else optional(node, lambda at: at.integers(1))
    if len(groups) != 3 and node is not None:
        raise node.expected("three integers")
    x, y, z = groups
    return x, y, z
