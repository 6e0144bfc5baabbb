"""Seeded index tensors, and what the cases of operators that take them share."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.conformance.cases.contents import Array
from dmlgpu.conformance.cases.keys import PLAIN, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.telling import SHARE

NEGATIVE = "negative"
OUTSIDE = "outside"


class IndexingCases(OperatorCases):
    """Data of any type, indices of four types."""

    type_fields: ClassVar[tuple[str, ...]] = ("InputTensor", "IndicesTensor")

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, OUTSIDE, NEGATIVE) if types[1].is_signed else (PLAIN, OUTSIDE)


def draw_indices(
    rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...], variant: str
) -> Array:
    """Random indices into dimensions of these extents, which broadcast; changed by ``with_variant``. A third are what
    tells clamping, wrapping and counting from the end from each other: the first, the last, both from the end, and one
    beyond either side."""
    drawn = with_variant(rng, index_type, rng.integers(0, extents, sizes, np.int64), extents, variant)
    last = np.broadcast_to(extents, sizes).astype(np.int64)
    choices = [0 * last, last - 1, last] + ([-last, 0 * last - 1, -last - 1] if index_type.is_signed else [])
    telling = np.choose(rng.integers(0, len(choices), sizes), choices).astype(index_type.numpy)
    return np.where(rng.random(sizes) < SHARE, telling, drawn)


def with_variant(rng: np.random.Generator, index_type: DataType, values: Array, extents: Array, variant: str) -> Array:
    """Indices of a type, half of the signed ones from the end. By variant some are replaced by others, outside."""
    sizes = values.shape
    if index_type.is_signed:
        values = np.where(rng.random(sizes) < 0.5, values - extents, values)
    result = values.astype(index_type.numpy)
    if variant == OUTSIDE:
        result = np.where(rng.random(sizes) < 0.2, draw_outside(rng, index_type, extents, sizes), result)
    return result


def draw_outside(rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...]) -> Array:
    """Indices that lie outside: by one, at the limits of the type, and where 64 bits cut to 32 would lie inside."""
    limits = np.iinfo(index_type.numpy)
    far = [limits.max, limits.max - 1]
    far += [1 << 32, (1 << 32) + 1, 1 << 31, (1 << 63) - 1] if index_type.bits == 64 else []
    far += [limits.min, limits.min + 1] if index_type.is_signed else [1 << 31]
    far += [-(1 << 32), 1 - (1 << 32)] if index_type.is_signed and index_type.bits == 64 else []
    near = np.broadcast_to(extents, sizes).astype(index_type.numpy)
    if index_type.is_signed:
        near = np.where(rng.random(sizes) < 0.5, -near - 1, near)
    return np.where(rng.random(sizes) < 0.5, rng.choice(np.array(far, index_type.numpy), sizes), near)


def draw_sizes_within(rng: np.random.Generator, count: int, room: int, *, fill: bool = False) -> tuple[int, ...]:
    """Sizes of some index dimensions, ``room`` elements at most; with ``fill`` the last one takes what is left."""
    sizes: list[int] = []
    for left in range(count, 0, -1):
        most = max(1, room // math.prod(sizes))
        sizes.append(most if fill and left == 1 else min(most, int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 17, 70]))))
    return tuple(sizes)
