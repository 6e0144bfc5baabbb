"""Numbers and enumerations as DxDispatch's format spells them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.dxdispatch.node import Node, listing, nearest, quoted

_SPECIAL = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}

E = TypeVar("E", bound=IntEnum)
F = TypeVar("F", bound=IntFlag)


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return smallest and largest value of an integer type."""
    if data_type.is_signed:
        return -(1 << data_type.bits - 1), (1 << data_type.bits - 1) - 1
    return 0, (1 << data_type.bits) - 1


def parse_float(node: Node) -> float:
    """Return a number, or "nan", "inf" or "-inf" in any case."""
    value = node.value
    if isinstance(value, str) and value.lower() in _SPECIAL:
        return _SPECIAL[value.lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.expected("a number or one of 'nan', 'inf', '-inf'")
    try:
        return float(value)
    except OverflowError as error:
        raise node.expected("a number within the range of a double") from error


def parse_scalar(node: Node, data_type: DataType) -> int | float:
    """One element: an integer within the type's range, or for floating types anything ``parse_float`` takes."""
    return parse_float(node) if data_type.is_float else node.integer(*integer_range(data_type))


def parse_array(node: Node, data_type: DataType) -> NDArray[Any]:
    """Return a one-dimensional array of elements; floats are rounded once, to infinity when too large."""
    values = node.array()
    plain = {int, float} if data_type.is_float else {int}
    if set(map(type, values)) <= plain:
        try:
            return _convert(values, data_type)
        except OverflowError:
            pass  # Some element is out of range: the slow way names it.
    return _convert([parse_scalar(element, data_type) for element in node.elements()], data_type)


def _convert(values: Any, data_type: DataType) -> NDArray[Any]:
    if data_type.is_float:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(data_type.numpy)
    array = np.array(values, data_type.numpy)
    if data_type.bits == 4 and array.size:
        low, high = integer_range(data_type)
        if array.min() < low or array.max() > high:
            raise OverflowError(f"outside {low} to {high}")
    return array


def parse_enum(node: Node, members: type[E], prefix: str) -> E:
    """Return an enumeration's value by its full name, ``prefix`` + name, or by its name alone.

    Args:
        node: a string.
        members: the enumeration.
        prefix: what DirectML puts in front of every name, ``"DML_REDUCE_FUNCTION_"``.
    """
    return members[_member_name(node, list(members.__members__), prefix)]


def parse_flags(node: Node, members: type[F], prefix: str) -> F:
    """One flag by name, or an array of names that are combined."""
    names = list(members.__members__)
    if isinstance(node.value, str):
        return members[_member_name(node, names, prefix)]
    if not isinstance(node.value, list | tuple):
        raise node.expected("a string or an array of strings")
    return members(sum({int(members[_member_name(element, names, prefix)]) for element in node.elements()}))


def _member_name(node: Node, names: list[str], prefix: str) -> str:
    name = node.string().removeprefix(prefix)
    if name not in names:
        suggestion = nearest(name, names) or f"; known are {listing(names)}"
        raise node.error(f"{quoted(node.value)} is not a value of {prefix.removesuffix('_')}{suggestion}")
    return name


def parse_data_type(node: Node) -> DataType:
    """Return a tensor data type, ``FLOAT32`` or ``DML_TENSOR_DATA_TYPE_FLOAT32``."""
    return parse_enum(node, DataType, "DML_TENSOR_DATA_TYPE_")


def optional(node: Node | None, parse: Callable[[Node], Any], default: Any = None) -> Any:
    """``parse(node)``, or ``default`` where the member is absent."""
    return default if node is None else parse(node)
