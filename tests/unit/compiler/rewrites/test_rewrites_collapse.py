"""Merging of dimensions: the merged dimensions, and unchanged offsets of elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import Affine, AffineView, PlanBinding, PlanTensor, Role, View, apply
from dmlgpu.compiler.rewrites.collapse import (
    collapse,
    merge_dimensions,
    merge_sizes,
    merge_strides,
    merge_tensor,
    mergeable,
)
from dmlgpu.compiler.rewrites.sources import identity

F32 = DataType.FLOAT32


def tensor(sizes, strides=None, role=Role.INPUT, index=0, **fields):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(role, index), F32, tuple(sizes), tuple(strides), **fields)


@pytest.mark.parametrize(
    ("sizes", "strides", "groups"),
    [
        pytest.param((2, 3, 4), [(12, 4, 1)], ((0, 1, 2),), id="packed"),
        pytest.param((2, 3, 4), [(16, 4, 1)], ((0,), (1, 2)), id="a gap between blocks"),
        pytest.param((2, 3, 4), [(15, 5, 1)], ((0, 1), (2,)), id="a gap between rows"),
        pytest.param((2, 3, 4), [(12, 1, 3)], ((0,), (1,), (2,)), id="transposed"),
        pytest.param((2, 3, 4), [(24, 8, 2)], ((0, 1, 2),), id="a gap between neighbors"),
        pytest.param((1, 3, 1, 4), [(9, 4, 77, 1)], ((1, 3),), id="dimensions of size 1 have any stride"),
        pytest.param((1, 1), [(5, 7)], ((1,),), id="a single element"),
        pytest.param((2, 3, 4), [(12, 4, 1), (0, 4, 1)], ((0,), (1, 2)), id="one tensor repeats blocks"),
        pytest.param((2, 3, 4), [(12, 4, 1), (1, 0, 0)], ((0,), (1, 2)), id="one tensor repeats elements"),
        pytest.param((2, 3, 4), [(12, 4, 1), (0, 0, 0)], ((0, 1, 2),), id="one tensor is a scalar"),
        pytest.param((2, 3, 4), [(-12, -4, -1)], ((0, 1, 2),), id="mirrored in all dimensions"),
        pytest.param((2, 3, 4), [(12, 4, -1)], ((0, 1), (2,)), id="mirrored rows"),
        pytest.param((2, 3, 4), [(12, 4, 1), (12, 1, 3)], ((0,), (1,), (2,)), id="one tensor is transposed"),
    ],
)
def test_which_dimensions_merge(sizes, strides, groups):
    assert mergeable(sizes, strides) == groups


def test_dimensions_with_different_marks_are_not_merged():
    assert mergeable((2, 3, 4, 5), [packed_strides((2, 3, 4, 5))], [False, False, True, True]) == ((0, 1), (2, 3))


def test_merged_sizes_are_products_and_strides_those_of_the_innermost_dimension():
    groups = ((0, 1), (3,))
    assert merge_sizes((2, 3, 1, 4), groups) == (6, 4)
    assert merge_strides((15, 5, 99, 1), groups) == (5, 1)


def test_an_empty_run_of_dimensions_stays_empty():
    assert merge_dimensions((), (), ()) == ((), [(), ()])


def test_a_view_keeps_its_offset_and_lanes():
    merged = merge_tensor(tensor((2, 3), (-3, -1), offset=5), ((0, 1),))
    assert (merged.sizes, merged.strides, merged.offset) == ((6,), (-1,), 5)


_dimension = st.tuples(st.integers(1, 3), st.sampled_from([-6, -3, -1, 0, 1, 2, 3, 4, 6, 9, 12]))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-12, 12), st.integers(-12, 12)), min_size=1, max_size=5))
def test_every_element_keeps_its_offset(dimensions):
    sizes, *strides = zip(*dimensions, strict=True)
    merged, results = merge_dimensions(sizes, *strides)
    for before, after in zip(strides, results, strict=True):
        np.testing.assert_array_equal(element_offsets(sizes, before).ravel(), element_offsets(merged, after).ravel())


@given(st.lists(_dimension, min_size=1, max_size=5))
def test_no_mergeable_dimensions_remain(dimensions):
    sizes, strides = zip(*dimensions, strict=True)
    merged, (result,) = merge_dimensions(sizes, strides)
    assert len(merged) == 1 or 1 not in merged
    assert all(result[d] != result[d + 1] * merged[d + 1] for d in range(len(merged) - 1))


def test_element_wise_trees_collapse_with_their_output():
    shared = tensor((2, 3, 4))
    row = tensor((2, 3, 4), (0, 0, 1), index=1)
    product = apply("multiply", F32, (2, 3, 4), a=shared, b=row)
    body, output = collapse(apply("subtract", F32, (2, 3, 4), a=product, b=identity(shared)), tensor((2, 3, 4)))
    assert (output.sizes, output.strides) == ((6, 4), (4, 1))
    assert body.sizes == (6, 4)
    (_, a), (_, b) = body.inputs
    assert dict(a.inputs)["b"].strides == (0, 1)
    assert b.sizes == (6, 4) and b.follows == ((0, 1),)
    assert dict(a.inputs)["a"] is dict(b.inputs)["input"]


def test_a_repeated_tensor_deep_in_a_tree_keeps_dimensions_apart():
    deep = apply("multiply", F32, (6, 4), a=tensor((6, 4)), b=tensor((6, 4), (1, 0), index=1))
    _, output = collapse(apply("subtract", F32, (6, 4), a=deep, b=tensor((6, 4))), tensor((6, 4)))
    assert output.sizes == (6, 4)


def test_trees_that_change_coordinates_are_unchanged():
    source = tensor((2, 4), view=View.RAW)
    sliced = AffineView(source, (2, 4), Affine.box((0, 0)))
    body, output = apply("subtract", F32, (2, 4), a=sliced, b=tensor((2, 4))), tensor((2, 4))
    same_body, same_output = collapse(body, output)
    assert same_body is body and same_output is output
