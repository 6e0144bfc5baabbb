"""The order of stores: the chosen walk, which visits every unit exactly once."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.catalog.tensor_desc import packed_strides, span
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role
from dmlgpu.compiler.schedule.launch import Digit, choose_walk

U4, U8, F16, F32, I64 = (DataType[name] for name in ("UINT4", "UINT8", "FLOAT16", "FLOAT32", "INT64"))


def output(sizes, strides=None, data_type=U8, lanes=1):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(Role.OUTPUT, 0), data_type, tuple(sizes), tuple(strides), lanes=lanes)


def locate(walk, index):
    """Compute coordinates by dimension from a running index as the shader does; None in a gap."""
    at, rest = {}, index
    for digit in walk.digits:
        if digit.size == 1:
            at[digit.dimension] = 0
            continue
        at[digit.dimension], rest = divmod(rest, digit.stride) if digit.stride > 1 else (rest, rest)
        if digit.checked and at[digit.dimension] >= digit.size:
            return None
    if walk.gaps and rest:
        return None
    return tuple(at[dimension] for dimension in sorted(at))


def visited(walk):
    return [at for at in (locate(walk, index) for index in range(walk.count)) if at is not None]


@pytest.mark.parametrize(
    ("sizes", "strides", "kind"),
    [
        pytest.param((3, 8), (8, 1), "words", id="packed"),
        pytest.param((3, 5), (9, 1), "words", id="gaps between rows"),
        pytest.param((3, 5), (11, 2), "words", id="gaps between neighbors"),
        pytest.param((4, 6), (1, 5), "words", id="transposed"),
        pytest.param((4, 3), (3, 4), "exchange", id="strides that do not nest"),
        pytest.param((2, 2), (1, 1 + 2), "words", id="span twice the units"),
        pytest.param((2, 4), (29, 1), "exchange", id="span more than four times the units"),
        pytest.param((2, 4), (28, 1), "words", id="span four times the units"),
        pytest.param((1, 1), (9, 9), "words", id="one element"),
    ],
)
@pytest.mark.parametrize("data_type", [U8, F16], ids=lambda t: t.name)
def test_small_units_are_visited_by_words_if_that_is_cheap(sizes, strides, kind, data_type):
    walk = choose_walk(output(sizes, strides, data_type))
    assert (walk.by_words, walk.exchange) == (kind == "words", kind == "exchange")
    assert walk.count == (span(sizes, strides) if kind == "words" else math.prod(sizes))


@pytest.mark.parametrize(("data_type", "lanes"), [(F32, 1), (I64, 1), (U8, 4), (F16, 4), (U4, 8), (F32, 4)])
def test_units_of_whole_words_are_never_walked_over_gaps(data_type, lanes):
    walk = choose_walk(output((3, 5), (1000, 7), data_type, lanes))
    assert (walk.count, walk.by_words, walk.exchange, walk.gaps) == (15, False, False, False)


def test_units_go_in_the_order_of_memory():
    walk = choose_walk(output((4, 1, 3, 5), (1, 99, 60, 4), F32))
    assert walk.digits == (Digit(1, 1, 0), Digit(2, 3, 20), Digit(3, 5, 4), Digit(0, 4, 1))


def test_digits_are_checked_only_where_the_next_stride_leaves_room():
    walk = choose_walk(output((2, 3, 4), (16, 5, 1)))
    assert [(digit.dimension, digit.checked) for digit in walk.digits] == [(0, False), (1, True), (2, True)]
    assert not any(digit.checked for digit in choose_walk(output((2, 3, 4))).digits)
    assert not choose_walk(output((2, 3, 4))).gaps


_dimensions = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=4)


@given(_dimensions, st.sampled_from([U4, U8, F16, F32]))
def test_every_unit_is_visited_once(dimensions, data_type):
    sizes, strides = zip(*dimensions, strict=True)
    if has_overlap(sizes, strides):
        return
    walk = choose_walk(output(sizes, strides, data_type))
    assert sorted(visited(walk)) == list(itertools.product(*map(range, sizes)))


@given(_dimensions)
def test_by_words_the_running_index_is_the_memory_offset(dimensions):
    sizes, strides = zip(*dimensions, strict=True)
    if has_overlap(sizes, strides):
        return
    walk = choose_walk(output(sizes, strides, U8))
    if not walk.by_words:
        return
    for index in range(walk.count):
        at = locate(walk, index)
        assert at is None or sum(a * stride for a, stride in zip(at, strides, strict=True)) == index


@given(_dimensions, st.integers(0, 9), st.sampled_from([U4, U8, F16]))
def test_by_words_units_lie_where_the_offset_says(dimensions, offset, data_type):
    sizes, strides = zip(*dimensions, strict=True)
    if has_overlap(sizes, strides):
        return
    tensor = replace(output(sizes, strides, data_type), offset=offset)
    walk = choose_walk(tensor, keeps_neighbors=True)
    if not walk.by_words:
        return
    per_word = 32 // data_type.bits
    assert walk.keeps_neighbors and walk.word * per_word + walk.first == offset
    assert walk.items(tensor) == -(-(walk.first + walk.count) // per_word)


@pytest.mark.parametrize(("data_type", "lanes"), [(F32, 1), (U8, 4)])
def test_units_of_whole_words_preserve_nothing(data_type, lanes):
    walk = choose_walk(output((3, 5), (1000, 7), data_type, lanes), keeps_neighbors=True)
    assert (walk.by_words, walk.keeps_neighbors) == (False, False)
