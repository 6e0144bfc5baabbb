"""Tiled copies: when they apply, and that the tiles cover the tensor."""

from __future__ import annotations

import itertools
import math

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, View, apply
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.copies import find_transpose
from dmlgpu.compiler.schedule.registry import Condition
from dmlgpu.compiler.target import Target

CPU = Target("cpu")
F32, U8, F64 = DataType.FLOAT32, DataType.UINT8, DataType.FLOAT64


def problem(sizes, source_strides, strides, data_type=F32):
    source = PlanTensor(PlanBinding(Role.INPUT, 0), data_type, sizes, source_strides, View.RAW)
    return identity(source), PlanTensor(PlanBinding(Role.OUTPUT, 0), data_type, sizes, strides)


@pytest.mark.parametrize(
    ("sizes", "source_strides", "strides"),
    [
        pytest.param((8, 8), (1, 8), (8, 1), id="matrix"),
        pytest.param((24, 40), (1, 24), (40, 1), id="several squares of tiles"),
        pytest.param((3, 8, 5, 12), (480, 1, 96, 8), (480, 60, 12, 1), id="outer and middle dimensions"),
        pytest.param((8, 12), (1, 12), (16, 1), id="padded rows"),
    ],
)
@pytest.mark.parametrize("data_type", [U8, F32, F64], ids=lambda t: t.name)
def test_tiles_cover_every_element_once(sizes, source_strides, strides, data_type):
    check_tiles(sizes, source_strides, strides, data_type, 2 if data_type is F64 else 4)


@pytest.mark.parametrize(
    ("sizes", "source_strides", "strides"),
    [
        pytest.param((10, 16), (1, 10), (16, 1), id="even columns"),
        pytest.param((16, 10), (1, 16), (10, 1), id="even rows"),
        pytest.param((16, 16), (1, 18), (16, 1), id="rows of the source at even places"),
    ],
)
@pytest.mark.parametrize("data_type", [DataType.FLOAT16, F32], ids=lambda t: t.name)
def test_even_sides_have_smaller_tiles(sizes, source_strides, strides, data_type):
    check_tiles(sizes, source_strides, strides, data_type, 2)


def check_tiles(sizes, source_strides, strides, data_type, lanes):
    """Check that tiles of `lanes` by `lanes` elements cover every element of a transposed copy once."""
    transpose = find_transpose("copy", *problem(sizes, source_strides, strides, data_type), CPU)
    assert transpose.output.lanes == lanes
    assert transpose.launch.total == math.prod(sizes) // lanes**2
    tiles = set()
    for index in range(transpose.launch.total):
        at, rest = [0] * len(sizes), index
        for digit in transpose.digits:
            at[digit.dimension] += rest % digit.count * digit.scale
            rest //= digit.count
        tiles.add(tuple(at))
    sides = {transpose.source_dimension, transpose.output_dimension}
    extents = [size // lanes if d in sides else size for d, size in enumerate(sizes)]
    assert tiles == set(itertools.product(*map(range, extents)))
    assert transpose.source.strides[transpose.source_dimension] == 1
    assert transpose.output.strides[transpose.output_dimension] == 1


@pytest.mark.parametrize(
    ("sizes", "source_strides", "strides"),
    [
        pytest.param((8, 8), (8, 1), (8, 1), id="the same order"),
        pytest.param((7, 8), (1, 7), (8, 1), id="odd columns"),
        pytest.param((8, 7), (1, 8), (7, 1), id="odd rows"),
        pytest.param((8, 8), (1, 9), (8, 1), id="unaligned rows of the source"),
        pytest.param((8, 8), (1, 8), (9, 1), id="unaligned rows of the output"),
        pytest.param((8, 8), (2, 16), (8, 1), id="gaps in the source"),
        pytest.param((8, 8), (0, 0), (8, 1), id="one repeated element"),
    ],
)
def test_other_copies_are_not_tiled(sizes, source_strides, strides):
    assert isinstance(find_transpose("copy", *problem(sizes, source_strides, strides), CPU), Condition)


def test_bytes_have_tiles_of_whole_words():
    assert isinstance(find_transpose("copy", *problem((8, 6), (1, 8), (6, 1), U8), CPU), Condition)


def test_only_plain_copies_are_tiled():
    body, output = problem((8, 8), (1, 8), (8, 1))
    source = body.inputs[0][1]
    difference = apply("elementwise/element_wise_subtract", F32, (8, 8), a=source, b=source)
    for other in (difference, identity(body)):
        assert str(find_transpose("copy", other, output, CPU)) == "it is no plain copy of a tensor"
