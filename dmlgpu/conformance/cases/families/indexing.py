"""Cases of the operators that read or write at positions given by an index tensor, or by one of lengths."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.discriminating import SHARE
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout, draw_tensor
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register

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
    """Draw random indices into dimensions of these extents, which broadcast; changed by ``with_variant``. A third are
    what tells clamping, wrapping and counting from the end from each other: the first, the last, both from the end, and
    one beyond either side."""
    drawn = with_variant(rng, index_type, rng.integers(0, extents, sizes, np.int64), extents, variant)
    last = np.broadcast_to(extents, sizes).astype(np.int64)
    choices = [0 * last, last - 1, last] + ([-last, 0 * last - 1, -last - 1] if index_type.is_signed else [])
    discriminating = np.choose(rng.integers(0, len(choices), sizes), choices).astype(index_type.numpy)
    return np.where(rng.random(sizes) < SHARE, discriminating, drawn)


def with_variant(rng: np.random.Generator, index_type: DataType, values: Array, extents: Array, variant: str) -> Array:
    """Draw indices of a type, half of the signed ones from the end. By variant some are replaced by others, outside."""
    sizes = values.shape
    if index_type.is_signed:
        values = np.where(rng.random(sizes) < 0.5, values - extents, values)
    result = values.astype(index_type.numpy)
    if variant == OUTSIDE:
        result = np.where(rng.random(sizes) < 0.2, draw_outside(rng, index_type, extents, sizes), result)
    return result


def draw_outside(rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...]) -> Array:
    """Draw indices that lie outside: by one, at the limits of the type, and where 64 bits cut to 32 would lie
    inside."""
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
    """Draw sizes of some index dimensions, ``room`` elements at most; with ``fill`` the last one takes the
    remainder."""
    sizes: list[int] = []
    for left in range(count, 0, -1):
        most = max(1, room // math.prod(sizes))
        sizes.append(most if fill and left == 1 else min(most, int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 17, 70]))))
    return tuple(sizes)


# ---- reading ---------------------------------------------------------------------------------------------------------


SMALL_OUTPUT = 8192
"""Elements that a gather's output rarely exceeds."""
LARGE_OUTPUT = 4_300_000
"""Elements of the output of a gather from a large input: more than 65,535 workgroups of 64."""


@cases(descs.GatherNd1)
class GatherNd1Cases(IndexingCases):
    """GATHER_ND1: tuples of every length, batches, leading dimensions of size 1 that do not count."""

    batches = True
    standard_count = 50
    large_sizes: ClassVar[SizesList] = ((65537, 65), (20011, 64, 3))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
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
        free = draw_sizes_within(rng, index_rank - 1 - batch, room, fill=large)
        indices = (1,) * (rank - index_rank) + source[:batch] + free + (tuple_size,)
        output = source[:batch] + free + window
        data_type, index_type = key.types
        tensors = draw_tensors(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, indices, False),
            (data_type, (1,) * (rank - len(output)) + output, True),
        )
        extents = np.array(source[batch : batch + tuple_size])

        def fill(contents: np.random.Generator) -> Arrays:
            values = draw_indices(contents, index_type, extents, indices, key.variant)
            return any_bits(contents, data_type, key.sizes), values

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


# as GATHER_ND1, without batches
register(GatherNd1Cases, descs.GatherNd, batches=False, standard_count=30, large_sizes=())


@cases(descs.Gather)
class GatherCases(IndexingCases):
    """GATHER: every axis, index dimensions from none to all, leading 1s that the output drops."""

    standard_count = 40
    long_sizes: ClassVar[SizesList] = ((300, 130),)  # rows that are copied whole
    large_sizes: ClassVar[SizesList] = ((65537, 65), (20011, 64, 3))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        rank, large, rows = len(key.sizes), math.prod(key.sizes) > 1 << 20, key.sizes in self.long_sizes
        axis = 0 if rows else int(rng.integers(rank))
        ones = next((d for d in range(axis) if key.sizes[d] > 1), axis)
        most = rank if ones == axis else 1 + ones  # what the output has no room for must be 1s
        count = 1 if large or rows else int(rng.integers(most + 1))
        beside = math.prod(key.sizes) // key.sizes[axis]
        room = LARGE_OUTPUT if large else key.sizes[0] * beside if rows else SMALL_OUTPUT
        free = draw_sizes_within(rng, count, room // beside, fill=large or rows)
        dropped = max(count - 1 - ones, 0)
        free = (1,) * dropped + free[dropped:]
        picked = key.sizes[:axis] + free + key.sizes[axis + 1 :]
        data_type, index_type = key.types
        indices_sizes = (1,) * (rank - count) + free
        source, indices, output = draw_tensors(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, indices_sizes, False),
            (data_type, (1, *picked)[-rank:], True),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            extents, variant = np.array(key.sizes[axis]), OUTSIDE if rows else key.variant
            return any_bits(contents, data_type, key.sizes), draw_indices(
                contents, index_type, extents, indices_sizes, variant
            )

        desc = descs.Gather(
            input_tensor=source, indices_tensor=indices, output_tensor=output, axis=axis, index_dimensions=count
        )
        return Case(name, desc, fill)


@cases(descs.GatherElements)
class GatherElementsCases(IndexingCases):
    """GATHER_ELEMENTS: more and fewer indices along the axis than elements."""

    standard_count = 40
    large_sizes: ClassVar[SizesList] = ((65537, 65),)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = int(rng.integers(len(key.sizes)))
        extent = key.sizes[axis]
        picked = (*key.sizes[:axis], int(rng.integers(1, extent + 4)), *key.sizes[axis + 1 :])
        data_type, index_type = key.types
        source, indices, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (index_type, picked, False), (data_type, picked, True)
        )

        def fill(contents: np.random.Generator) -> Arrays:
            values = draw_indices(contents, index_type, np.array(extent), picked, key.variant)
            return any_bits(contents, data_type, key.sizes), values

        desc = descs.GatherElements(input_tensor=source, indices_tensor=indices, output_tensor=output, axis=axis)
        return Case(name, desc, fill)


@cases(descs.ReverseSubsequences)
class ReverseSubsequencesCases(IndexingCases):
    """REVERSE_SUBSEQUENCES: lengths from 0 to the whole line, or (OUTSIDE) beyond it."""

    type_fields = ("InputTensor", "SequenceLengthsTensor")
    standard_count = 40

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = int(rng.integers(len(key.sizes)))
        extent = key.sizes[axis]
        lines = (*key.sizes[:axis], 1, *key.sizes[axis + 1 :])
        data_type, length_type = key.types
        source, lengths, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (length_type, lines, False), (data_type, key.sizes, True)
        )

        def fill(contents: np.random.Generator) -> Arrays:
            drawn = contents.integers(0, extent + 1, lines).astype(length_type.numpy)
            whole_or_none = contents.choice(np.array([0, 1, extent], length_type.numpy), lines)
            drawn = np.where(contents.random(lines) < SHARE, whole_or_none, drawn)
            if key.variant == OUTSIDE:
                beyond = draw_outside(contents, length_type, np.array(extent), lines)
                drawn = np.where(contents.random(lines) < 0.5, beyond, drawn)
            return any_bits(contents, data_type, key.sizes), drawn

        desc = descs.ReverseSubsequences(
            input_tensor=source, sequence_lengths_tensor=lengths, output_tensor=output, axis=axis
        )
        return Case(name, desc, fill)


# ---- writing ---------------------------------------------------------------------------------------------------------


DUPLICATES = "duplicates"


class _ScatterCases(IndexingCases):
    """Scatters: besides, several updates of one place."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), DUPLICATES)


@cases(descs.ScatterElements)
class ScatterElementsCases(_ScatterCases):
    """SCATTER_ELEMENTS: each element updated at most once, or (DUPLICATES) at most twice."""

    large_sizes: ClassVar[SizesList] = ((65537, 65),)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = int(rng.integers(len(key.sizes)))
        extent = key.sizes[axis]
        count = int(rng.integers(1, (2 if key.variant == DUPLICATES else 1) * extent + 1))
        updated = (*key.sizes[:axis], count, *key.sizes[axis + 1 :])
        data_type, index_type = key.types
        source, indices, updates, output = draw_tensors(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, updated, False),
            (data_type, updated, False),
            (data_type, key.sizes, True),
        )
        if count > 1 and indices.element_strides[axis] == 0:  # equal indices along the axis would be duplicates
            indices = draw_tensor(index_type, updated, TensorLayout.PERMUTED, rng)

        def fill(contents: np.random.Generator) -> Arrays:
            places = _places(contents, index_type, updated, extent=extent, axis=axis, variant=key.variant)
            return any_bits(contents, data_type, key.sizes), places, any_bits(contents, data_type, updated)

        desc = descs.ScatterElements(
            input_tensor=source, indices_tensor=indices, updates_tensor=updates, output_tensor=output, axis=axis
        )
        case = Case(name, desc, fill)
        return _with_rivals(case, (axis,), (axis,)) if key.variant == DUPLICATES else case

    def documented(self, case: Case) -> Case:
        """The first example updates an element twice."""
        assert isinstance(case.desc, descs.ScatterElements)
        return _with_rivals(case, (case.desc.axis,), (case.desc.axis,))


def _places(
    rng: np.random.Generator, index_type: DataType, sizes: tuple[int, ...], *, extent: int, axis: int, variant: str
) -> Array:
    """Draw indices that differ along the axis, or (DUPLICATES) occur at most twice."""
    pool = np.arange(extent).repeat(2 if variant == DUPLICATES else 1)
    lines = np.broadcast_to(pool, (*sizes[:axis], *sizes[axis + 1 :], pool.size))
    values = np.moveaxis(rng.permuted(lines, axis=-1)[..., : sizes[axis]], -1, axis)
    return with_variant(rng, index_type, values, np.array(extent), variant)


@cases(descs.ScatterNd)
class ScatterNdCases(_ScatterCases):
    """SCATTER_ND: tuples of every length, each block updated at most once, or (DUPLICATES) at most twice."""

    standard_count = 50
    large_sizes: ClassVar[SizesList] = ((65537, 65), (20011, 64, 3))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        rank = len(key.sizes)
        ones = next((i for i, size in enumerate(key.sizes) if size > 1), rank - 1)
        counted = int(rng.integers(rank - ones, rank + 1))
        source_sizes = key.sizes[rank - counted :]
        index_rank = int(rng.integers(1, rank + 1))
        fewest = max(1, index_rank - 1 + counted - rank)  # the updates have no more dimensions than the input
        tuple_size = int(rng.integers(fewest, counted + 1))
        repeats = 2 if key.variant == DUPLICATES else 1
        places = math.prod(source_sizes[:tuple_size])
        free = draw_sizes_within(rng, index_rank - 1, repeats * places, fill=bool(rng.integers(2)))
        indices_sizes = (1,) * (rank - index_rank) + free + (tuple_size,)
        blocks = free + source_sizes[tuple_size:]
        updates_sizes = (1,) * (rank - len(blocks)) + blocks
        data_type, index_type = key.types
        source, indices, updates, output = draw_tensors(
            key,
            rng,
            (data_type, key.sizes, False),
            (index_type, indices_sizes, False),
            (data_type, updates_sizes, False),
            (data_type, key.sizes, True),
        )
        if has_overlap(indices.sizes, indices.element_strides):  # equal tuples would be duplicates
            indices = draw_tensor(index_type, indices_sizes, TensorLayout.PERMUTED, rng)

        def fill(contents: np.random.Generator) -> Arrays:
            extents = np.array(source_sizes[:tuple_size])
            places = _tuples(contents, index_type, extents, indices_sizes, key.variant)
            return any_bits(contents, data_type, key.sizes), places, any_bits(contents, data_type, updates_sizes)

        desc = descs.ScatterNd(
            input_tensor=source,
            indices_tensor=indices,
            updates_tensor=updates,
            output_tensor=output,
            input_dimension_count=counted,
            indices_dimension_count=index_rank,
        )
        case = Case(name, desc, fill)
        first = rank - len(blocks)
        axes = tuple(range(rank - index_rank, rank - 1)), tuple(range(first, first + len(free)))
        return _with_rivals(case, *axes) if key.variant == DUPLICATES else case


def _tuples(
    rng: np.random.Generator, index_type: DataType, extents: Array, sizes: tuple[int, ...], variant: str
) -> Array:
    """Draw coordinate tuples, along the last dimension, that differ or (DUPLICATES) occur at most twice."""
    pool = np.arange(math.prod(extents)).repeat(2 if variant == DUPLICATES else 1)
    chosen = rng.permutation(pool)[: math.prod(sizes[:-1])]
    values = np.stack(np.unravel_index(chosen, extents), axis=-1).reshape(sizes)
    return with_variant(rng, index_type, values, extents, variant)


def _with_rivals(case: Case, index_axes: tuple[int, ...], update_axes: tuple[int, ...]) -> Case:
    """Return the case where, of two updates of one element, the first may win as well as the last.

    Args:
        case: A case of a scatter.
        index_axes, update_axes: The dimensions that count updates, in both tensors; flipped, the order is reversed.
    """

    def alternatives(inputs: Arrays) -> tuple[Array, ...]:
        source, indices, updates = inputs
        assert indices is not None and updates is not None
        return reference.evaluate(case.desc, (source, np.flip(indices, index_axes), np.flip(updates, update_axes)))

    return replace(case, alternatives=alternatives)
