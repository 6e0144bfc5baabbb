"""Cases of the operators that combine the elements along axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import SupportTable, descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import few, mixed, numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import Layout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_axes, draw_tensors, register
from dmlgpu.conformance.cases.telling import with_rivals
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Bound, Tolerance, Ulp

INNER = "inner"  # the last axis alone
OUTER = "outer"  # the first axis alone
EVERY = "every"  # all axes
TIES = "ties"
NAN = "nan"

LONG_SIZES = ((70001,), (3, 20011), (20011, 3), (257, 130), (2, 4099, 3))


def _reduced(sizes: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if dimension in axes else size for dimension, size in enumerate(sizes))


class _PlaceCases(OperatorCases):
    """ARGMIN and ARGMAX: any axes, both directions, ties, NaN alone and in whole lines."""

    long_sizes = LONG_SIZES
    large_sizes = ((16_700_001,), (4_300_000, 3), (3, 1_000_003))
    type_fields = ("InputTensor", "OutputTensor")

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, INNER, OUTER, EVERY, TIES, *([NAN] if types[0].is_float else []))

    def standard_keys(self) -> Iterator[Key]:
        """Also odd rows so long that several elements are compared at once."""
        yield from super().standard_keys()
        yield Key((DataType.FLOAT32, DataType.UINT32), (7, 263), Layout.PACKED, NAN)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axes = draw_axes(key, rng)
        source, output = draw_tensors(
            key, rng, (key.types[0], key.sizes, False), (key.types[1], _reduced(key.sizes, axes), True)
        )
        desc: Any = self.desc_class(
            input_tensor=source, output_tensor=output, axes=axes, axis_direction=AxisDirection(int(rng.integers(2)))
        )
        return Case(name, desc, lambda contents: (_rivalling(contents, key, axes),), EXACT)


def _rivalling(rng: np.random.Generator, key: Key, axes: tuple[int, ...]) -> Array:
    """Numbers to find the best among."""
    data_type, sizes = key.types[0], key.sizes
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant != NAN:
        return with_rivals(rng, numbers(rng, data_type, sizes))
    values = few(rng, data_type, sizes)
    values[rng.random(sizes) < 0.2] = math.inf
    values[rng.random(sizes) < 0.2] = -math.inf
    values[rng.random(sizes) < 0.3] = math.nan
    lines = np.broadcast_to(rng.random(_reduced(sizes, axes)) < 0.2, sizes)
    values[lines] = math.nan
    return values


register(_PlaceCases, descs.Argmin, descs.Argmax)


# ---- REDUCE

PLACES = (ReduceFunction.ARGMIN, ReduceFunction.ARGMAX)
SUMS = (ReduceFunction.SUM, ReduceFunction.L1)
SCALED = "scaled"
"""Variant: rows of very large and of very small numbers, infinities, NaN."""


@cases(descs.Reduce)
class ReduceCases(OperatorCases):
    """REDUCE: every function of every type that it has, also of numbers whose sum or product leaves float32 on the way.

    A variant is a function; none leaves it to chance.
    """

    standard_count = 26
    long_sizes = (*LONG_SIZES, (4, 20000), (20000, 4), (8, 7000), (7000, 8), (2, 300, 128))
    large_sizes = ((16_700_001,), (4_300_000, 3), (3, 1_000_003))
    packed_sizes = ((4, 20000), (20000, 4), (8, 70000), (70000, 8), (2, 300, 128), (300, 2, 128), (262144,))
    """Long axes of whole units of four, along rows and across them."""

    @property
    def types(self) -> tuple[Types, ...]:
        """All types that some function takes."""
        return tuple((data_type,) for data_type in self._table(ReduceFunction.ARGMIN)["InputTensor"].types)

    def _table(self, function: ReduceFunction) -> SupportTable:
        variant = next(v for v in self.schema.variants if function.name in v.members)
        return self.schema.support_at(FeatureLevel.LEVEL_6_4, variant)

    def functions(self, data_type: DataType) -> list[ReduceFunction]:
        """The functions that take a type."""
        return [f for f in ReduceFunction if data_type in self._table(f)["InputTensor"].types]

    def variants(self, types: Types) -> tuple[str, ...]:
        """A function each; of floats, also of numbers that need scaling."""
        functions = self.functions(types[0])
        scaled = [f for f in functions if types[0].is_float and f not in PLACES]
        return (PLAIN, *(f.name.lower() for f in functions), *(f"{f.name.lower()}-{SCALED}" for f in scaled))

    def standard_keys(self) -> Iterator[Key]:
        """Also every function of a long float32 row, and of numbers that need scaling; sums of rows so long that
        several units are taken at once; rows that no unit divides."""
        yield from super().standard_keys()
        types = (DataType.FLOAT32,)
        for function, sizes in zip(ReduceFunction, itertools.cycle(self.packed_sizes), strict=False):
            yield Key(types, sizes, Layout.PACKED, function.name.lower())
        yield from (Key(types, (32, 60), Layout.PACKED, name) for name in self.variants(types) if SCALED in name)
        yield Key(types, (16, 200), Layout.PACKED, f"sum-{SCALED}")
        yield Key(types, (9, 512), Layout.PACKED, f"l1-{SCALED}")
        yield Key((DataType.INT32,), (33, 1001), Layout.PACKED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,) = key.types
        function_name, _, scaled = key.variant.partition("-")
        possible = self.functions(data_type)
        by_chance = possible[rng.integers(len(possible))]
        function = ReduceFunction.__members__.get(function_name.upper(), by_chance)
        ways = [INNER, OUTER] if scaled else [PLAIN, PLAIN, INNER, OUTER, EVERY]  # scales differ from row to row
        axes = draw_axes(replace(key, variant=str(rng.choice(ways))), rng)
        given = self._table(function)["OutputTensor"].types
        result = data_type if data_type in given else given[rng.integers(len(given))]
        source, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (result, _reduced(key.sizes, axes), True)
        )
        desc = descs.Reduce(function=function, input_tensor=source, output_tensor=output, axes=axes)
        fill = _scaled if scaled else _operands

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[0] is not None
            return reduction_magnitude(function, inputs[0].astype(np.float64), axes)

        tolerance = reduction_tolerance(function, data_type)
        return Case(name, desc, lambda contents: (fill(contents, function, desc),), tolerance, magnitude=magnitude)


@dataclass(frozen=True)
class LogarithmOfSum(Ulp):
    """So many ULP, or what is lost of a sum that keeps the rounding errors of its additions, themselves rounded: near
    1, where the logarithm is that small, the sum's own error is all that remains.

    The magnitude is the sum of the absolute values over that of the sum.
    """

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Near enough by either."""
        with np.errstate(invalid="ignore"):
            difference = np.abs(expected.astype(np.float64) - got.astype(np.float64))
            return np.asarray(super().accepts(expected, got, magnitude) | (difference <= self.lost(magnitude)))

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """The larger of both."""
        return np.maximum(super().bound(expected, magnitude), self.lost(magnitude))

    def errors(self, expected: Array, got: Array, magnitude: Bound | None) -> Bound:
        """Numbers of the type away, of ``count``; at most 1 where what is lost of the sum explains it."""
        errors = super().errors(expected, got, magnitude)
        return np.where(self.accepts(expected, got, magnitude), np.minimum(errors, 1), errors)

    @staticmethod
    def lost(magnitude: Bound | None) -> Bound:
        """What a sum in twice the precision of float32 may lose, relative to itself."""
        assert magnitude is not None
        return np.nan_to_num(2.0**-47 * magnitude, nan=0.0, posinf=0.0)

    def __str__(self) -> str:
        return f"{self.count:g} ULP, or 2^-47 of the terms"


def reduction_tolerance(function: ReduceFunction, data_type: DataType) -> Tolerance:
    """Return how far floats may be off. One term: a rounding error of the sum of absolute values, one of the output."""
    match function.name:
        case "MIN" | "MAX":
            return CORRECTLY_ROUNDED if data_type.is_float else EXACT
        case "SUM" | "L1" | "SUM_SQUARE" | "AVERAGE" | "LOG_SUM_EXP":
            return Accumulated(1)
        case "LOG_SUM":
            return LogarithmOfSum(2)
        case "L2" | "MULTIPLY":
            return Ulp(2)
    return EXACT


def reduction_magnitude(function: ReduceFunction, values: Array, axes: tuple[int, ...]) -> Bound:
    """Return what the error of a reduction is measured by."""
    match function:
        case ReduceFunction.SUM_SQUARE:
            return np.asarray(np.square(values).sum(axes, keepdims=True))
        case ReduceFunction.LOG_SUM:
            with np.errstate(all="ignore"):
                sums = values.sum(axes, keepdims=True)
                return np.asarray(np.abs(values).sum(axes, keepdims=True) / np.abs(sums))
        case ReduceFunction.AVERAGE:
            return np.asarray(3 * np.abs(values).mean(axes, keepdims=True))  # the division rounds too
        case ReduceFunction.LOG_SUM_EXP:
            terms = math.prod(values.shape[axis] for axis in axes)
            return np.asarray(np.abs(values.max(axes, keepdims=True)) + 4 + 4 * math.log(terms))
    return np.asarray(np.abs(values).sum(axes, keepdims=True))


def _operands(rng: np.random.Generator, function: ReduceFunction, desc: descs.Reduce) -> Array:
    """Numbers of a function's domain; products stay near 1."""
    data_type, sizes = desc.input_tensor.data_type, desc.input_tensor.sizes
    if not data_type.is_float:
        return mixed(rng, data_type, sizes)
    match function:
        case ReduceFunction.LOG_SUM:
            return np.abs(numbers(rng, data_type, sizes))
        case ReduceFunction.MULTIPLY:
            signs = rng.choice(np.array([-1.0, 1.0]), sizes)
            return (signs * np.exp2(rng.uniform(-1, 1, sizes))).astype(data_type.numpy)
    return numbers(rng, data_type, sizes)


def _scaled(rng: np.random.Generator, function: ReduceFunction, desc: descs.Reduce) -> Array:
    """Whole rows of large numbers, of small ones, of both, of few; some with infinities and NaN.

    SUM's large numbers are small enough for its partial sums. Factors of both kinds come to a number in the end.
    """
    data_type, sizes = desc.input_tensor.data_type, desc.input_tensor.sizes
    limits, (largest, smallest) = np.finfo(data_type.numpy), (2.0**100, 2.0**-100)
    if data_type is DataType.FLOAT16:
        largest, smallest = float(limits.max), float(limits.smallest_subnormal)
    elif function not in SUMS:
        largest = float(limits.max)
    rows = rng.integers(0, 6, _reduced(sizes, desc.axes))
    sizes_of_both = np.where(rng.random(sizes) < 0.5, largest, smallest)
    scale = np.choose(rows, [largest, smallest, sizes_of_both, 1.0, 1.0, 1.0])
    if function is ReduceFunction.MULTIPLY:
        scale = np.where(rows == 2, _balanced(rng, sizes, desc.axes, math.log2(largest)), scale)
    values = rng.uniform(0.25, 1.0, sizes) * scale
    if function is not ReduceFunction.LOG_SUM:
        values *= rng.choice(np.array([-1.0, 1.0]), sizes)
    values = np.where(rows == 3, few(rng, DataType.FLOAT32, sizes), values)
    values[(rows == 4) & (rng.random(sizes) < 0.3)] = math.inf
    values[(rows == 4) & (rng.random(sizes) < 0.1)] = -math.inf
    values[(rows == 5) & (rng.random(sizes) < 0.3)] = math.nan
    return values.astype(data_type.numpy)


def _balanced(rng: np.random.Generator, sizes: tuple[int, ...], axes: Sequence[int], most: float) -> Array:
    """Powers of two, up to 2 ** most and down to its inverse, whose product along the axes is near 1."""
    exponents = rng.uniform(-most, most, sizes) / 2
    return np.asarray(np.exp2(np.clip(exponents - exponents.mean(tuple(axes), keepdims=True), -most, most)))
