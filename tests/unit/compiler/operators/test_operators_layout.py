"""Slices and tiles: validation, the upgrade of SLICE to SLICE1, plans and moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.plan import PlanTensor, Role
from dmlgpu.compiler.rewrites.moves import Affine, Move
from dmlgpu.compiler.target import Target
from tests.unit.rejections import rejection

F32 = DataType.FLOAT32


def slice1(**changes):
    fields = {
        "input_tensor": TensorDesc(F32, (5, 8)),
        "output_tensor": TensorDesc(F32, (2, 8)),
        "input_window_offsets": (1, 0),
        "input_window_sizes": (4, 8),
        "input_window_strides": (-2, 1),
    }
    return descs.Slice1(**fields | changes)


def slice_(**changes):
    fields = {
        "input_tensor": TensorDesc(F32, (5, 8)),
        "output_tensor": TensorDesc(F32, (2, 8)),
        "offsets": (1, 0),
        "sizes": (2, 8),
        "strides": (3, 1),
    }
    return descs.Slice(**fields | changes)


def tile(**changes):
    fields = {"input_tensor": TensorDesc(F32, (2, 4)), "output_tensor": TensorDesc(F32, (6, 8)), "repeats": (3, 2)}
    return descs.Tile(**fields | changes)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (slice1(input_window_sizes=(0, 8)), "SLICE1: input_window_sizes[0] must be at least 1, got 0"),
        (
            slice1(input_window_offsets=(2, 0)),
            "SLICE1: input_window_offsets[0] + input_window_sizes[0] must be at most input_tensor.sizes[0] (5),"
            " got 2 + 4 = 6",
        ),
        (slice1(input_window_strides=(0, 1)), "SLICE1: input_window_strides[0] must not be 0"),
        (
            slice1(output_tensor=TensorDesc(F32, (3, 8))),
            "SLICE1: output_tensor.sizes[0] must be at most 1 + (input_window_sizes[0] - 1) / |input_window_strides[0]|"
            " (1 + (4 - 1) / 2 = 2), got 3",
        ),
        (
            slice_(output_tensor=TensorDesc(F32, (2, 7))),
            "SLICE: output_tensor.sizes must be [2, 8] (sizes), got [2, 7]",
        ),
        (slice_(strides=(0, 1)), "SLICE: strides[0] must be at least 1, got 0"),
        (tile(repeats=(3, 0)), "TILE: repeats[1] must be at least 1, got 0"),
        (
            tile(repeats=(3, 1)),
            "TILE: output_tensor.sizes must be [6, 4] (input_tensor.sizes * repeats), got [6, 8]",
        ),
        (
            slice_(strides=(4, 1)),
            "SLICE: offsets[0] + strides[0] * (sizes[0] - 1) must be below input_tensor.sizes[0] (5),"
            " got 1 + 4 * 1 = 5",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(
    "desc",
    [
        slice1(),
        slice1(output_tensor=TensorDesc(F32, (1, 3))),
        slice1(input_window_offsets=(0, 0), input_window_sizes=(5, 8), input_window_strides=(-4, 1)),
        slice_(),
        tile(),
    ],
)
def test_valid_descriptions_are_accepted(desc):
    operators.check(desc)


def test_slice_is_a_slice1_whose_window_ends_at_the_last_element():
    assert operators.upgrade(slice_()) == slice1(
        input_window_offsets=(1, 0), input_window_sizes=(4, 8), input_window_strides=(3, 1)
    )
    assert lowering("SLICE").output_sizes(slice_()) == {"output_tensor": (2, 8)}


def test_a_slice_moves_its_window():
    (move,) = lowering("SLICE1").moves(operators.upgrade(slice_()))
    assert move == Move((2, 8), Affine.box((1, 0), (3, 1)), Affine.box((0, 0)))
    source = PlanTensor.of(Role.INPUT, 0, TensorDesc(F32, (5, 8)))
    assert move.source.of(source, (2, 8)) == replace(source, sizes=(2, 8), strides=(24, 1), offset=8)


def test_a_mirrored_window_starts_at_its_end():
    assert lowering("SLICE1").moves(slice1()) == (Move((2, 8), Affine.box((4, 0), (-2, 1)), Affine.box((0, 0))),)


def test_a_tile_is_a_copy_over_repetitions_and_places():
    desc = tile()
    assert lowering("TILE").output_sizes(desc) == {"output_tensor": (6, 8)}
    (move,) = lowering("TILE").moves(desc)
    assert move.sizes == (3, 2, 2, 4)
    source, output = (PlanTensor.of(Role.INPUT, 0, tensor) for tensor in (desc.input_tensor, desc.output_tensor))
    assert move.source.of(source, move.sizes).strides == (0, 4, 0, 1)
    assert move.destination.of(output, move.sizes).strides == (16, 8, 4, 1)


def test_whole_rows_that_repeat_are_copied_in_wide_units():
    x = TensorDesc(F32, (4, 64))
    desc = descs.Tile(input_tensor=x, output_tensor=TensorDesc(F32, (12, 64)), repeats=(3, 1))
    (kernel,) = compiler.compile_operator(desc, Target("any")).kernels
    assert kernel.label == "tile copy x4"
