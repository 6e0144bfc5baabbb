"""Seeded contents for tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType

Array = NDArray[Any]


def any_bits(rng: np.random.Generator, data_type: DataType, sizes: Sequence[int]) -> Array:
    """Draw random bits: every number, NaN with payloads, infinities, subnormals."""
    dtype = data_type.numpy
    raw = rng.integers(0, 1 << 8, (*sizes, dtype.itemsize), np.uint8)
    return raw.view(dtype).reshape(tuple(sizes))


def numbers(rng: np.random.Generator, data_type: DataType, sizes: Sequence[int]) -> Array:
    """Draw floats of both signs over some orders of magnitude; integers of the whole range, small ones more often."""
    if data_type.is_float:
        return (rng.standard_normal(sizes) * 2.0 ** rng.integers(-6, 7, sizes)).astype(data_type.numpy)
    small = rng.integers(-100 if data_type.is_signed else 0, 101, sizes).astype(data_type.numpy)
    return np.where(rng.random(sizes) < 0.5, small, any_bits(rng, data_type, sizes))


def few(rng: np.random.Generator, data_type: DataType, sizes: Sequence[int]) -> Array:
    """Return elements of five different small numbers, so that ties are common; both zeros of a float are among
    them."""
    choices = np.array([-2.0, -0.0, 0.0, 1.0, 3.0]) if data_type.is_float else np.array([0, 1, 2, 3, 5])
    return rng.choice(choices, sizes).astype(data_type.numpy)


def mixed(rng: np.random.Generator, data_type: DataType, sizes: Sequence[int]) -> Array:
    """Draw ordinary numbers with the special values of the type among them."""
    special = specials(data_type)
    return np.where(rng.random(sizes) < 0.4, rng.choice(special, sizes), numbers(rng, data_type, sizes))


def specials(data_type: DataType) -> Array:
    """Return critical values of arithmetic: limits, zeros, infinities, NaN, subnormals, ties between integers."""
    dtype = data_type.numpy
    if not data_type.is_float:
        integers = np.iinfo(dtype)
        middle = 1 << (data_type.bits // 2)
        values = [integers.min, integers.min + 1, integers.max - 1, integers.max, 0, 1, middle - 1, middle, middle + 1]
        return np.array(values + ([-1, -middle] if data_type.is_signed else []), dtype)
    floats = np.finfo(dtype)
    positive = [0.0, np.inf, floats.max, floats.smallest_normal, floats.smallest_subnormal, 1.0, 0.5, 1.5, 2.5]
    return np.array([np.nan, *positive, *(-np.array(positive, dtype)), 1 - float(floats.epsneg)], dtype)


def conversion_edges(data_type: DataType, target: DataType) -> Array:
    """Return values of a type around every place where converting them to ``target`` changes its manner."""
    with np.errstate(all="ignore"):
        if data_type.is_float:
            return np.concatenate([specials(data_type), _float_edges(target).astype(data_type.numpy)])
        if target.is_float:
            return np.concatenate([specials(data_type), _halfway_integers(data_type, target)])
        return np.concatenate([specials(data_type), specials(target).astype(data_type.numpy)])


def _float_edges(target: DataType) -> Array:
    """Numbers, in float64, around the limits of an integer type, or between adjacent values of a float type."""
    if not target.is_float:
        limits = np.iinfo(target.numpy)
        corners = np.array([float(limits.min), float(limits.max), float(limits.max) / 2])
        near = np.concatenate([corners + step for step in (-1.0, -0.5, 0.0, 0.5, 1.0)])
        return np.concatenate([near, np.nextafter(corners, np.inf), np.nextafter(corners, -np.inf)])
    limits_ = np.finfo(target.numpy)
    steps = np.array([0.5, 1.5, 0.5 + 2.0**-20, 0.5 - 2.0**-20, 2.5])
    tiny = float(limits_.smallest_subnormal)
    around = [1.0 + steps * float(limits_.eps), steps * tiny, float(limits_.smallest_normal) - steps * tiny]
    top = float(limits_.max) * (1.0 + np.array([0.0, 0.2, 0.5, 0.5 + 2.0**-16, 0.7, 1.0]) * 2.0**-limits_.nmant)
    positive = np.concatenate([*around, top])
    return np.concatenate([positive, -positive])


def _halfway_integers(data_type: DataType, target: DataType) -> Array:
    """Return integers halfway between two numbers of a float type, and one off, and where that type overflows."""
    digits = int(np.finfo(target.numpy).nmant) + 1
    most = int(np.iinfo(data_type.numpy).max)
    bases = [(1 << digits + extra) + (1 << extra) * odd for extra in (1, 2, 8, 30) for odd in (0, 1)]
    values = [
        base + (1 << extra - 1) + off
        for base, extra in zip(bases, (1, 1, 2, 2, 8, 8, 30, 30), strict=True)
        for off in (-1, 0, 1)
    ]
    values += [65503, 65504, 65519, 65520, 65521]
    return np.array([value for value in values if value <= most], data_type.numpy)
