"""Descriptions as suites spell them: an operator's fields by their names in Python, tensors by their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dmlgpu import descs, enums
from dmlgpu.bench.workload import Contents
from dmlgpu.enums import DataType
from dmlgpu.errors import InvalidArgument
from dmlgpu.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.schema import FieldSchema, operator
from dmlgpu.schema.names import class_name
from dmlgpu.tensor import TensorDesc

_TENSOR_KEYS = ("sizes", "type", "strides")
_STRUCTURES = {"SIZE_2D": Size2D, "SCALE_BIAS": ScaleBias}


def described(name: str, given: Mapping[str, Any]) -> OperatorDesc:
    """Return an operator's description; fields that are left out have their defaults.

    Args:
        name: DirectML's name of the operator.
        given: values by the fields' names in Python. A tensor is a list of sizes, for packed float32, or a table
            ``{sizes = [4, 8], type = "int8", strides = [0, 1]}``; a value of an enumeration is its name.

    Raises:
        InvalidArgument: for a field that the operator does not have, a value that it cannot hold, a missing tensor.
    """
    known = {field.python_name: field for field in operator(name).python_fields}
    values = {}
    for key, value in given.items():
        if key not in known:
            raise InvalidArgument(f"{name} has no field {key!r}; its fields are {', '.join(known)}")
        where, field = f"{name}: desc.{key}", known[key]
        if not field.is_array:
            values[key] = _value(where, field, value)
        elif isinstance(value, list):
            values[key] = tuple(_value(where, field, one) for one in value)
        else:
            raise InvalidArgument(f"{where} must be a list, got {value!r}")
    missing = [key for key, field in known.items() if field.is_tensor and not field.optional and key not in given]
    if missing:
        raise InvalidArgument(f"{name}: desc must have {', '.join(missing)}")
    return descs.by_name(name)(**values)


def _value(where: str, field: FieldSchema, value: Any) -> Any:
    if field.is_tensor:
        return _tensor(where, value)
    if field.type in _STRUCTURES:
        return _structure(where, _STRUCTURES[field.type], value)
    if field.type == "OPERATOR_DESC":
        raise InvalidArgument(f"{where} holds operators, which a suite does not describe; a Python file can")
    if field.type.startswith("DML_"):
        is_type = field.type == "DML_TENSOR_DATA_TYPE"
        kind = DataType if is_type else getattr(enums, class_name(field.type.removeprefix("DML_")))
        members = kind.__members__
        if value not in members:
            raise InvalidArgument(f"{where} must be one of {', '.join(members)}, got {value!r}")
        return members[value]
    return value


def _tensor(where: str, value: Any) -> TensorDesc:
    table = {"sizes": value} if isinstance(value, list) else value
    if not isinstance(table, dict) or "sizes" not in table or not set(table) <= set(_TENSOR_KEYS):
        raise InvalidArgument(
            f"{where} must be a list of sizes, or a table of {', '.join(_TENSOR_KEYS)}, got {value!r}"
        )
    name = table.get("type", "float32")
    if not isinstance(name, str) or name.upper() not in DataType.__members__:
        raise InvalidArgument(f"{where}: type must be a data type such as float16, got {name!r}")
    strides = table.get("strides")
    return TensorDesc(DataType[name.upper()], tuple(table["sizes"]), None if strides is None else tuple(strides))


def _structure(where: str, kind: type[Any], value: Any) -> Any:
    names = [field.name for field in fields(kind)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidArgument(f"{where} must be a table of {', '.join(names)}, got {value!r}")
    return kind(**value)


def contents_of(where: str, given: Mapping[str, Any]) -> dict[int, Contents]:
    """Return what fills inputs, from tables by the inputs' numbers: ``{1 = {below = 512, distinct = true}}``.

    Raises:
        InvalidArgument: for a number that is none, and for keys that ``Contents`` does not have.
    """
    names = [field.name for field in fields(Contents)]
    found = {}
    for number, table in given.items():
        if not number.isdecimal() or not isinstance(table, dict) or not set(table) <= set(names):
            raise InvalidArgument(
                f"{where}: contents must hold tables of {', '.join(names)} by the inputs' numbers, got"
                f" {number} = {table!r}"
            )
        found[int(number)] = Contents(**table)
    return found
