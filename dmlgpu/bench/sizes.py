"""Sizes by name, as the command line and suites give them: ``m=64..4096``, ``k=n=128,256``, ``elements=4M``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from dmlgpu.errors import InvalidArgument

Sizes: TypeAlias = Mapping[str, int]

_NUMBER = re.compile(r"(?P<digits>[1-9][0-9]{0,11})(?P<unit>[KMG]?)")
_NAMES = re.compile(r"[a-z][a-z_]*(=[a-z][a-z_]*)*")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 1 << 40
MOST_COMBINATIONS = 1000
"""Of sizes, types, layouts that one word of the command line may stand for."""


def parse_sizes(texts: Iterable[str]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return names and the numbers that they take in turn; names that are tied by ``=`` take the same.

    Args:
        texts: each ``name=numbers`` or ``name=name=numbers``; numbers are separated by commas, ``a..b`` are a, 2a, 4a
            and so on up to b, and a number may end in K, M or G.

    Raises:
        InvalidArgument: a text that is malformed, or a name that is given twice.
    """
    found: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    for text in texts:
        names, _, numbers = text.rpartition("=")
        if not _NAMES.fullmatch(names):
            raise InvalidArgument(f"a size must be NAME=NUMBERS, such as m=64..4096 or m=k=n=512,1024, got {text!r}")
        tied = tuple(names.split("="))
        known = [name for earlier, _ in found for name in earlier]
        for number, name in enumerate(tied):
            if name in known or name in tied[:number]:
                raise InvalidArgument(f"the size {name!r} is given twice")
        found.append((tied, tuple(_numbers(text, numbers))))
    return found


def _numbers(text: str, numbers: str) -> Iterator[int]:
    for part in numbers.split(","):
        first, dots, last = part.partition("..")
        low, high = _number(text, first), _number(text, last) if dots else _number(text, first)
        if low > high:
            raise InvalidArgument(f"the range {part!r} of {text!r} must begin with the smaller number")
        while low <= high:
            yield low
            low *= 2


def _number(text: str, number: str) -> int:
    found = _NUMBER.fullmatch(number.strip().upper())
    value = int(found["digits"]) * _UNITS[found["unit"]] if found else 0
    if not 0 < value <= _MOST:
        raise InvalidArgument(
            f"a size must be a number from 1 on, such as 1000, 64K or 4M, a list 64,128 or a range 64..4096,"
            f" got {number!r} in {text!r}"
        )
    return value


def combinations(given: Sequence[tuple[tuple[str, ...], tuple[int, ...]]]) -> list[dict[str, int]]:
    """Return every combination of sizes, the last name changing fastest.

    Raises:
        InvalidArgument: more than ``MOST_COMBINATIONS``.
    """
    count = 1
    for _, numbers in given:
        count *= len(numbers)
    if count > MOST_COMBINATIONS:
        raise InvalidArgument(f"the sizes have {count:,} combinations; at most {MOST_COMBINATIONS:,} are measured")
    chosen = itertools.product(*(numbers for _, numbers in given))
    return [
        {name: number for (names, _), number in zip(given, values, strict=True) for name in names} for values in chosen
    ]


def sizes_text(sizes: Sizes) -> str:
    """Sizes as they are given: ``m=1024 k=1024``; whole multiples of 1,048,576 in M."""
    return " ".join(f"{name}={_short(size)}" for name, size in sizes.items())


def _short(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 and size % (1 << 20) == 0 else str(size)
