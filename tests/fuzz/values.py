"""Values that callers should not hand over, and some that they may."""

from __future__ import annotations

import enum
import fractions
import random
from typing import Any

import numpy as np

INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 64, 255, 256, 1000, 4096, 65535, 65536, 1000003)
"""Integers that are often allowed."""

HUGE = (
    *(2**bits + off for bits in (24, 31, 32, 53, 63, 64, 128) for off in (-1, 0, 1)),
    10**4400,
)
"""Integers that hardly ever are; the last has more digits than Python prints."""

FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-3, -7.25),
    *(5e-324, 1e-300, 1e-45, 1e-40, 1.1754944e-38, 6e-8, 65504.0, 65520.0, 3.4028235e38, 3.5e38, 1e300),
    *(float("inf"), float("-inf"), float("nan")),
)
"""Floats, the edges of types among them."""


class Color(enum.IntEnum):
    """An enumeration that dmlgpu does not know."""

    RED = 1


class Hostile:
    """An object that cannot be compared, hashed or measured."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __len__(self) -> int:
        raise RuntimeError("no length")


STRANGE: tuple[Any, ...] = (
    *(None, True, False, -1, 1.5, *FLOATS[-3:], 1 + 2j, *HUGE[3:], -(2**63), -(10**4400)),
    *("", "x", "\ud800", "\0", "x" * 100_000, "FLOAT32", "²", b"", b"\xff", bytearray(3), memoryview(b"abcd")),
    *([], (), {}, set(), [None], [[1]], ("a",), {"a": 1}, range(3), range(2**26), [1] * 10_000),
    *(object(), object, len, Hostile(), Color.RED, fractions.Fraction(1, 3)),
    *(
        np.float32(1),
        np.float64("nan"),
        np.int64(3),
        np.uint8(200),
        np.int8(-4),
        np.uint16(65532),
        np.bool_(True),
        np.datetime64("2020-01-01"),
    ),
    *(np.array(1), np.array([1, 2]), np.array([[1.5]]), np.zeros(0), np.array(["a"]), np.array([None], object)),
    *(np.ma.masked_array([1, 2], [0, 1]), np.zeros(3, "f4,i4"), np.arange(6)[::-2]),
)
"""Values of wrong kinds."""


def strange(rng: random.Random) -> Any:
    """Return a value of any kind."""
    return STRANGE[rng.randrange(len(STRANGE))]


def integer(rng: random.Random) -> int:
    """An integer: usual, negative or huge."""
    choice = rng.random()
    if choice < 0.6:
        return rng.choice(INTEGERS)
    return -rng.choice(INTEGERS) if choice < 0.7 else rng.choice(HUGE)


def number(rng: random.Random) -> float:
    """A float: usual, or at the edge of some type."""
    return rng.choice(FLOATS) if rng.random() < 0.8 else rng.uniform(-10, 10)
