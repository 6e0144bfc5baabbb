"""Damage to files, drawn at random: flipped and inserted bytes, lost ends, other numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

_NUMBERS = (b"0", b"-1", b"7", b"2147483648", b"18446744073709551616", b"1e999", b"null", b'"x"', b"[]", b"true")
_WORDS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)


def damaged(data: bytes, random: np.random.Generator) -> bytes:
    """Return the bytes of a file with one kind of damage."""
    place = int(random.integers(min(len(data), int(random.choice([400, 4000, len(data)])))))
    damage = _DAMAGE[int(random.integers(len(_DAMAGE)))]
    return damage(data, place, random)


def _flipped(data: bytes, place: int, random: np.random.Generator) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << int(random.integers(8))]) + data[place + 1 :]


def _overwritten(data: bytes, place: int, random: np.random.Generator) -> bytes:
    count = int(random.integers(1, 9))
    return data[:place] + random.bytes(count) + data[place + count :]


def _inserted(data: bytes, place: int, random: np.random.Generator) -> bytes:
    return data[:place] + random.bytes(int(random.integers(1, 9))) + data[place:]


def _repeated(data: bytes, place: int, random: np.random.Generator) -> bytes:
    return data[: place + int(random.integers(1, 64))] + data[place:]


def _cut(data: bytes, place: int, random: np.random.Generator) -> bytes:
    return data[:place]


def _renumbered(data: bytes, place: int, random: np.random.Generator) -> bytes:
    """Replace a number of a text."""
    match = re.compile(rb"\d+").search(data, place)
    number = _NUMBERS[int(random.integers(len(_NUMBERS)))]
    return data if match is None else data[: match.start()] + number + data[match.end() :]


def _resized(data: bytes, place: int, random: np.random.Generator) -> bytes:
    """Replace a binary number, such as a size."""
    number = _WORDS[int(random.integers(len(_WORDS)))].to_bytes(8, "little")
    return data[:place] + number + data[place + 8 :]


_DAMAGE: tuple[Callable[[bytes, int, np.random.Generator], bytes], ...]
_DAMAGE = (_flipped, _overwritten, _inserted, _repeated, _cut, _renumbered, _resized)
