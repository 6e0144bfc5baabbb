"""Cases of the operators that read at positions given by an index tensor, or by one of lengths."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.indices import OUTSIDE, IndexingCases, draw_indices, draw_outside, draw_sizes_within
from dmlgpu.conformance.cases.keys import Key, SizesList
from dmlgpu.conformance.cases.operator_cases import cases, draw_tensors, register
from dmlgpu.conformance.cases.telling import SHARE

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
            found = draw_indices(contents, index_type, extents, indices, key.variant)
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
            found = draw_indices(contents, index_type, np.array(extent), picked, key.variant)
            return any_bits(contents, data_type, key.sizes), found

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
