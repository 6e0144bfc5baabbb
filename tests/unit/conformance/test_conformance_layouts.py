"""Layouts: what each promises about its strides."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides, span
from dmlgpu.conformance.cases.layouts import EDGE_SIZES, TensorLayout, draw_sizes, draw_tensor, strides

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8).filter(lambda sizes: math.prod(sizes) <= 4096).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(sizes, layout, seed):
    return strides(sizes, layout, np.random.default_rng(seed))


def offsets(sizes, given_strides):
    return element_offsets(sizes, given_strides).ravel()


@given(SIZES, st.sampled_from(TensorLayout), SEEDS)
def test_no_output_has_two_elements_in_one_place(sizes, layout, seed):
    tensor = draw_tensor(DataType.INT8, sizes, layout, np.random.default_rng(seed), output=True)
    places = offsets(tensor.sizes, tensor.element_strides)
    assert np.unique(places).size == places.size
    assert tensor.sizes == sizes


@given(SIZES, SEEDS)
def test_permuted_tensors_have_no_gaps(sizes, seed):
    assert sorted(offsets(sizes, drawn(sizes, TensorLayout.PERMUTED, seed))) == list(range(math.prod(sizes)))


@given(SIZES)
def test_explicit_strides_are_the_packed_ones(sizes):
    assert drawn(sizes, TensorLayout.EXPLICIT, 0) == packed_strides(sizes)


@given(SIZES.filter(lambda sizes: len(sizes) > 1), SEEDS)
def test_aligned_rows_start_at_multiples_of_four(sizes, seed):
    result = drawn(sizes, TensorLayout.ALIGNED, seed)
    assert result[-1] == 1
    assert all(stride % 4 == 0 for stride in result[:-1])


@given(SIZES.filter(lambda sizes: len(sizes) > 1), SEEDS)
def test_near_rows_are_one_off_a_multiple_of_four_or_packed(sizes, seed):
    result = drawn(sizes, TensorLayout.NEAR, seed)
    assert result[-1] == 1
    assert result[-2] % 4 in (1, 3) or result[-2] == sizes[-1]


@pytest.mark.parametrize("layout", [TensorLayout.STRIDED])
@given(SIZES, SEEDS)
def test_strided_elements_have_gaps(layout, sizes, seed):
    assert min(drawn(sizes, layout, seed)) >= 2


@given(SIZES.filter(lambda sizes: max(sizes) > 1), SEEDS)
def test_broadcast_tensors_repeat_elements(sizes, seed):
    result = drawn(sizes, TensorLayout.BROADCAST, seed)
    assert any(stride == 0 and size > 1 for stride, size in zip(result, sizes, strict=True))
    assert span(sizes, result) < math.prod(sizes)


def nests(sizes, given_strides):
    """Whether each stride is at least the span of the dimensions with smaller ones."""
    reach = 1
    for stride, size in sorted((s, n) for s, n in zip(given_strides, sizes, strict=True) if n > 1):
        if stride < reach:
            return False
        reach += (size - 1) * stride
    return True


def test_interleaved_strides_do_not_nest():
    seeds = range(50)
    layouts = [drawn((5, 7, 3), TensorLayout.INTERLEAVED, seed) for seed in seeds]
    assert sum(not nests((5, 7, 3), each) for each in layouts) > 40


def test_padded_and_permuted_strides_nest():
    for layout, seed in itertools.product(
        (TensorLayout.PADDED, TensorLayout.PERMUTED, TensorLayout.STRIDED), range(20)
    ):
        assert nests((5, 7, 3), drawn((5, 7, 3), layout, seed))


@given(SIZES, SEEDS)
def test_slack_adds_bytes(sizes, seed):
    tensor = draw_tensor(DataType.UINT8, sizes, TensorLayout.SLACK, np.random.default_rng(seed))
    assert tensor.byte_size >= math.prod(sizes) + 4
    assert tensor.byte_size % 4 == 0


@given(st.integers(1, 8), SEEDS)
def test_drawn_sizes_keep_to_the_limit(rank, seed):
    sizes = draw_sizes(np.random.default_rng(seed), rank, 500)
    assert len(sizes) == rank
    assert math.prod(sizes) <= 500
    assert set(sizes) <= set(EDGE_SIZES)
