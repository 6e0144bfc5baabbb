"""Cases of the operators that write at positions given by an index tensor."""

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
from dmlgpu.conformance.cases.indices import IndexingCases, draw_sizes_within, with_variant
from dmlgpu.conformance.cases.keys import Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import Layout, draw_tensor
from dmlgpu.conformance.cases.operator_cases import cases, draw_tensors

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
            indices = draw_tensor(index_type, updated, Layout.PERMUTED, rng)

        def fill(contents: np.random.Generator) -> Arrays:
            found = _places(contents, index_type, updated, extent=extent, axis=axis, variant=key.variant)
            return any_bits(contents, data_type, key.sizes), found, any_bits(contents, data_type, updated)

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
    """Indices that differ along the axis, or (DUPLICATES) occur at most twice."""
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
            indices = draw_tensor(index_type, indices_sizes, Layout.PERMUTED, rng)

        def fill(contents: np.random.Generator) -> Arrays:
            extents = np.array(source_sizes[:tuple_size])
            found = _tuples(contents, index_type, extents, indices_sizes, key.variant)
            return any_bits(contents, data_type, key.sizes), found, any_bits(contents, data_type, updates_sizes)

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
    """Coordinate tuples, along the last dimension, that differ or (DUPLICATES) occur at most twice."""
    pool = np.arange(math.prod(extents)).repeat(2 if variant == DUPLICATES else 1)
    chosen = rng.permutation(pool)[: math.prod(sizes[:-1])]
    values = np.stack(np.unravel_index(chosen, extents), axis=-1).reshape(sizes)
    return with_variant(rng, index_type, values, extents, variant)


def _with_rivals(case: Case, index_axes: tuple[int, ...], update_axes: tuple[int, ...]) -> Case:
    """The case where, of two updates of one element, the first may win as well as the last.

    Args:
        case: a case of a scatter.
        index_axes, update_axes: the dimensions that count updates, in both tensors; flipped, the order is reversed.
    """

    def alternatives(inputs: Arrays) -> tuple[Array, ...]:
        source, indices, updates = inputs
        assert indices is not None and updates is not None
        return reference.evaluate(case.desc, (source, np.flip(indices, index_axes), np.flip(updates, update_axes)))

    return replace(case, alternatives=alternatives)
