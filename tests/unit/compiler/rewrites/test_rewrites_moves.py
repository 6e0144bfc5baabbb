"""Moves: views that replace copies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import Affine, PlanBinding, PlanTensor, Role, View
from dmlgpu.compiler.rewrites.moves import Move, result_view

F32 = DataType.FLOAT32


def tensor(sizes, strides=None, offset=0, role=Role.INPUT):
    return PlanTensor(PlanBinding(role, 0), F32, sizes, strides or packed_strides(sizes), View.RAW, offset)


def places(view):
    """Return the memory offset of every element of a view."""
    return view.offset + element_offsets(view.sizes, view.strides)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 3).filter(bool)), min_size=1, max_size=3))
def test_a_slice_is_a_view(windows):
    counts, strides = zip(*windows, strict=True)
    sizes = tuple((count - 1) * abs(stride) + 1 for count, stride in windows)
    start = tuple(size - 1 if stride < 0 else 0 for size, stride in zip(sizes, strides, strict=True))
    move = Move(counts, Affine.box(start, strides), Affine.box((0,) * len(counts)))
    memory = np.arange(np.prod(sizes)).reshape(sizes)
    view = result_view(move, tensor(sizes), counts)
    np.testing.assert_array_equal(places(view), memory[tuple(slice(None, None, stride) for stride in strides)])


def test_a_piece_is_written_through_a_view_of_the_whole():
    piece = Move((2, 3), Affine.box((0, 0)), Affine.box((0, 4)), input=1)
    whole = tensor((2, 9), role=Role.OUTPUT)
    assert result_view(piece, tensor((2, 3)), (2, 9)) is None
    view = result_view(piece.reverse, whole, (2, 3))
    assert (view.sizes, view.strides, view.offset, view.binding.role) == ((2, 3), (9, 1), 4, Role.OUTPUT)
    assert (piece.reverse.input, piece.reverse.output) == (0, 1)


def tiled(size, count):
    space = {"again": count, "place": size}
    return Move((count, size), Affine.digits(space, [("place",)]), Affine.digits(space, [("again", "place")]))


def test_repetitions_of_a_single_element_are_a_view():
    assert result_view(tiled(1, 3), tensor((1,)), (3,)).strides == (0,)
    assert result_view(tiled(4, 1), tensor((4,), (2,)), (4,)).strides == (2,)
    assert result_view(tiled(4, 2), tensor((4,)), (8,)) is None


def blocked(row_stride):
    """Return blocks of 2 along a width of 6, from a height of 2 with a row stride."""
    space = {"row": 2, "column": 3, "across": 2}
    source = Affine.digits(space, [("row",), ("column", "across")])
    place = Affine.digits(space, [("row", "column"), ("across",)])
    return result_view(Move((2, 3, 2), source, place), tensor((2, 6), (row_stride, 1)), (6, 2))


def test_evenly_spaced_digits_are_a_view():
    assert blocked(6).strides == (2, 1)
    assert blocked(7) is None
