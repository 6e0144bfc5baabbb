"""Frames: dimensions are merged as far as possible, rows split into units, and elements keep their positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role
from dmlgpu.compiler.rewrites.moves import Frame, merge_frame

F32, U8 = DataType.FLOAT32, DataType.UINT8


def frame(sizes, start, end, step=None, *, data_type=F32, padded=0):
    step = step or (1,) * len(sizes)
    large = tuple((size - 1) * abs(s) + 1 + a + b for size, s, a, b in zip(sizes, step, start, end, strict=True))
    strides = packed_strides((*large[:-1], large[-1] + padded))
    return Frame(
        PlanTensor(PlanBinding(Role.INPUT, 0), data_type, sizes, packed_strides(sizes)),
        PlanTensor(PlanBinding(Role.OUTPUT, 0), data_type, large, strides),
        tuple(a + (0 if s > 0 else (size - 1) * -s) for size, s, a in zip(sizes, step, start, strict=True)),
        step,
    )


def pairs(framed):
    """Return the offset of each element in the input and in the output."""
    source = element_offsets(framed.input.sizes, framed.input.strides)
    at = np.indices(framed.input.sizes)
    place = sum(
        (first + step * coordinate) * stride
        for first, step, coordinate, stride in zip(framed.start, framed.step, at, framed.output.strides, strict=True)
    )
    return dict(zip(source.ravel().tolist(), np.asarray(place).ravel().tolist(), strict=True))


@pytest.mark.parametrize(
    ("unmerged", "whole_rows", "sizes", "large", "start"),
    [
        pytest.param(frame((3, 4, 5), (0, 0, 0), (0, 0, 0)), False, (60,), (60,), (0,), id="no frame"),
        pytest.param(frame((3, 4, 5), (1, 0, 0), (1, 0, 0)), False, (3, 20), (5, 20), (1, 0), id="single elements"),
        pytest.param(frame((3, 5, 5), (1, 0, 0), (1, 0, 0)), True, (75,), (125,), (25,), id="whole rows"),
        pytest.param(frame((3, 4), (1, 0), (1, 0)), True, (3, 4), (5, 4), (1, 0), id="whole rows in units"),
        pytest.param(frame((3, 4), (0, 4), (0, 8)), True, (3, 1, 4), (3, 4, 4), (0, 1, 0), id="units within rows"),
        pytest.param(frame((3, 4), (0, 4), (0, 8)), False, (3, 4), (3, 16), (0, 4), id="no units in mirrors"),
        pytest.param(frame((3, 4), (0, 4), (0, 3)), True, (3, 4), (3, 11), (0, 4), id="rows that are no units"),
        pytest.param(frame((3, 4), (1, 0), (0, 0), (2, 1)), True, (3, 4), (6, 4), (1, 0), id="gaps between rows"),
        pytest.param(frame((3, 5), (1, 0), (1, 0), padded=2), True, (3, 5), (5, 5), (1, 0), id="rows apart"),
    ],
)
def test_merged_dimensions(unmerged, whole_rows, sizes, large, start):
    merged = merge_frame(unmerged, whole_rows=whole_rows)
    assert (merged.input.sizes, merged.output.sizes, merged.start) == (sizes, large, start)


def test_units_are_as_wide_as_those_of_a_copy():
    merged = merge_frame(frame((64,), (32,), (64,), data_type=U8), whole_rows=True)
    assert merged.input.sizes == (4, 16) and merged.follows == (None, 1)


_dimension = st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 4), st.sampled_from([1, 1, 1, 2, -1, -3]))


@given(st.lists(_dimension, min_size=1, max_size=4), st.booleans(), st.integers(0, 2))
def test_merging_moves_no_element(dimensions, whole_rows, padded):
    sizes, start, end, step = zip(*dimensions, strict=True)
    given_frame = frame(sizes, start, end, step, padded=padded)
    assert pairs(merge_frame(given_frame, whole_rows=whole_rows)) == pairs(given_frame)


@given(st.lists(_dimension, min_size=1, max_size=4))
def test_dimensions_that_follow_have_the_same_coordinates(dimensions):
    sizes, start, end, step = zip(*dimensions, strict=True)
    merged = merge_frame(frame(sizes, start, end, step), whole_rows=True)
    for dimension, followed in enumerate(merged.follows):
        same = merged.input.sizes[dimension] == merged.output.sizes[dimension]
        assert (followed == dimension) == (same and merged.start[dimension] == 0 and merged.step[dimension] == 1)
