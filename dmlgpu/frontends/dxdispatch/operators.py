"""Operator and tensor descriptions from their JSON form, by the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from dmlgpu.catalog import FieldSchema, OperatorSchema, catalog, descs, enums, operator
from dmlgpu.catalog.enums import DataType, TensorFlags, TensorType
from dmlgpu.catalog.model import class_name, to_directml
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc
from dmlgpu.common.errors import InvalidArgument, InvalidDescription, ModelError
from dmlgpu.frontends.dxdispatch.json_node import (
    UINT64_MAX,
    JsonNode,
    child_path,
    nearest,
    optional,
    parse_data_type,
    parse_enum,
    parse_flags,
    parse_float,
    parse_scalar,
    quoted,
)

_TENSOR_KEYS = (
    "DataType",
    "Flags",
    "DimensionCount",
    "Sizes",
    "Strides",
    "TotalTensorSizeInBytes",
    "GuaranteedBaseOffsetAlignment",
)
INT32_RANGE = (-(2**31), 2**31 - 1)

OPERATOR_PREFIX = "DML_OPERATOR_"


def parse_operator(
    node: JsonNode, own_keys: Collection[str] = (), *, fused: bool = False
) -> tuple[OperatorDesc, JsonNode]:
    """Return an operator description and the object that holds its fields.

    Both forms are read: ``{"type": T, "desc": {fields}}`` and ``{"type": T, fields}``; keys may begin with a capital.

    Args:
        node: The object.
        own_keys: Keys of the object that belong to its owner, a dispatchable.
        fused: Whether this is an activation fused into another operator, which has no tensors.
    """
    type_key = next((key for key in ("type", "Type") if key in node.mapping()), "type")
    schema = parse_operator_type(node.require(type_key, "an operator"))
    desc_key = next((key for key in ("desc", "Desc") if key in node.mapping()), None)
    if desc_key is not None:
        node.allow((type_key, desc_key, *own_keys), "an operator given by type and desc")
        fields, keys = node.require(desc_key, "an operator"), []
    else:
        fields, keys = node, [type_key, *own_keys]
    keys += [field.name for field in schema.fields if not (fused and field.is_tensor)]
    fields.allow(keys, f"{'a fused ' if fused else ''}{schema.name}")
    return _describe(schema, fields, fused), fields


def parse_operator_type(node: JsonNode) -> OperatorSchema:
    """Return the operator that a type names, with or without ``DML_OPERATOR_``."""
    name = node.string().removeprefix(OPERATOR_PREFIX)
    try:
        schema = operator(name)
    except InvalidArgument:
        schema = None
    if schema is None or name != name.upper():
        raise node.error(f"DirectML has no operator {quoted(name)}{nearest(name, list(catalog()))}")
    return schema


def _describe(schema: OperatorSchema, fields: JsonNode, fused: bool) -> OperatorDesc:
    values = {}
    for field in schema.python_fields:
        if fused and field.is_tensor:
            continue
        member = fields.get(field.name)
        if member is None or (member.value is None and field.optional):
            if not field.optional:
                raise ModelError(child_path(fields.path, field.name), f"{schema.name} needs the field {field.name!r}")
            continue
        if fused and field.type == "OPERATOR_DESC":
            raise member.error(f"{schema.name} is fused into an operator, so nothing can be fused into it")
        values[field.python_name] = (
            tuple(_parse_member(element, field, schema, fields) for element in member.elements())
            if field.is_array
            else _parse_member(member, field, schema, fields)
        )
    _check_counts(schema, fields)
    try:
        return descs.by_name(schema.name)(**values)
    except InvalidDescription as error:
        raise located(error, fields) from error


def located(error: InvalidDescription, fields: JsonNode) -> ModelError:
    """Convert an error about a description into an error about the model.

    Args:
        error: Names a field in Python, ``input_tensors[1].sizes[0]``.
        fields: The JSON object that holds the fields; the path is spelled as DirectML does and leads through the
            ``Desc`` of tensors that have one.
    """
    name, *rest = error.field.split(".")
    stem, bracket, index = name.partition("[")
    path, value = child_path(fields.path, to_directml(stem)), fields.mapping().get(to_directml(stem))
    if isinstance(value, list | tuple) and index.rstrip("]").isdecimal() and int(index.rstrip("]")) < len(value):
        value = value[int(index.rstrip("]"))]
    middle = "Desc." if rest and isinstance(value, Mapping) and "Desc" in value else ""
    below = ".".join(to_directml(part) for part in rest)
    return ModelError(f"{path}{bracket}{index}{'.' if rest else ''}{middle}{below}", str(error))


def _parse_member(member: JsonNode, field: FieldSchema, schema: OperatorSchema, fields: JsonNode) -> Any:
    if field.type == "SCALAR_UNION":
        return _scalar_union(member, schema, fields)
    parse = _PARSERS.get(field.type) or _enum_parser(field.type)
    return parse(member)


def _check_counts(schema: OperatorSchema, fields: JsonNode) -> None:
    """Check the optional counts of arrays against their lengths."""
    for field in schema.python_fields:
        if field.count_field is None or (count := fields.get(field.count_field)) is None:
            continue
        array = fields.get(field.name)
        length = 0 if array is None else len(array.array())
        if count.integer() != length:
            raise count.error(f"must be {length}, the length of {field.name!r}, got {count.value}")


# -- the kinds of field ---------------------------------------------------------------------------------------------


def parse_tensor(node: JsonNode) -> TensorDesc:
    """Return a tensor description: ``{"Type": "BUFFER", "Desc": {fields}}`` or the fields alone."""
    kind = optional(node.get("Type"), lambda at: parse_enum(at, TensorType, "DML_TENSOR_TYPE_"), TensorType.BUFFER)
    if kind is not TensorType.BUFFER:
        raise node.require("Type", "it").error(f"must be BUFFER, got {kind.name}")
    inner = node.get("Desc")
    node.allow((*_TENSOR_KEYS, "Type") if inner is None else ("Type", "Desc"), "a tensor description")
    inner = node if inner is None else inner
    if inner is not node:
        inner.allow(_TENSOR_KEYS, "a buffer tensor description")
    sizes_node = inner.require("Sizes", "a tensor description")
    if len(sizes_node.array()) > MAX_DIMENSIONS:
        raise sizes_node.error(f"must have at most {MAX_DIMENSIONS} entries, got {len(sizes_node.array())}")
    sizes = sizes_node.integers()
    count = inner.get("DimensionCount")
    if count is not None and count.integer() != len(sizes):
        raise count.error(f"must be {len(sizes)}, the length of 'Sizes', got {count.value}")
    return TensorDesc(
        data_type=parse_data_type(inner.require("DataType", "a tensor description")),
        sizes=sizes,
        strides=_strides(inner.get("Strides"), len(sizes)),
        flags=optional(
            inner.get("Flags"), lambda at: parse_flags(at, TensorFlags, "DML_TENSOR_FLAG_"), TensorFlags.NONE
        ),
        total_tensor_size_in_bytes=optional(inner.get("TotalTensorSizeInBytes"), lambda at: at.integer(0, UINT64_MAX))
        or None,
        guaranteed_base_offset_alignment=optional(inner.get("GuaranteedBaseOffsetAlignment"), JsonNode.integer, 0),
    )


def _strides(node: JsonNode | None, dimensions: int) -> tuple[int, ...] | None:
    """Return strides, or None for packed ones: absent, null or empty."""
    if node is None or node.value is None or not node.array():
        return None
    if len(node.array()) != dimensions:
        raise node.error(f"must have {dimensions} entries, the length of 'Sizes', got {len(node.array())}")
    return node.integers()


def _pair(cls: Any, name: str, keys: tuple[str, str], parse: Callable[[JsonNode], Any]) -> Callable[[JsonNode], Any]:
    """Return a parser of a structure of two numbers."""

    def parse_pair(node: JsonNode) -> Any:
        node.allow(keys, f"a {name}")
        return cls(*(parse(node.require(key, f"a {name}")) for key in keys))

    return parse_pair


def _scalar_union(node: JsonNode, schema: OperatorSchema, fields: JsonNode) -> int | float:
    """Parse a number, or an object with the union's member for the type: ``{"Int32": 5}``; FLOAT16 has its bits there.

    The data type is that of the operator's one field of this kind.
    """
    type_field = next(field.name for field in schema.fields if field.type == "DML_TENSOR_DATA_TYPE")
    data_type = parse_data_type(fields.require(type_field, schema.name))
    if data_type.bits < 8:
        raise fields.require(type_field, schema.name).error(f"{data_type.name} is not a type of scalars")
    if not isinstance(node.value, Mapping):
        return parse_scalar(node, data_type)
    if data_type is DataType.FLOAT16:
        node.allow(("UInt16",), "a DML_SCALAR_UNION that holds FLOAT16")
        bits = node.require("UInt16", "a DML_SCALAR_UNION that holds FLOAT16").integer(0, 2**16 - 1)
        return float(np.uint16(bits).view(np.float16))
    key = data_type.name.capitalize() if data_type.is_signed else f"UI{data_type.name[2:].lower()}"
    node.allow((key,), f"a DML_SCALAR_UNION that holds {data_type.name}")
    return parse_scalar(node.require(key, f"a DML_SCALAR_UNION that holds {data_type.name}"), data_type)


def _enum_parser(type_name: str) -> Callable[[JsonNode], Any]:
    members = getattr(enums, class_name(type_name.removeprefix("DML_")))
    return lambda node: parse_enum(node, members, f"{type_name}_")


_PARSERS: dict[str, Callable[[JsonNode], Any]] = {
    "TENSOR": parse_tensor,
    "UINT": JsonNode.integer,
    "INT": lambda node: node.integer(*INT32_RANGE),
    "FLOAT": parse_float,
    "BOOL": JsonNode.boolean,
    "SCALE_BIAS": _pair(ScaleBias, "DML_SCALE_BIAS", ("Scale", "Bias"), parse_float),
    "SIZE_2D": _pair(Size2D, "DML_SIZE_2D", ("Width", "Height"), JsonNode.integer),
    "OPERATOR_DESC": lambda node: parse_operator(node, fused=True)[0],
    "DML_TENSOR_DATA_TYPE": parse_data_type,
}
