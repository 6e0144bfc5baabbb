"""The numbers on which functions are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.conformance.accuracy.functions import TINY, Function

Floats: TypeAlias = NDArray[np.float32]

PER_EXPONENT = 4096
"""Numbers of every exponent and sign in a full measurement."""
STEPS = 2048
"""Numbers on either side of a bend."""
LARGEST = float(np.finfo(np.float32).max)


def from_bits(bits: Any) -> Floats:
    """Float32 values from their bits."""
    return np.asarray(bits, np.uint32).view(np.float32)


def halves() -> Floats:
    """All 65,536 float16 values as float32."""
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def every_exponent(count: int = PER_EXPONENT, seed: int = 0) -> Floats:
    """Numbers of every exponent, subnormals, infinities and NaN included: ``count`` of each, of both signs."""
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << 23, count)
    fractions = np.random.default_rng(seed).integers(0, 1 << 23, exponents.size, np.uint32)
    fractions[::count] = 0
    fractions[1::count] = 0x7FFFFF
    fractions[2::count] = 1
    return from_bits(exponents | fractions)


def around(value: float, steps: int = STEPS) -> Floats:
    """The numbers within some steps of a number, of its sign."""
    middle = int(np.float32(abs(value)).view(np.uint32))
    bits = np.arange(max(middle - steps, 0), min(middle + steps, 0x7F800000), dtype=np.uint32)
    return from_bits(bits | np.uint32(0x80000000 if value < 0 else 0))


def ordinary(seed: int, count: int) -> Floats:
    """Numbers as programs have them: so many between -100 and 100, and between -1 and 1."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-100, 100, count), rng.uniform(-1, 1, count)]).astype(np.float32)


SPECIAL = np.array(
    [0.0, 1.0, 0.5, 2.0, 3.0, 1e-45, TINY, LARGEST, np.inf, np.nan, 1e-40, 16777216.0, 16777215.0, 1.5, 5.0, 1e30],
    np.float32,
)


def samples(function: Function, count: int = PER_EXPONENT) -> tuple[Floats, ...]:
    """The inputs on which a function is measured: ``count`` numbers of every exponent and sign, and others."""
    if function.operands == 1:
        critical_points = [around(value) for value in function.critical_points]
        numbers = np.concatenate([halves(), every_exponent(count), ordinary(1, 64 * count), *critical_points])
        return (in_domain(function, numbers),)
    return tuple(_padded(np.concatenate(operand)) for operand in zip(*_pairs(function, count), strict=True))


def _pairs(function: Function, count: int) -> Sequence[tuple[Floats, Floats]]:
    rng = np.random.default_rng(2)
    signed = np.concatenate([SPECIAL, -SPECIAL])
    special_pairs = np.meshgrid(signed, signed)
    a = rng.permutation(every_exponent(count))
    b = rng.permutation(every_exponent(count, 1))
    first, second = ordinary(3, 64 * count), ordinary(4, 64 * count)
    near = from_bits(first.view(np.uint32) + rng.integers(0, 64, first.size, np.uint32))
    pairs = [(special_pairs[0].ravel(), special_pairs[1].ravel()), (a, b), (first, second), (near, first)]
    if function.name == "pow_f32":
        # Bases near 1 with large exponents, results over the whole range, negative bases with whole exponents.
        bases = np.concatenate([around(1.0, 32 * count), np.abs(ordinary(5, 64 * count)), every_exponent(count)])
        bases = bases[np.isfinite(bases) & (bases > 0)]
        with np.errstate(all="ignore"):
            exponents = (rng.uniform(-151, 129, bases.size) / np.log2(bases.astype(np.float64))).astype(np.float32)
        pairs += [(bases, exponents), (first, np.rint(second / 8))]
    if function.name.endswith("mod_f32"):
        pairs.append((np.rint(first * 50), np.rint(second)))
    return pairs


def in_domain(function: Function, numbers: Floats) -> Floats:
    """Those numbers that a function takes, in whole blocks of four; NaN unless there is a smallest."""
    if function.minimum is not None:
        numbers = numbers[numbers >= function.minimum]
    if function.maximum is not None:
        numbers = numbers[~(numbers > function.maximum)]
    return _padded(numbers)


def _padded(array: Floats) -> Floats:
    """A whole number of blocks of four."""
    return np.ascontiguousarray(np.pad(array, (0, -array.size % 4), constant_values=1.0))
