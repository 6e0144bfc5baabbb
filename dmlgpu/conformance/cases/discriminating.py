"""Inputs that distinguish an operator from nearly correct formulas, and how cases get some of them.

Two formulas rarely differ on random numbers: only at rounding ties, exact multiples, equal keys, borders, and the first
and last index. Each operator lists these inputs (``OperatorCases.discriminating``). A third of the elements of all its
cases, those of the profiles and random ones, are such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.conformance.cases.case import Array, Arrays, Case

Rows: TypeAlias = Sequence[tuple[Any, ...]]

SHARE = 1 / 3
"""The share of the elements that get discriminating numbers."""


@dataclass(frozen=True)
class DiscriminatingInputs:
    """Inputs that distinguish an operator from nearly correct formulas.

    Attributes:
        formulas: Description of the nearly correct formulas.
        fields: Inputs that get the values, of equal sizes.
        rows: Values of the inputs at one position, a number per field; or a function of the description. Numbers that a
            type cannot represent are omitted.
    """

    formulas: str
    fields: tuple[str, ...]
    rows: Rows | Callable[[Any], Rows]

    def rows_for(self, desc: Any, data_types: Sequence[DataType]) -> tuple[Array, ...]:
        """Return the numbers of each field as an array of its type, in the order of the rows; empty if no row fits."""
        rows = self.rows(desc) if callable(self.rows) else self.rows
        fitting = [row for row in rows if all(map(_has, data_types, row))]
        with np.errstate(over="ignore"):
            return tuple(
                np.array([row[index] for row in fitting], data_type.numpy) for index, data_type in enumerate(data_types)
            )


def _has(data_type: DataType, number: Any) -> bool:
    """Return whether a type represents a number, for floats approximately."""
    if data_type.is_float:
        return True
    if not math.isfinite(number) or number != int(number):
        return False
    low = -(1 << data_type.bits - 1) if data_type.is_signed else 0
    return low <= number < low + (1 << data_type.bits)


def with_discriminating(case: Case, discriminating: Sequence[DiscriminatingInputs]) -> Case:
    """Return a case with discriminating numbers among its contents."""
    if not discriminating:
        return case

    def fill(rng: np.random.Generator) -> Arrays:
        arrays = list(case.fill(rng))
        numbers = {slot.field: index for index, slot in enumerate(case.desc.inputs) if slot.tensor is not None}
        for inputs in discriminating:
            if all(field in numbers for field in inputs.fields):
                _put(rng, case, inputs, arrays, [numbers[field] for field in inputs.fields])
        return tuple(arrays)

    return replace(case, fill=fill)


def _put(
    rng: np.random.Generator,
    case: Case,
    inputs: DiscriminatingInputs,
    arrays: list[Array | None],
    numbers: Sequence[int],
) -> None:
    """Put the rows into a third of the places of some inputs, each about as often."""
    slots = case.desc.inputs
    tensors = [tensor for tensor in (slots[index].tensor for index in numbers) if tensor is not None]
    columns = inputs.rows_for(case.desc, [tensor.data_type for tensor in tensors])
    sizes = tensors[0].sizes
    if not columns[0].size or any(tensor.sizes != sizes for tensor in tensors):
        return
    count = math.prod(sizes)
    places = rng.permutation(count)[: max(1, round(SHARE * count))]
    chosen = (rng.permutation(columns[0].size)[0] + np.arange(places.size)) % columns[0].size
    for index, column in zip(numbers, columns, strict=True):
        array = np.array(arrays[index]).reshape(-1)
        array[places] = column[chosen]
        arrays[index] = array.reshape(sizes)


def with_rivals(rng: np.random.Generator, array: Array) -> Array:
    """Return an array in which a third of the elements are equal to its largest or its smallest one: which of several
    equal ones is found shows only there."""
    if not array.size:
        return array
    extreme = np.where(rng.random(array.shape) < 0.5, array.max(), array.min())
    return np.where(rng.random(array.shape) < SHARE, extreme, array)


def draw_scale_bias(rng: np.random.Generator, scales: Sequence[float]) -> ScaleBias:
    """One of some scales, and a bias between -2 and 2 of few digits. Neither is neutral: that the bias is added after
    the product shows at scales other than 1 and biases other than 0."""
    return ScaleBias(float(rng.choice(scales)), float(rng.choice([-8, -5, -3, -1, 1, 3, 6, 7])) / 4)


# ---- rows that several operators share

BOTH_SIGNS = tuple(
    (a, b)
    for size, divisor in ((6, 3), (7, 3), (12, 4), (13, 4), (1, 3), (0, 5))
    for a in (size, -size)
    for b in (divisor, -divisor)
)
"""Exact multiples and adjacent integers, for every sign of dividend and divisor."""

HALVES = tuple((sign * (whole + 0.5),) for whole in range(5) for sign in (1, -1))
"""Halfway between integers, even and odd ones below, of both signs."""

EQUAL_PAIRS = ((0, 0), (1, 1), (-1, -1), (-0.0, 0.0), (0.0, -0.0), (3, 3), (2, 3), (3, 2))
"""Equal numbers, including zeros of either sign, and adjacent ones."""

HUGE_PAIRS = ((3e38, 3e38), (-3e38, -2e38), (3e38, -3e38))
"""Floats whose sum may be beyond the type although their half is not."""

SMALL_POWERS = tuple((base, exponent) for base in (-2, -1, 0, 1, 2, 3) for exponent in (-3, -2, -1, 0, 1, 2, 3))
"""Bases and exponents around the special cases of integer powers: 0 and plus and minus 1, negative exponents, even and
odd ones."""

ODD_SUMS = ((1, 2), (-1, -2), (-1, 2), (0, -1), (-3, 0), (3, 0), (1, -2))
"""Whose half lies between integers, of both signs."""
