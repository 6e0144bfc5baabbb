"""Numbers in attributes, as numbers of a tensor's type and as their bits."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType


def converted(number: float, data_type: DataType) -> int | float:
    """Return a number in a tensor's type, as CAST converts it.

    It is rounded to the nearest float, ties to even, or cut to an integer, which saturates; NaN gives 0 there.
    """
    if data_type.is_float:
        with np.errstate(over="ignore"):
            return float(data_type.numpy.type(number))
    if isinstance(number, float) and math.isnan(number):
        return 0
    limits = np.iinfo(data_type.numpy)
    smallest, largest = int(limits.min), int(limits.max)
    return int(min(max(number, smallest), largest)) if math.isinf(number) else min(max(int(number), smallest), largest)


def bits_of(number: float, data_type: DataType) -> int:
    """Return the bits of a number of a type; integers are taken modulo their width."""
    if not data_type.is_float:
        return int(number) % (1 << data_type.bits)
    with np.errstate(over="ignore"):
        return int.from_bytes(data_type.numpy.type(number).tobytes(), "little")


def words_of(number: float, data_type: DataType) -> tuple[int, ...]:
    """Return the bits of a number of a type as 32-bit words, the lowest first; narrow types take one word."""
    bits = bits_of(number, data_type)
    return (bits & 0xFFFFFFFF, bits >> 32) if data_type.bits == 64 else (bits,)
