"""SPACE_TO_DEPTH and DEPTH_TO_SPACE: validation, upgrades, the digits of their moves."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, DepthSpaceOrder
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering
from tests.unit.rejections import rejection

F32 = DataType.FLOAT32
DEPTH, COLUMN = DepthSpaceOrder.DEPTH_COLUMN_ROW, DepthSpaceOrder.COLUMN_ROW_DEPTH
SPACE_SIZES, DEPTH_SIZES = (1, 3, 4, 10), (1, 12, 2, 5)


def to_depth(desc_class=descs.SpaceToDepth, sizes=SPACE_SIZES, output_sizes=DEPTH_SIZES, block=2, **fields):
    return desc_class(
        input_tensor=TensorDesc(F32, sizes), output_tensor=TensorDesc(F32, output_sizes), block_size=block, **fields
    )


def to_space(desc_class=descs.DepthToSpace, sizes=DEPTH_SIZES, output_sizes=SPACE_SIZES, block=2, **fields):
    return to_depth(desc_class, sizes, output_sizes, block, **fields)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (to_depth(block=0), "SPACE_TO_DEPTH: block_size must be at least 1, got 0"),
        (
            to_depth(sizes=(1, 3, 5, 10)),
            "SPACE_TO_DEPTH: input_tensor.sizes[2] must be a multiple of block_size (2), got 5",
        ),
        (
            to_depth(descs.SpaceToDepth1, sizes=(1, 3, 4, 9), order=DEPTH),
            "SPACE_TO_DEPTH1: input_tensor.sizes[3] must be a multiple of block_size (2), got 9",
        ),
        (
            to_depth(output_sizes=(1, 12, 2, 4)),
            "SPACE_TO_DEPTH: output_tensor.sizes must be [1, 12, 2, 5] (blocks become channels), got [1, 12, 2, 4]",
        ),
        (to_space(block=0), "DEPTH_TO_SPACE: block_size must be at least 1, got 0"),
        (
            to_space(descs.DepthToSpace1, sizes=(1, 6, 2, 5), order=DEPTH),
            "DEPTH_TO_SPACE1: input_tensor.sizes[1] must be a multiple of block_size * block_size (4), got 6",
        ),
        (
            to_space(output_sizes=(1, 3, 4, 5)),
            "DEPTH_TO_SPACE: output_tensor.sizes must be [1, 3, 4, 10] (channels become blocks), got [1, 3, 4, 5]",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize("desc", [to_depth(), to_space(), to_depth(descs.SpaceToDepth1, order=COLUMN)])
def test_valid_descriptions_are_accepted(desc):
    operators.check(desc)
    sizes = lowering(desc.operator).output_sizes(desc)
    assert sizes == {"output_tensor": desc.output_tensor.sizes}


def test_the_older_operators_put_the_channel_last():
    assert operators.upgrade(to_depth()) == to_depth(descs.SpaceToDepth1, order=DEPTH)
    assert operators.upgrade(to_space()) == to_space(descs.DepthToSpace1, order=DEPTH)


@pytest.mark.parametrize(
    ("order", "sizes", "depth"),
    [(DEPTH, (1, 2, 2, 3, 2, 5), (0, 6, 3, 1, 0, 0)), (COLUMN, (1, 3, 2, 2, 2, 5), (0, 4, 2, 1, 0, 0))],
)
def test_coordinates_are_digits_of_blocks_and_offsets(order, sizes, depth):
    (move,) = lowering("SPACE_TO_DEPTH1").moves(to_depth(descs.SpaceToDepth1, order=order))
    assert move.sizes == sizes
    assert move.destination.steps[1] == depth
    down, across = (1, 2) if order is DEPTH else (2, 3)
    assert [move.source.steps[2][down], move.source.steps[3][across]] == [1, 1]
    assert [move.source.steps[2][4], move.source.steps[3][5]] == [2, 2]


def test_both_directions_have_the_same_digits():
    (there,) = lowering("SPACE_TO_DEPTH1").moves(to_depth(descs.SpaceToDepth1, order=COLUMN))
    (back,) = lowering("DEPTH_TO_SPACE1").moves(to_space(descs.DepthToSpace1, order=COLUMN))
    for side, other in ((there.source, back.destination), (there.destination, back.source)):
        columns = [
            sorted(zip(move.sizes, *affine.steps, strict=True)) for move, affine in ((there, side), (back, other))
        ]
        assert columns[0] == columns[1]
