"""Sources: affine maps and views, bodies that only copy bits, dimensions of inputs that follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    PlanBinding,
    PlanTensor,
    RegisterValue,
    Role,
    View,
    apply,
    element,
    only_moves,
)

F32 = DataType.FLOAT32


def tensor(sizes, strides=None, offset=0, view=View.RAW):
    return PlanTensor(PlanBinding(Role.INPUT, 0), F32, sizes, strides or packed_strides(sizes), view, offset)


# ---- affine maps


def test_a_box_starts_somewhere_and_may_have_gaps():
    assert Affine.box((1, 2)) == Affine((1, 2), ((1, 0), (0, 1)))
    assert Affine.box((4, 0), (-2, 1)) == Affine((4, 0), ((-2, 0), (0, 1)))


def test_digits_make_up_coordinates():
    space = {"again": 3, "outer": 2, "inner": 5}
    affine = Affine.digits(space, [("outer", "inner"), ()])
    assert affine == Affine((0, 0), ((0, 5, 1), (0, 0, 0)))


@pytest.mark.parametrize(
    ("affine", "follows"),
    [
        pytest.param(Affine.box((1, 2)), (0, 1), id="box"),
        pytest.param(Affine.box((0, 0), (-1, 2)), (None, None), id="steps other than 1"),
        pytest.param(Affine.permutation((2, 0, 1)), (2, 0, 1), id="permutation"),
        pytest.param(Affine((0,), ((0, 4, 1),)), (None, None, 0), id="digits"),
        pytest.param(Affine((0, 0), ((1,), (1,))), (None,), id="a diagonal"),
    ],
)
def test_a_dimension_follows_the_one_that_it_moves_one_to_one_with(affine, follows):
    assert affine.follows == follows


def test_a_view_has_the_strides_of_its_source():
    affine = Affine((1, 0), ((2, 0, 0), (0, 2, 1)))
    view = affine.of(tensor((4, 6), (10, 1), offset=3), (2, 3, 2))
    assert (view.sizes, view.strides, view.offset) == ((2, 3, 2), (20, 2, 1), 13)


@given(st.permutations(range(3)), st.tuples(*[st.integers(-9, 9)] * 3))
def test_a_permuted_tensor_has_its_elements_in_the_order_of_its_new_dimensions(order, strides):
    sizes = (2, 3, 4)
    view = Affine.permutation(order).of(tensor(sizes, strides), tuple(sizes[dimension] for dimension in order))
    expected = element_offsets(sizes, strides).transpose(order)
    np.testing.assert_array_equal(element_offsets(view.sizes, view.strides), expected)


# ---- trees


def test_bodies_that_copy_bits_are_distinguished():
    raw = tensor((4,))
    assert only_moves(element("layout/reverse", F32, (4,), input=AffineView(raw, (4,), Affine.box((0,)))))
    for computed in (
        tensor((4,), view=View.COMPUTE),
        RegisterValue.product(F32, (4,)),
        apply("elementwise/cast", F32, (4,), input=raw),
    ):
        assert not only_moves(element("layout/reverse", F32, (4,), first=raw, second=computed))


def test_a_body_over_other_inputs_keeps_their_names():
    a, b, c = tensor((4,)), tensor((4,), offset=4), tensor((4,), offset=8)
    body = apply("elementwise/element_wise_subtract", F32, (4,), a=a, b=b)
    assert body.over([c, a]) == apply("elementwise/element_wise_subtract", F32, (4,), a=c, b=a)
    assert AffineView(a, (2,), Affine.box((1,))).over([b]) == AffineView(b, (2,), Affine.box((1,)))
    with pytest.raises(ValueError, match="zip"):
        body.over([c])
