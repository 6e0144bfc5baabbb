"""Decide whether two elements of a strided tensor share an offset, without enumerating offsets.

Two elements share an offset if the difference of their coordinates, d, is not zero and ``sum(d[i] * stride[i])`` is: a
bounded linear equation in integers. Divisibility and size rule most dimensions out. The rest is a short-vector problem
in the lattice of solutions, which has at most seven dimensions: its basis is reduced (Lenstra, Lenstra and Lovász),
then the few vectors inside the box of all differences are enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

MAX_STEPS = 200_000
"""Steps after which the search for a vector is given up; layouts of eight dimensions need some hundreds."""

_SLACK = 1e-6
"""Rounding error allowed in the length of a vector in the search; the bounds themselves are tested in integers."""

_LOVASZ = Fraction(3, 4)

Vector: TypeAlias = list[int]


class Undecided(ValueError):
    """The search ended before it was known whether two elements share an offset."""


@dataclass(frozen=True)
class _Dimension:
    """Differences of coordinates along a dimension: multiples of ``stride`` up to ``most`` times, either way."""

    stride: int
    most: int


def has_overlap(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements share an offset.

    Args:
        sizes: Elements along each dimension, at least 1.
        strides: Elements from one to the next along each dimension, at least 0.

    Raises:
        Undecided: If the search takes more than ``MAX_STEPS`` steps.
    """
    dimensions = [_Dimension(stride, n - 1) for n, stride in zip(sizes, strides, strict=True) if n > 1]
    if any(dimension.stride == 0 for dimension in dimensions):
        return True
    dimensions = _entangled(dimensions)
    if len(dimensions) <= 2:  # in two dimensions the smallest solution is the remaining step
        return bool(dimensions)
    if math.prod(dimension.most + 1 for dimension in dimensions) > 1 + sum(
        dimension.most * dimension.stride for dimension in dimensions
    ):
        return True  # more elements than offsets
    return _has_short_solution(dimensions)


def _entangled(dimensions: list[_Dimension]) -> list[_Dimension]:
    """Return the dimensions along which elements that share an offset can differ, in the steps of possible differences.

    A difference is a multiple of a common divisor of all other strides, and limited by the extent of all other
    dimensions.
    """
    while True:
        remaining = []
        for axis, dimension in enumerate(dimensions):
            others = [other for place, other in enumerate(dimensions) if place != axis]
            divisor = math.gcd(*(other.stride for other in others))
            step = divisor // math.gcd(divisor, dimension.stride) if divisor else dimension.most + 1
            reach = sum(other.most * other.stride for other in others) // dimension.stride
            remaining.append(_Dimension(dimension.stride * step, min(dimension.most, reach) // step))
        remaining = [dimension for dimension in remaining if dimension.most > 0]
        if remaining == dimensions:
            return remaining
        dimensions = remaining


def _has_short_solution(dimensions: list[_Dimension]) -> bool:
    """Return whether the equation has a solution, other than zero, within the bounds of all dimensions."""
    bounds = [dimension.most for dimension in dimensions]
    basis = _reduced(_solutions([dimension.stride for dimension in dimensions]), bounds)
    return any(_is_within(vector, bounds) for vector in basis) or any(
        any(vector) and _is_within(vector, bounds) for vector in _vectors_near(basis, bounds)
    )


def _is_within(vector: Vector, bounds: Sequence[int]) -> bool:
    return all(abs(entry) <= bound for entry, bound in zip(vector, bounds, strict=True))


def _solutions(strides: Sequence[int]) -> list[Vector]:
    """Return a basis of all integer vectors whose products with the strides add up to zero."""
    count = len(strides)
    basis, divisor = [], strides[0]
    combination = [1] + [0] * (count - 1)  # coefficients of the previous strides' common divisor
    for axis in range(1, count):
        stride = strides[axis]
        common = math.gcd(divisor, stride)
        vector = [entry * (stride // common) for entry in combination]
        vector[axis] = -divisor // common
        basis.append(vector)
        share = pow(divisor // common, -1, stride // common) if stride > common else 0
        combination = [entry * share for entry in combination]
        combination[axis] = (common - share * divisor) // stride
        divisor = common
    return basis


def _reduced(basis: list[Vector], bounds: Sequence[int]) -> list[Vector]:
    """Return a basis of short vectors of the same lattice, each coordinate measured by its bound (LLL, exact)."""
    unit = 1 << max(bounds).bit_length() + 10
    weights = [unit // bound for bound in bounds]

    def product(a: Vector, b: Vector) -> int:
        return sum(x * y * weight * weight for x, y, weight in zip(a, b, weights, strict=True))

    lengths: list[Fraction] = []  # squared lengths of the vectors' components orthogonal to all previous ones
    shares: list[list[Fraction]] = []  # Gram-Schmidt coefficients

    def orthogonalise(row: int) -> None:
        """Compute the Gram-Schmidt coefficients of vector ``row`` and its squared length."""
        own: list[Fraction] = []
        for column in range(row):
            projected = sum(
                (own[before] * shares[column][before] * lengths[before] for before in range(column)), Fraction()
            )
            own.append((product(basis[row], basis[column]) - projected) / lengths[column])
        rest = sum((share * share * length for share, length in zip(own, lengths, strict=False)), Fraction())
        shares[row:], lengths[row:] = [own], [product(basis[row], basis[row]) - rest]

    row = 0
    while row < len(basis):
        orthogonalise(row)
        for column in reversed(range(row)):
            if times := round(shares[row][column]):
                basis[row] = [x - times * y for x, y in zip(basis[row], basis[column], strict=True)]
                for before in range(column):
                    shares[row][before] -= times * shares[column][before]
                shares[row][column] -= times
        if row and lengths[row] < (_LOVASZ - shares[row][row - 1] ** 2) * lengths[row - 1]:
            basis[row - 1], basis[row] = basis[row], basis[row - 1]
            row -= 1
        else:
            row += 1
    return basis


def _vectors_near(basis: list[Vector], bounds: Sequence[int]) -> Iterator[Vector]:
    """Yield the lattice's vectors whose coordinates may be within their bounds, and some longer ones (Fincke-Pohst).

    Raises:
        Undecided: After ``MAX_STEPS`` steps.
    """
    scaled = np.array([[entry / bound for entry, bound in zip(vector, bounds, strict=True)] for vector in basis])
    corner = np.linalg.qr(scaled.T)[1]
    longest = len(bounds) + _SLACK
    steps = 0

    def extend(row: int, chosen: list[int], square: float) -> Iterator[Vector]:
        """Choose the coefficient of vector ``row``, given those of the following vectors."""
        nonlocal steps
        if row < 0:
            yield [
                sum(times * vector[place] for times, vector in zip(chosen, basis, strict=True))
                for place in range(len(bounds))
            ]
            return
        side = float(corner[row, row])
        center = -float(corner[row, row + 1 :] @ np.array(chosen)) / side if chosen else 0.0
        width = math.sqrt(max(longest - square, 0.0)) / abs(side)
        for times in range(math.ceil(center - width), math.floor(center + width) + 1):
            steps += 1
            if steps > MAX_STEPS:
                raise Undecided(f"not decided in {MAX_STEPS} steps")
            yield from extend(row - 1, [times, *chosen], square + (side * (times - center)) ** 2)

    return extend(len(basis) - 1, [], 0.0)
