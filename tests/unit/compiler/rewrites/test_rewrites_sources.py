"""Traversal and rewriting of trees: shared nodes stay shared, slices of tensors become views."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets
from dmlgpu.compiler.plan import Affine, AffineView, PlanBinding, PlanTensor, RegisterValue, Role, View, apply, element
from dmlgpu.compiler.rewrites.sources import (
    computed,
    fold_views,
    identity,
    is_elementwise,
    leaves,
    permuted,
    rewrite,
    stepped,
)

F32 = DataType.FLOAT32


def tensor(sizes=(2, 4), strides=(4, 1), index=0, view=View.RAW, **fields):
    return PlanTensor(PlanBinding(Role.INPUT, index), F32, sizes, strides, view, **fields)


def sliced(source, start, step, sizes):
    return AffineView(source, sizes, Affine.box(start, step))


def diamond(depth):
    node = tensor(view=View.COMPUTE)
    for _ in range(depth):
        node = apply("subtract", F32, (2, 4), a=node, b=node)
    return node


def test_each_tensor_is_visited_once_if_its_users_are_shared():
    assert len(list(leaves(diamond(60)))) == 1
    assert len(list(leaves(apply("subtract", F32, (2, 4), a=tensor(), b=tensor(index=1))))) == 2


def test_rewriting_keeps_shared_nodes_shared():
    changed = rewrite(diamond(60), lambda source: source)
    for _ in range(60):
        (_, a), (_, b) = changed.inputs
        assert a is b
        changed = a


def test_slices_of_slices_of_a_tensor_become_one_view():
    inner = sliced(tensor((8, 9), (10, 1), offset=3), (1, 8), (2, -1), (3, 9))
    outer = sliced(inner, (2, 1), (-1, 3), (3, 3))
    assert fold_views(outer) == tensor((3, 3), (-20, -3), offset=3 + 5 * 10 + 7)


@given(st.integers(0, 2), st.sampled_from([-2, -1, 1, 2]), st.integers(1, 3), st.integers(-3, 3), st.integers(0, 5))
def test_a_view_has_the_elements_of_the_slice(low, step, size, stride, offset):
    start = low if step > 0 else low - step * (size - 1)
    whole = start + abs(step) * size
    base = offset + 50
    view = fold_views(sliced(tensor((whole,), (stride,), offset=base), (start,), (step,), (size,)))
    picked = base + element_offsets((whole,), (stride,))[[start + step * n for n in range(size)]]
    np.testing.assert_array_equal(view.offset + element_offsets(view.sizes, view.strides), picked)


def test_a_slice_of_a_computed_source_stays_a_view():
    view = sliced(apply("subtract", F32, (2, 4), a=tensor(), b=tensor()), (0, 0), (1, 1), (2, 4))
    assert fold_views(view) == view


def test_raw_tensors_become_numbers_and_indices_stay_indices():
    indices = tensor(view=View.INDEX)
    gather = element("indexing/gather_nd1", F32, (2, 4), input=tensor(index=1), indices=indices)
    views = {leaf.binding.index: leaf.view for leaf in leaves(computed(apply("f", F32, (2, 4), a=gather)))}
    assert views == {0: View.INDEX, 1: View.COMPUTE}


def test_only_bodies_over_the_outputs_coordinates_are_element_wise():
    assert is_elementwise(identity(diamond(60)))
    assert not is_elementwise(apply("subtract", F32, (2, 4), a=sliced(tensor(), (0, 0), (1, 1), (2, 4)), b=tensor()))


def test_an_element_wise_tree_is_permuted_in_its_tensors():
    tree = apply("add", F32, (2, 3, 4), a=tensor((2, 3, 4), (12, 4, 1)), b=RegisterValue.product(F32, (2, 3, 4)))
    turned = permuted(tree, (2, 0, 1))
    (_, a), (_, b) = turned.inputs
    assert turned.sizes == a.sizes == b.sizes == (4, 2, 3)
    assert a.strides == (1, 12, 4) and isinstance(b, RegisterValue)


def test_a_permuted_body_that_changes_coordinates_reads_them_in_its_own_order():
    body = sliced(tensor((8, 9), (9, 1)), (1, 2), (1, 1), (3, 5))
    turned = permuted(body, (1, 0))
    assert turned.sizes == (5, 3) and turned.affine.follows == (1, 0)
    view = fold_views(turned)
    offsets = element_offsets(view.sizes, view.strides) + view.offset
    np.testing.assert_array_equal(offsets, np.arange(72).reshape(8, 9)[1:4, 2:7].T)


def test_steps_through_a_tree_are_steps_through_its_tensors():
    tree = apply("add", F32, (6, 8), a=tensor((6, 8), (8, 1)), b=RegisterValue.product(F32, (6, 8)))
    part = stepped(tree, (2, 4), (1, 7), (3, -2))
    (_, a), (_, b) = part.inputs
    offsets = element_offsets(a.sizes, a.strides) + a.offset
    np.testing.assert_array_equal(offsets, np.arange(48).reshape(6, 8)[1::3, 7::-2])
    assert isinstance(b, RegisterValue) and part.sizes == b.sizes == (2, 4)
