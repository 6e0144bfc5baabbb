"""Cases of the operators that read or write at places given by an index tensor."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dmlgpu import descs, reference
from dmlgpu.conformance.case import Array, Arrays, Case
from dmlgpu.conformance.layouts import Layout, place
from dmlgpu.conformance.operator_cases import PLAIN, Key, OperatorCases, SizesList, Types, cases, place_all
from dmlgpu.conformance.values import any_bits
from dmlgpu.enums import DataType, FeatureLevel

NEGATIVE = "negative"
OUTSIDE = "outside"
DUPLICATES = "duplicates"

SMALL_OUTPUT = 8192
"""Elements that a gather's output rarely exceeds."""
LARGE_OUTPUT = 4_300_000
"""Elements of the output of a gather from a large input: more than 65,535 workgroups of 64."""


class _IndexingCases(OperatorCases):
    """Data of any type, indices of four types."""

    @property
    def types(self) -> tuple[Types, ...]:
        """All combinations that the newest feature level allows."""
        table = self.schema.support_at(FeatureLevel.LEVEL_6_4)
        return tuple(itertools.product(table["InputTensor"].types, table["IndicesTensor"].types))

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (PLAIN, OUTSIDE, NEGATIVE) if types[1].is_signed else (PLAIN, OUTSIDE)


@cases(descs.GatherNd1)
class GatherNd1Cases(_IndexingCases):
    """GATHER_ND1: tuples of every length, batches, leading dimensions of size 1 that do not count."""

    batches = True
    large_sizes: ClassVar[SizesList] = ((65537, 65), (20011, 64, 3))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        rank, large = len(key.sizes), math.prod(key.sizes) > 1 << 20
        ones = next((i for i, size in enumerate(key.sizes) if size > 1), rank - 1)
        counted = int(rng.integers(rank - ones, rank + 1))
        batch = int(rng.integers(counted)) if self.batches and not large and rng.integers(2) else 0
        index_rank = rank if large else int(rng.integers(batch + 1, rank + 1))
        fewest = max(1, index_rank - 1 + counted - batch - rank)  # the output has no more dimensions than the input
        tuple_size = int(rng.integers(fewest, counted - batch + 1))
        source = key.sizes[rank - counted :]
        window = source[batch + tuple_size :]
        room = (LARGE_OUTPUT if large else SMALL_OUTPUT) // math.prod(source[:batch] + window)
        free = _free_sizes(rng, index_rank - 1 - batch, room, large)
        indices = (1,) * (rank - index_rank) + source[:batch] + free + (tuple_size,)
        output = source[:batch] + free + window
        data_type, index_type = key.types
        tensors = place_all(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, indices, False),
            (data_type, (1,) * (rank - len(output)) + output, True),
        )
        extents = np.array(source[batch : batch + tuple_size])

        def fill(contents: np.random.Generator) -> Arrays:
            found = _indices(contents, index_type, extents, indices, key.variant)
            return any_bits(contents, data_type, key.sizes), found

        batch_field = {"batch_dimension_count": batch} if self.batches else {}
        desc = self.desc_class(
            input_tensor=tensors[0],
            indices_tensor=tensors[1],
            output_tensor=tensors[2],
            input_dimension_count=counted,
            indices_dimension_count=index_rank,
            **batch_field,
        )
        return Case(name, desc, fill)


@cases(descs.GatherNd)
class GatherNdCases(GatherNd1Cases):
    """GATHER_ND: as GATHER_ND1, without batches."""

    batches = False
    large_sizes: ClassVar[SizesList] = ()


def _free_sizes(rng: np.random.Generator, count: int, room: int, large: bool) -> tuple[int, ...]:
    """Sizes of the index dimensions between batch and tuple, ``room`` elements at most; all of it where ``large``."""
    sizes: list[int] = []
    for left in range(count, 0, -1):
        most = max(1, room // math.prod(sizes))
        sizes.append(most if large and left == 1 else min(most, int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 17, 70]))))
    return tuple(sizes)


def _indices(
    rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...], variant: str
) -> Array:
    """Random indices; the last dimension goes over ``extents``. By variant some are negative or lie outside."""
    values = rng.integers(0, extents, sizes, np.int64)
    if variant in (NEGATIVE, OUTSIDE) and index_type.is_signed:
        values = np.where(rng.random(sizes) < 0.5, values - extents, values)
    result = values.astype(index_type.numpy)
    if variant == OUTSIDE:
        result = np.where(rng.random(sizes) < 0.2, _outside(rng, index_type, extents, sizes), result)
    return result


def _outside(rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...]) -> Array:
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


@cases(descs.ScatterElements)
class ScatterElementsCases(_IndexingCases):
    """SCATTER_ELEMENTS: each element updated at most once, or (DUPLICATES) at most twice."""

    large_sizes: ClassVar[SizesList] = ((65537, 65),)

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (*super().variants(types), DUPLICATES)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        axis = int(rng.integers(len(key.sizes)))
        extent = key.sizes[axis]
        count = int(rng.integers(1, (2 if key.variant == DUPLICATES else 1) * extent + 1))
        updated = (*key.sizes[:axis], count, *key.sizes[axis + 1 :])
        data_type, index_type = key.types
        source, indices, updates, output = place_all(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, updated, False),
            (data_type, updated, False),
            (data_type, key.sizes, True),
        )
        if count > 1 and indices.element_strides[axis] == 0:  # equal indices along the axis would be duplicates
            indices = place(index_type, updated, Layout.PERMUTED, rng)

        def fill(contents: np.random.Generator) -> Arrays:
            found = _places(contents, index_type, updated, extent=extent, axis=axis, variant=key.variant)
            return any_bits(contents, data_type, key.sizes), found, any_bits(contents, data_type, updated)

        desc = descs.ScatterElements(
            input_tensor=source, indices_tensor=indices, updates_tensor=updates, output_tensor=output, axis=axis
        )
        case = Case(name, desc, fill)
        return _with_rivals(case) if key.variant == DUPLICATES else case

    def documented(self, case: Case) -> Case:
        """The first example updates an element twice."""
        return _with_rivals(case)


def _with_rivals(case: Case) -> Case:
    """The case where, of two updates of one element, the first may win as well as the last."""
    desc = case.desc
    assert isinstance(desc, descs.ScatterElements)
    axis = desc.axis

    def rivals(inputs: Arrays) -> tuple[Array, ...]:
        source, indices, updates = inputs
        assert indices is not None and updates is not None
        return reference.evaluate(desc, (source, np.flip(indices, axis), np.flip(updates, axis)))

    return replace(case, rivals=rivals)


def _places(
    rng: np.random.Generator, index_type: DataType, sizes: tuple[int, ...], *, extent: int, axis: int, variant: str
) -> Array:
    """Indices that differ along the axis, or (DUPLICATES) occur at most twice."""
    pool = np.arange(extent).repeat(2 if variant == DUPLICATES else 1)
    lines = np.broadcast_to(pool, (*sizes[:axis], *sizes[axis + 1 :], pool.size))
    values = np.moveaxis(rng.permuted(lines, axis=-1)[..., : sizes[axis]], -1, axis)
    if variant in (NEGATIVE, OUTSIDE) and index_type.is_signed:
        values = np.where(rng.random(sizes) < 0.5, values - extent, values)
    result = values.astype(index_type.numpy)
    if variant == OUTSIDE:
        outside = _outside(rng, index_type, np.array(extent), sizes)
        result = np.where(rng.random(sizes) < 0.3, outside, result)
    return result
