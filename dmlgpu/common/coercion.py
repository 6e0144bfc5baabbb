"""Coercion of fields and arguments to their exact types, such as NumPy's integers to ``int``.

Converters raise ``CoercionError`` for other values, also if a conversion method of a foreign object raises.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

import numpy as np

from dmlgpu.common.errors import InvalidArgument, shown

Coerced = TypeVar("Coerced")
Member = TypeVar("Member", bound=IntEnum)
Flags = TypeVar("Flags", bound=IntFlag)

Converter = Callable[[Any], Coerced]

UINT64_MAX = 2**64 - 1
"""The largest number that DirectML's structures hold."""

MAX_ENTRIES = 2**20
"""Maximum length of a sequence; longer ones, a ``range`` for example, are rejected before they are copied."""


class Unread:
    """A number whose value coercion does not read, because reading it has an effect."""

    __slots__ = ()


class CoercionError(Exception):
    """A value has the wrong type or range; ``where`` is the part of the field, ``[1]`` or ``.scale``."""

    def __init__(self, expected: str, value: object, where: str = ""):
        self.expected, self.value, self.where = expected, value, where
        super().__init__(expected)

    def describe(self) -> str:
        """Return the end of the sentence that begins with the field's name."""
        return f"must be {self.expected}, got {shown(self.value, typed=True)}"


def argument(caller: str, name: str, convert: Converter[Coerced], value: Any) -> Coerced:
    """Return a coerced argument.

    Raises:
        InvalidArgument: If the value has the wrong type; names the caller and the argument.
    """
    try:
        return convert(value)
    except CoercionError as wrong:
        raise InvalidArgument(f"{caller}: {name}{wrong.where} {wrong.describe()}") from None


def as_index(value: Any) -> int | None:
    """Return a value as an integer of any size; None if it is not one, which includes True and False."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, Unread):
        return value if isinstance(value, numbers.Integral) else None  # type: ignore[return-value]
    try:
        return operator.index(value)
    except Exception:  # a foreign __index__ may raise any exception
        return None


def integer(value: Any) -> int:
    """Accept integers of up to 64 bits and a sign; no bool."""
    number = as_index(value)
    if number is None:
        raise CoercionError("an integer", value)
    if type(number) is int and not -UINT64_MAX <= number <= UINT64_MAX:  # not of sizes that cannot be read
        raise CoercionError("an integer of at most 64 bits", number)
    return number


def between(low: int, high: int) -> Converter[int]:
    """Accept integers of a range; no bool."""

    def convert(value: Any) -> int:
        number = as_index(value)
        if number is None or not low <= number <= high:
            raise CoercionError(f"an integer between {low} and {high}", value)
        return number

    return convert


def real(value: Any) -> float:
    """Accept real numbers in the range of a float, infinities and NaN; no bool."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise CoercionError("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise CoercionError("a number in the range of a float", value) from None
    except Exception:  # a foreign __float__ may raise any exception
        raise CoercionError("a number", value) from None


def entry(value: Any) -> float:
    """Accept the values of ``real``; numbers that are not read stay as they are."""
    return value if isinstance(value, Unread) and not isinstance(value, numbers.Integral) else real(value)  # type: ignore[return-value]


def seconds(value: Any) -> float:
    """Accept a time in seconds, including infinity, but not NaN."""
    number = real(value)
    if math.isnan(number):
        raise CoercionError("a number of seconds", number)
    return number


def number(value: Any) -> int | float:
    """Accept the values of ``real``; integers stay integers."""
    if isinstance(value, Unread) and isinstance(value, numbers.Integral):
        return value  # type: ignore[return-value]
    as_float = real(value)
    integral = as_index(value) if isinstance(value, numbers.Integral) else None
    return as_float if integral is None else integral


def boolean(value: Any) -> bool:
    """Accept True and False, also NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise CoercionError("a bool", value)
    return bool(value)


def text(value: Any) -> str:
    """Accept strings that drivers and files accept: without lone surrogates, which UTF-8 cannot encode, and NUL."""
    if not isinstance(value, str):
        raise CoercionError("text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CoercionError("text without lone surrogates, which UTF-8 cannot encode", value) from None
    if "\0" in value:
        raise CoercionError("text without NUL", value)
    return value


def instance_of(cls: type[Coerced], what: str) -> Converter[Coerced]:
    """Accept objects of a class."""

    def convert(value: Any) -> Coerced:
        if not isinstance(value, cls):
            raise CoercionError(what, value)
        return value

    return convert


def member_of(cls: type[Member]) -> Converter[Member]:
    """Accept members of an enumeration, also by value."""
    expected = f"a member of {cls.__name__} ({', '.join(cls.__members__)})"

    def convert(value: Any) -> Member:
        if isinstance(value, cls):
            return value
        number = None if isinstance(value, IntEnum) else as_index(value)
        for member in cls:
            if member == number:
                return member
        raise CoercionError(expected, value)

    return convert


def flags_of(cls: type[Flags]) -> Converter[Flags]:
    """Accept combinations of flags, also by value."""
    expected = f"a combination of {cls.__name__} ({', '.join(cls.__members__)})"
    highest = sum(cls)

    def convert(value: Any) -> Flags:
        number = None if isinstance(value, IntEnum) else as_index(value)
        if number is None or not 0 <= number <= highest:
            raise CoercionError(expected, value)
        return cls(number)

    return convert


def optional(convert: Converter[Coerced]) -> Converter[Coerced | None]:
    """Accept None in addition."""
    return lambda value: None if value is None else convert(value)


def tuple_of(convert: Converter[Coerced], what: str) -> Converter[tuple[Coerced, ...]]:
    """Accept sequences and arrays whose entries are of a kind; messages call the entries ``what``."""

    def convert_all(values: Any) -> tuple[Coerced, ...]:
        is_sequence = type(values) is tuple or isinstance(values, Sequence | np.ndarray)
        if not is_sequence or isinstance(values, str | bytes):
            raise CoercionError(f"a sequence of {what}", values)
        try:
            is_long = len(values) > MAX_ENTRIES
            entries = () if is_long else tuple(values)
        except Exception:  # a foreign sequence, or an array without dimensions
            raise CoercionError(f"a sequence of {what}", values) from None
        if is_long:
            raise CoercionError(f"a sequence of at most {MAX_ENTRIES:,} {what}", values)
        converted = []
        for index, value in enumerate(entries):
            try:
                converted.append(convert(value))
            except CoercionError as wrong:
                raise CoercionError(wrong.expected, wrong.value, f"[{index}]{wrong.where}") from None
        return tuple(converted)

    return convert_all


def mapping_of(convert: Converter[Coerced], what: str) -> Converter[dict[str, Coerced]]:
    """Return a converter that copies mappings of strings to values of a kind; messages call the values ``what``."""

    def convert_all(values: Any) -> dict[str, Coerced]:
        if not isinstance(values, Mapping):
            raise CoercionError(f"a mapping of names to {what}", values)
        try:
            entries = tuple(values.items())
        except Exception:  # a foreign mapping
            raise CoercionError(f"a mapping of names to {what}", values) from None
        converted = {}
        for key, value in entries:
            try:
                converted[text(key)] = convert(value)
            except CoercionError as wrong:
                where = f"[{key!r:.40}]" if isinstance(key, str) else ""
                raise CoercionError(wrong.expected, wrong.value, f"{where}{wrong.where}") from None
        return converted

    return convert_all
