"""Readers of JSON fields that validate type and range.

A reader takes a JSON value and returns what it represents. For an invalid value it raises ValueError with the rest of a
sentence that begins with the name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.dxdispatch.json_node import shown

T = TypeVar("T")
Member = TypeVar("Member", bound=StrEnum)
Reader = Callable[[Any], T]

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_LARGEST_EXPONENT = 1100
"""Exceeds all binary exponents of float64, including subnormals."""


def read_fields(record: Any, readers: Mapping[str, Reader[Any]], *required: str) -> dict[str, Any]:
    """Read the fields of an object.

    Args:
        record: The object.
        readers: Reader of each field by name; others are not allowed.
        required: Names of required fields.

    Raises:
        ValueError: If a field is missing, unknown or malformed.
    """
    for name in mapping(record):
        if name not in readers:
            raise ValueError(f"{name!r} is unknown")
    return {**record, **read_known(record, readers, *required)}


def read_known(record: Any, readers: Mapping[str, Reader[Any]], *required: str) -> dict[str, Any]:
    """Read the known fields of an object; others may be anything.

    Raises:
        ValueError: If a field is missing or malformed.
    """
    for name in required:
        if name not in mapping(record):
            raise ValueError(f"{name!r} is missing")
    known = {}
    for name in sorted(readers.keys() & mapping(record).keys()):
        try:
            known[name] = readers[name](record[name])
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from error
    return known


def mapping(value: Any) -> Mapping[str, Any]:
    """Read an object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, got {shown(value)}")
    return value


def text(value: Any) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise ValueError(f"must be a string, got {shown(value)}")
    return value


def flag(value: Any) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


def count(value: Any) -> int:
    """Read a non-negative integer of at most 64 bits."""
    return _integer(value, 0)


def integer(value: Any) -> int:
    """Read an integer of at most 64 bits."""
    return _integer(value, -(2**63))


def _integer(value: Any, low: int) -> int:
    if type(value) is not int or not low <= value < 2**64:
        raise ValueError(f"must be an integer from {low} to {2**64 - 1}, got {shown(value)}")
    return value


def error(value: Any) -> float:
    """Read a non-negative number; infinity and NaN are written as text."""
    number = _NOT_FINITE.get(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
        raise ValueError(f"must be a number from 0 on, 'inf' or 'nan', got {shown(value)}")
    try:
        return float(number)
    except OverflowError as overflow:
        raise ValueError(f"must be in the range of float64, got {shown(value)}") from overflow


def seconds(value: Any) -> float:
    """Read a time in seconds, at most a thousand years."""
    number = error(value)
    if not number < 3e10:
        raise ValueError(f"must be a time in seconds, got {shown(value)}")
    return number


def member_of(members: type[Member]) -> Reader[Member]:
    """Read a member of a string enumeration."""

    def read(value: Any) -> Member:
        if value not in [str(member) for member in members]:
            raise ValueError(f"must be one of {', '.join(members)}, got {shown(value)}")
        return members(value)

    return read


def list_of(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Read an array."""

    def read_all(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be an array, got {shown(value)}")
        return tuple(map(read, value))

    return read_all


def mapping_of(read: Reader[T]) -> Reader[dict[str, T]]:
    """Read an object whose values have the same type."""
    return lambda value: {name: read(item) for name, item in mapping(value).items()}


def point(value: Any) -> tuple[float, float]:
    """Read a point of a curve: a binary exponent and an error that is not NaN."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"must hold pairs of an exponent and a distance, got {shown(value)}")
    exponent, distance = value[0], error(value[1])
    if type(exponent) not in (int, float) or not abs(exponent) <= _LARGEST_EXPONENT or math.isnan(distance):
        raise ValueError(f"must hold exponents up to {_LARGEST_EXPONENT} and distances, got {shown(exponent)}")
    return float(exponent), distance


ADAPTER: Mapping[str, Reader[Any]] = {
    **dict.fromkeys(("name", "backend", "kind", "vendor", "driver"), text),
    "features": list_of(text),
    "limits": mapping_of(integer),
}
"""Fields of an ``AdapterInfo``."""


def adapter(value: Any) -> dict[str, Any]:
    """Read the facts of an adapter, which remain JSON."""
    AdapterInfo(**read_fields(value, ADAPTER, *ADAPTER))
    return dict(value)
