"""The kinds of values that fields and arguments take, and the conversion of what stands for one.

A converter returns the value as exactly its kind, an ``int`` for NumPy's integers, or raises ``WrongKind``. Whatever a
foreign object raises when it is asked for its value means that it is of the wrong kind.
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

Kind = TypeVar("Kind")
Member = TypeVar("Member", bound=IntEnum)
Flags = TypeVar("Flags", bound=IntFlag)

Converter = Callable[[Any], Kind]

UINT64_MAX = 2**64 - 1
"""The largest number that DirectML's structures hold."""

MOST_ENTRIES = 2**20
"""Most entries of a sequence; one that claims more, a ``range`` say, is refused before it is copied."""


class WrongKind(Exception):
    """A value is of the wrong kind; ``where`` is the part of the field, ``[1]`` or ``.scale``."""

    def __init__(self, expected: str, value: object, where: str = ""):
        self.expected, self.value, self.where = expected, value, where
        super().__init__(expected)

    def describe(self) -> str:
        """Return the end of the sentence that begins with the field's name."""
        return f"must be {self.expected}, got {shown(self.value, typed=True)}"


def argument(caller: str, name: str, convert: Converter[Kind], value: Any) -> Kind:
    """Return an argument as its kind.

    Raises:
        InvalidArgument: the value is of the wrong kind; names the caller and the argument.
    """
    try:
        return convert(value)
    except WrongKind as wrong:
        raise InvalidArgument(f"{caller}: {name}{wrong.where} {wrong.describe()}") from None


def as_index(value: Any) -> int | None:
    """Return the integer that a value stands for, of any size; None where it is none, as True and False are not."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except Exception:  # whatever a foreign __index__ raises
        return None


def integer(value: Any) -> int:
    """Take integers of up to 64 bits and a sign; no bool."""
    number = as_index(value)
    if number is None:
        raise WrongKind("an integer", value)
    if not -UINT64_MAX <= number <= UINT64_MAX:
        raise WrongKind("an integer of at most 64 bits", number)
    return number


def between(low: int, high: int) -> Converter[int]:
    """Take integers of a range; no bool."""

    def convert(value: Any) -> int:
        number = as_index(value)
        if number is None or not low <= number <= high:
            raise WrongKind(f"an integer between {low} and {high}", value)
        return number

    return convert


def real(value: Any) -> float:
    """Take real numbers in the range of a float, infinities and NaN; no bool."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise WrongKind("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise WrongKind("a number in the range of a float", value) from None
    except Exception:  # whatever a foreign __float__ raises
        raise WrongKind("a number", value) from None


def seconds(value: Any) -> float:
    """Take a time in seconds; infinity too, but not NaN, which no clock ever reaches."""
    number = real(value)
    if math.isnan(number):
        raise WrongKind("a number of seconds", number)
    return number


def number(value: Any) -> int | float:
    """Take what ``real`` takes; an integer stays one."""
    as_float = real(value)
    integral = as_index(value) if isinstance(value, numbers.Integral) else None
    return as_float if integral is None else integral


def boolean(value: Any) -> bool:
    """Take True and False, also NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise WrongKind("a bool", value)
    return bool(value)


def text(value: Any) -> str:
    """Take text that drivers and files can take: without lone surrogates, which UTF-8 cannot encode, and NUL."""
    if not isinstance(value, str):
        raise WrongKind("text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongKind("text without lone surrogates, which UTF-8 cannot encode", value) from None
    if "\0" in value:
        raise WrongKind("text without NUL", value)
    return value


def instance_of(cls: type[Kind], what: str) -> Converter[Kind]:
    """Take objects of a class."""

    def convert(value: Any) -> Kind:
        if not isinstance(value, cls):
            raise WrongKind(what, value)
        return value

    return convert


def member_of(cls: type[Member]) -> Converter[Member]:
    """Take members of an enumeration, also as their numbers."""
    expected = f"a member of {cls.__name__} ({', '.join(cls.__members__)})"

    def convert(value: Any) -> Member:
        if isinstance(value, cls):
            return value
        number = None if isinstance(value, IntEnum) else as_index(value)
        for member in cls:
            if member == number:
                return member
        raise WrongKind(expected, value)

    return convert


def flags_of(cls: type[Flags]) -> Converter[Flags]:
    """Take combinations of flags, also as their numbers."""
    expected = f"a combination of {cls.__name__} ({', '.join(cls.__members__)})"
    highest = sum(cls)

    def convert(value: Any) -> Flags:
        number = None if isinstance(value, IntEnum) else as_index(value)
        if number is None or not 0 <= number <= highest:
            raise WrongKind(expected, value)
        return cls(number)

    return convert


def optional(convert: Converter[Kind]) -> Converter[Kind | None]:
    """Take None too."""
    return lambda value: None if value is None else convert(value)


def tuple_of(convert: Converter[Kind], what: str) -> Converter[tuple[Kind, ...]]:
    """Take sequences and arrays whose entries are of a kind; ``what`` is what messages call these."""

    def convert_all(values: Any) -> tuple[Kind, ...]:
        if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
            raise WrongKind(f"a sequence of {what}", values)
        try:
            is_long = len(values) > MOST_ENTRIES
            entries = () if is_long else tuple(values)
        except Exception:  # a foreign sequence, or an array without dimensions
            raise WrongKind(f"a sequence of {what}", values) from None
        if is_long:
            raise WrongKind(f"a sequence of at most {MOST_ENTRIES:,} {what}", values)
        converted = []
        for index, value in enumerate(entries):
            try:
                converted.append(convert(value))
            except WrongKind as wrong:
                raise WrongKind(wrong.expected, wrong.value, f"[{index}]{wrong.where}") from None
        return tuple(converted)

    return convert_all


def mapping_of(convert: Converter[Kind], what: str) -> Converter[dict[str, Kind]]:
    """Take mappings of texts to values of a kind, as a dictionary of its own; ``what`` is what messages call these."""

    def convert_all(values: Any) -> dict[str, Kind]:
        if not isinstance(values, Mapping):
            raise WrongKind(f"a mapping of names to {what}", values)
        try:
            entries = tuple(values.items())
        except Exception:  # a foreign mapping
            raise WrongKind(f"a mapping of names to {what}", values) from None
        converted = {}
        for key, value in entries:
            try:
                converted[text(key)] = convert(value)
            except WrongKind as wrong:
                where = f"[{key!r:.40}]" if isinstance(key, str) else ""
                raise WrongKind(wrong.expected, wrong.value, f"{where}{wrong.where}") from None
        return converted

    return convert_all
