"""Cases of the operators that carry something along lines."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, few, numbers, specials
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, Tolerance, Ulp

INNER = "inner"  # the last axis
OUTER = "outer"  # the first axis
SPECIAL = "special"
NONE = "none"  # everything is zero
EVERY = "every"  # nothing is
RARE = "rare"  # hardly anything is not

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
        flag: the attribute that leaves the element itself out.
        bound: how far results may lie from the reference.
    """

    long_sizes: ClassVar[SizesList] = ((70001,), (70004,), (3, 20011), (20011, 3), (2, 4099, 4))
    large_sizes: ClassVar[SizesList] = ((16_700_001,), (16_777_152,), (4_300_000, 3), (3, 1_000_003))
    flag: ClassVar[str]
    bound: ClassVar[Tolerance]

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, INNER, OUTER, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = _axis(key, rng)
        data_type, decreasing, exclusive = key.types[0], bool(rng.integers(2)), bool(rng.integers(2))
        source, output = draw_tensors(key, rng, (data_type, key.sizes, False), (data_type, key.sizes, True))
        tensors = {"input_tensor": source, "output_tensor": output}
        desc: Any = self.desc_class(
            **tensors, axis=axis, axis_direction=AxisDirection(int(decreasing)), **{self.flag: exclusive}
        )

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[0] is not None
            sizes = np.abs(inputs[0].astype(np.float64))
            return np.flip(np.flip(sizes, axis).cumsum(axis), axis) if decreasing else sizes.cumsum(axis)

        def fill(contents: np.random.Generator) -> Arrays:
            return (self.values(contents, key),)

        return Case(name, desc, fill, self.bound, magnitude=magnitude)

    @abstractmethod
    def values(self, rng: np.random.Generator, key: Key) -> Array:
        """The contents of the input."""


def _axis(key: Key, rng: np.random.Generator) -> int:
    if key.variant == INNER:
        return len(key.sizes) - 1
    if key.variant == OUTER:
        return 0
    return int(np.argmax(key.sizes)) if math.prod(key.sizes) > SHORT else int(rng.integers(len(key.sizes)))


def _with_special_values(rng: np.random.Generator, values: Array, others: Array, share: float) -> Array:
    """The values with others in the place of some."""
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

    def values(self, rng: np.random.Generator, key: Key) -> Array:
        """Odd integers, so that products do not end up at 0; floats around 1 whose products come and go."""
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
        """How much is zero, and what zeros there are."""
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
