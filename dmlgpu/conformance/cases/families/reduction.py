"""Cases of the operators that combine, accumulate, find or sort the elements along axes."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import SupportTable, descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction
from dmlgpu.conformance.cases.case import Array, Arrays, Case, of_first
from dmlgpu.conformance.cases.contents import any_bits, few, mixed, numbers, specials
from dmlgpu.conformance.cases.discriminating import with_rivals
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_axes, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Bound, Tolerance, Ulp, as_bits

INNER = "inner"  # the last axis
OUTER = "outer"  # the first axis
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
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32, DataType.UINT32), (7, 263), TensorLayout.PACKED, NAN),
    )
    """Odd rows so long that several elements are compared at once."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, INNER, OUTER, EVERY, TIES, *([NAN] if types[0].is_float else []))

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
    """Draw numbers to find the best among."""
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
    added_keys = (
        Key((DataType.INT16,), (33, 7, 9), TensorLayout.INTERLEAVED, "min", 1),
        *(
            Key((DataType.FLOAT32,), (3, 8195), TensorLayout.PACKED, name)
            for name in ("average", "log_sum", "log_sum_exp", "multiply")
        ),
        *(Key((DataType.FLOAT32,), (2, 4099, 3), TensorLayout.PACKED, name) for name in ("l1", "max", "min")),
    )
    """Results that share words with those of other workgroups; partial results along and across rows that are as short
    as they can be."""

    @property
    def types(self) -> tuple[Types, ...]:
        """All types that some function takes."""
        return tuple((data_type,) for data_type in self._table(ReduceFunction.ARGMIN)["InputTensor"].types)

    def _table(self, function: ReduceFunction) -> SupportTable:
        variant = next(v for v in self.schema.variants if function.name in v.members)
        return self.schema.support_at(FeatureLevel.LEVEL_6_4, variant)

    def functions(self, data_type: DataType) -> list[ReduceFunction]:
        """Return the functions that take a type."""
        return [f for f in ReduceFunction if data_type in self._table(f)["InputTensor"].types]

    def variants(self, types: Types) -> tuple[str, ...]:
        """Return a function each; of floats, also of numbers that need scaling."""
        functions = self.functions(types[0])
        scaled = [f for f in functions if types[0].is_float and f not in PLACES]
        return (PLAIN, *(f.name.lower() for f in functions), *(f"{f.name.lower()}-{SCALED}" for f in scaled))

    def standard_keys(self) -> Iterator[Key]:
        """Also every function of a long float32 row, and of numbers that need scaling; sums of rows so long that
        several units are taken at once; rows that no unit divides."""
        yield from super().standard_keys()
        types = (DataType.FLOAT32,)
        for function, sizes in zip(ReduceFunction, itertools.cycle(self.packed_sizes), strict=False):
            yield Key(types, sizes, TensorLayout.PACKED, function.name.lower())
        yield from (Key(types, (32, 60), TensorLayout.PACKED, name) for name in self.variants(types) if SCALED in name)
        yield Key(types, (16, 200), TensorLayout.PACKED, f"sum-{SCALED}")
        yield Key(types, (9, 512), TensorLayout.PACKED, f"l1-{SCALED}")
        yield Key((DataType.INT32,), (33, 1001), TensorLayout.PACKED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,) = key.types
        function_name, _, scaled = key.variant.partition("-")
        possible = self.functions(data_type)
        by_chance = possible[rng.integers(len(possible))]
        function = ReduceFunction.__members__.get(function_name.upper(), by_chance)
        ways = [INNER, OUTER] if scaled else [PLAIN, PLAIN, INNER, OUTER, EVERY]  # scales differ from row to row
        axes = draw_axes(replace(key, variant=str(rng.choice(ways))), rng)
        output_types = self._table(function)["OutputTensor"].types
        result = data_type if data_type in output_types else output_types[rng.integers(len(output_types))]
        source, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (result, _reduced(key.sizes, axes), True)
        )
        desc = descs.Reduce(function=function, input_tensor=source, output_tensor=output, axes=axes)
        fill = _scaled if scaled else _operands

        magnitude = of_first(lambda x: reduction_magnitude(function, x.astype(np.float64), axes))
        tolerance = reduction_tolerance(function, data_type)
        return Case(name, desc, lambda contents: (fill(contents, function, desc),), tolerance, magnitude=magnitude)


@dataclass(frozen=True)
class LogarithmOfSum(Ulp):
    """Tolerance in ULP, or the error of a compensated sum if it is larger: near a sum of 1 the logarithm is so small
    that the error of the sum dominates.

    The magnitude is the sum of the absolute values over that of the sum.
    """

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Near enough by either."""
        with np.errstate(invalid="ignore"):
            difference = np.abs(expected.astype(np.float64) - got.astype(np.float64))
            return np.asarray(super().accepts(expected, got, magnitude) | (difference <= self.lost(magnitude)))

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """Return the larger of both."""
        return np.maximum(super().bound(expected, magnitude), self.lost(magnitude))

    def errors(self, expected: Array, got: Array, magnitude: Bound | None) -> Bound:
        """Return numbers of the type away, of ``count``; at most 1 where what is lost of the sum explains it."""
        errors = super().errors(expected, got, magnitude)
        return np.where(self.accepts(expected, got, magnitude), np.minimum(errors, 1), errors)

    @staticmethod
    def lost(magnitude: Bound | None) -> Bound:
        """Relative error of a sum in twice the precision of float32."""
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
    """Return the magnitude by which the error of a reduction is scaled."""
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
    """Draw numbers of a function's domain; products stay near 1."""
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
    """Draw whole rows of large numbers, of small ones, of both, of few; some with infinities and NaN.

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
    """Draw powers of two, up to 2 ** most and down to its inverse, whose product along the axes is near 1."""
    exponents = rng.uniform(-most, most, sizes) / 2
    return np.asarray(np.exp2(np.clip(exponents - exponents.mean(tuple(axes), keepdims=True), -most, most)))


# ---- scans -----------------------------------------------------------------------------------------------------------


SPECIAL = "special"
NONE = "none"  # everything is zero; EVERY: nothing is
RARE = "rare"  # hardly anything is nonzero

ERRORS_KEPT = 1
"""Terms for ``Accumulated`` where rounding errors are kept: the bound does not grow with the length of a line."""
SHORT = 20000
"""Elements up to which any axis will do; more belong to a case of one long axis."""


class _TypeOfInput(OperatorCases):
    """The input decides about the types of all tensors."""

    standard_count = 40


class _CumulativeCases(_TypeOfInput):
    """Lines along any axis, in both directions, with and without the element itself.

    Attributes:
        flag: The attribute that leaves the element itself out.
        bound: Allowed difference from the reference.
    """

    long_sizes: ClassVar[SizesList] = ((70001,), (70004,), (3, 20011), (20011, 3), (2, 4099, 4))
    large_sizes: ClassVar[SizesList] = ((16_700_001,), (16_777_152,), (4_300_000, 3), (3, 1_000_003))
    flag: ClassVar[str]
    bound: ClassVar[Tolerance]

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = _axis(key, rng)
        decreasing, exclusive = bool(rng.integers(2)), bool(rng.integers(2))
        tensors = self.uniform_tensors(key, rng)
        desc: Any = self.desc_class(
            **tensors, axis=axis, axis_direction=AxisDirection(int(decreasing)), **{self.flag: exclusive}
        )

        def magnitude(x: Array) -> Bound:
            sizes = np.abs(x.astype(np.float64))
            return np.flip(np.flip(sizes, axis).cumsum(axis), axis) if decreasing else sizes.cumsum(axis)

        def fill(contents: np.random.Generator) -> Arrays:
            return (self.values(contents, key),)

        return Case(name, desc, fill, self.bound, magnitude=of_first(magnitude))

    @abstractmethod
    def values(self, rng: np.random.Generator, key: Key) -> Array:
        """Return the contents of the input."""


def _axis(key: Key, rng: np.random.Generator) -> int:
    if key.variant == INNER:
        return len(key.sizes) - 1
    if key.variant == OUTER:
        return 0
    return int(np.argmax(key.sizes)) if math.prod(key.sizes) > SHORT else int(rng.integers(len(key.sizes)))


def _with_special_values(rng: np.random.Generator, values: Array, others: Array, share: float) -> Array:
    """Return the values with others in place of some."""
    return np.where(rng.random(values.shape) < share, rng.choice(others, values.shape), values)


@cases(descs.CumulativeSummation)
class CumulativeSummationCases(_CumulativeCases):
    """CUMULATIVE_SUMMATION: floats as if added in twice the precision, integers wrap."""

    flag = "has_exclusive_sum"
    bound = Accumulated(ERRORS_KEPT)

    def values(self, rng: np.random.Generator, key: Key) -> Array:
        """Numbers; special ones without the largest, whose partial sums may or may not overflow."""
        data_type = key.types[0]
        if key.variant != SPECIAL or not data_type.is_float:
            return numbers(rng, data_type, key.sizes)
        infinite = np.array([math.inf, -math.inf, math.nan], data_type.numpy)
        return _with_special_values(rng, few(rng, data_type, key.sizes), infinite, 0.05)


@cases(descs.CumulativeProduct)
class CumulativeProductCases(_CumulativeCases):
    """CUMULATIVE_PRODUCT: floats as if multiplied in twice the precision and without limits, integers wrap."""

    flag = "has_exclusive_product"
    bound = Ulp(1)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.FLOAT32,), (7, 33), TensorLayout.PACKED, SPECIAL),)
    """Infinities that small numbers follow."""

    def values(self, rng: np.random.Generator, key: Key) -> Array:
        """Draw odd integers, so that products do not become 0; floats around 1 whose products rise and fall."""
        data_type = key.types[0]
        if not data_type.is_float:
            return numbers(rng, data_type, key.sizes) | data_type.numpy.type(key.variant != SPECIAL)
        signs = rng.choice([-1.0, 1.0], key.sizes)
        values = (signs * 2.0 ** rng.uniform(-1.0, 1.0, key.sizes)).astype(data_type.numpy)
        if key.variant != SPECIAL:
            return values
        scaled = (values * 2.0 ** rng.integers(-10, 11, key.sizes)).astype(data_type.numpy)
        return _with_special_values(rng, scaled, specials(data_type), 0.1)


@cases(descs.NonzeroCoordinates)
class NonzeroCoordinatesCases(_TypeOfInput):
    """NONZERO_COORDINATES: with and without coordinates of leading 1s, outputs of other ranks than the input."""

    long_sizes: ClassVar[SizesList] = ((70001,), (70004,), (3, 20011), (257, 130), (2, 4099, 3))
    # Coordinates just below 128 MiB: many adapters bind no more, counting what precedes a tensor in its 256 bytes.
    large_sizes: ClassVar[SizesList] = ((4096, 4095), (16_700_001,))

    def variants(self, types: Types) -> tuple[str, ...]:
        """Variants by the share and the kinds of zeros."""
        return (PLAIN, NONE, EVERY, RARE, *([SPECIAL] if types[0].is_float else []))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        rank = len(key.sizes)
        fewest = rank - next((d for d, size in enumerate(key.sizes) if size > 1), rank)
        width = fewest if math.prod(key.sizes) > SHORT else int(rng.integers(max(fewest, 1), rank + 1))
        rows = (1,) * int(rng.integers(7)) + (math.prod(key.sizes), width)
        source, count, coordinates = draw_tensors(
            key,
            rng,
            (key.types[0], key.sizes, False),
            (DataType.UINT32, (1,) * int(rng.integers(1, 9)), True),
            (DataType.UINT32, rows, True),
        )
        desc = descs.NonzeroCoordinates(
            input_tensor=source, output_count_tensor=count, output_coordinates_tensor=coordinates
        )
        return Case(name, desc, lambda contents: (_sparse(contents, key),), EXACT)


def _sparse(rng: np.random.Generator, key: Key) -> Array:
    """Any bits but zero, among zeros."""
    data_type, zero = key.types[0], key.types[0].numpy.type(0)
    if key.variant == SPECIAL:
        tiny = np.finfo(data_type.numpy).smallest_subnormal
        return rng.choice(np.array([zero, -zero, tiny, -tiny, math.nan, math.inf], data_type.numpy), key.sizes)
    share = {NONE: 0.0, EVERY: 1.0, RARE: 0.01}.get(key.variant, 0.5)
    values = any_bits(rng, data_type, key.sizes)
    values = np.where(values == 0, data_type.numpy.type(1), values)
    return np.where(rng.random(key.sizes) < share, values, zero)


# ---- sorting ---------------------------------------------------------------------------------------------------------


WHOLE = "whole"  # K is the whole axis
FIRST = "first"  # K is 1
BITS = "bits"  # anything the type can hold: the ends of its range, NaN of both signs and any payload, subnormals


class _SortCases(OperatorCases):
    """Any axis, any K, ties, NaN; short lines, and lines that take several kernels."""

    long_sizes: ClassVar[SizesList] = ((70001,), (3, 20011), (3000, 7), (2, 4099, 3))
    large_sizes: ClassVar[SizesList] = ((1 << 20,), (65537, 129), (3, 1_000_003))
    type_fields = ("InputTensor", "OutputIndexTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, WHOLE, FIRST, TIES, BITS)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = _axis(key, rng)
        count = _count(key, key.sizes[axis], rng)
        sizes = tuple(count if dimension == axis else size for dimension, size in enumerate(key.sizes))
        source, values, places = draw_tensors(
            key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True), (key.types[1], sizes, True)
        )
        fields = {"input_tensor": source, "output_value_tensor": values, "output_index_tensor": places}
        desc: Any = self.desc_class(**fields, axis=axis, k=count, **self.direction(rng))
        return Case(name, desc, lambda contents: (_contents(contents, key),), EXACT)

    def direction(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the fields that only one of the operators has."""
        return {}


def _count(key: Key, length: int, rng: np.random.Generator) -> int:
    """Draw a random number of requested elements; small ones are more frequent."""
    if key.variant in (WHOLE, FIRST):
        return length if key.variant == WHOLE else 1
    return min(length, int((length + 1) ** rng.random()))


def _contents(rng: np.random.Generator, key: Key) -> Array:
    """Draw elements to sort."""
    data_type, sizes = key.types[0], key.sizes
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant == BITS:
        return _any_values(rng, data_type, sizes)
    return with_rivals(rng, numbers(rng, data_type, sizes))


def _any_values(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Few numbers, special ones, any bits; a third of floats' any bits are NaN."""
    kind = rng.random(sizes)
    values = np.where(kind < 0.4, few(rng, data_type, sizes), rng.choice(specials(data_type), sizes))
    noise = any_bits(rng, data_type, sizes)
    if data_type.is_float:
        exponent = np.array(np.inf, data_type.numpy).view(as_bits(noise).dtype)
        noise = np.where(rng.random(sizes) < 0.33, as_bits(noise) | exponent, as_bits(noise)).view(noise.dtype)
    return np.where(kind < 0.8, values, noise)


@cases(descs.TopK1)
class TopK1Cases(_SortCases):
    """TOP_K1: both directions."""

    standard_count = 40

    def direction(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"axis_direction": AxisDirection(int(rng.integers(2)))}


register(_SortCases, descs.TopK, standard_count=40, long_sizes=((3, 20011),), large_sizes=((65537, 129),))
