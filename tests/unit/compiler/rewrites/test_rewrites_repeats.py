"""Nearest neighbor by whole factors as strides over split dimensions."""

import numpy as np
import pytest

from dmlgpu import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.plan import Affine, AffineView, PlanTensor, Role, View, apply
from dmlgpu.compiler.rewrites.resampling import ResampledAxis, Rounding, nearest, split_repeats
from dmlgpu.compiler.rewrites.sources import IDENTITY, identity, leaves, nodes

DOWN, UP = Rounding(increasing=False), Rounding(increasing=True)


def tensor(index, *sizes, view=View.COMPUTE, data_type=DataType.FLOAT32):
    return PlanTensor.of(Role.INPUT, index, TensorDesc(data_type, sizes), view)


def output(*sizes, data_type=DataType.FLOAT32):
    return PlanTensor.of(Role.OUTPUT, 0, TensorDesc(data_type, sizes))


def axis(dimension, size, factor, offset=0.0):
    return ResampledAxis.of(dimension, size, size * factor, float(factor), offset, 0.0)


def test_a_repeated_dimension_is_split_and_has_no_stride():
    seen = nearest(tensor(0, 3, 4, 5), [axis(1, 4, 2), axis(2, 5, 3)], DOWN)
    body = apply("elementwise/element_wise_add", DataType.FLOAT32, (3, 8, 15), a=tensor(1, 3, 8, 15), b=seen)
    split, written = split_repeats(body, output(3, 8, 15))
    assert written.sizes == split.sizes == (3, 4, 2, 5, 3)
    assert written.strides == (120, 30, 15, 3, 1)
    plain, repeated = split.children
    assert plain.strides == written.strides
    assert (repeated.binding.index, repeated.strides) == (0, (20, 5, 0, 1, 0))


def test_strides_address_the_elements_of_nearest_neighbor():
    source = np.arange(4 * 5).reshape(4, 5)
    body = identity(nearest(tensor(0, 4, 5), [axis(0, 4, 2), axis(1, 5, 4)], DOWN))
    split, _ = split_repeats(body, output(8, 20))
    (leaf,) = leaves(split)
    seen = np.lib.stride_tricks.as_strided(source, leaf.sizes, [8 * stride for stride in leaf.strides])
    np.testing.assert_array_equal(seen.reshape(8, 20), source.repeat(2, 0).repeat(4, 1))


def test_views_with_other_dimensions_are_split():
    seen = nearest(tensor(0, 3, 4, 5), [axis(1, 4, 2), axis(2, 5, 2)], DOWN)
    view = AffineView(seen, (1, 3, 8, 10), Affine((0, 0, 0), ((0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))))
    split, written = split_repeats(identity(view), output(1, 3, 8, 10))
    (leaf,) = leaves(split)
    assert (written.sizes, leaf.strides) == ((1, 3, 4, 2, 5, 2), (0, 20, 5, 0, 1, 0))


def test_copied_elements_are_copied_as_integers():
    seen = nearest(tensor(0, 5, view=View.RAW), [axis(0, 5, 4)], DOWN)
    split, written = split_repeats(seen, output(20))
    assert {node.data_type for node in nodes(split)} == {written.data_type} == {DataType.UINT32}
    assert split.file == IDENTITY


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (nearest(tensor(0, 5), [axis(0, 5, 4)], UP), (20,)),  # element 1 lies at 0.25: up is the next one
        (nearest(tensor(0, 5), [axis(0, 5, 4, 0.5)], DOWN), (20,)),
        (nearest(tensor(0, 5), [ResampledAxis.of(0, 5, 12, 2.4, 0.0, 0.0)], DOWN), (12,)),
        (nearest(tensor(0, 5, 4), [axis(0, 5, 2)], DOWN), (10, 4)),  # runs of neighbors are moved as a whole
        (
            apply(
                "elementwise/element_wise_add",
                DataType.FLOAT32,
                (8,),
                a=nearest(tensor(0, 4), [axis(0, 4, 2)], DOWN),
                b=nearest(tensor(1, 2), [axis(0, 2, 4)], DOWN),
            ),
            (8,),
        ),
        (nearest(nearest(tensor(0, 2), [axis(0, 2, 2)], DOWN), [axis(0, 4, 2)], DOWN), (8,)),
        (
            AffineView(nearest(tensor(0, 4), [axis(0, 4, 2)], DOWN), (4,), Affine((2,), ((1,),))),
            (4,),
        ),
    ],
    ids=["up", "shifted", "not whole", "runs", "two factors", "nested", "part"],
)
def test_other_trees_are_unchanged(body, sizes):
    body, written = identity(body), output(*sizes)
    assert split_repeats(body, written) == (body, written)
