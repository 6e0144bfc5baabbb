"""SPLIT and JOIN: validation, a copy per piece, and words shared by pieces of small types."""

from __future__ import annotations

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

F32, U8, F16 = DataType.FLOAT32, DataType.UINT8, DataType.FLOAT16
ANY = Target("any")


def split(*outputs, axis=1, sizes=(2, 6)):
    pieces = tuple(TensorDesc(F32, piece) for piece in outputs)
    return descs.Split(input_tensor=TensorDesc(F32, sizes), output_tensors=pieces, axis=axis)


def join(*inputs, axis=1, sizes=(2, 6), data_type=F32):
    pieces = tuple(TensorDesc(data_type, piece) for piece in inputs)
    return descs.Join(input_tensors=pieces, output_tensor=TensorDesc(data_type, sizes), axis=axis)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (split((2, 6), axis=2), "SPLIT: axis must be below input_tensor's dimension count (2), got 2"),
        (
            split((2, 3), (1, 3)),
            "SPLIT: output_tensors[1].sizes[0] must be input_tensor.sizes[0] (2), got 1",
        ),
        (split((2, 3), (2, 4)), "SPLIT: output_tensors[:].sizes[1] must add up to input_tensor.sizes[1] (6), got 7"),
        (join((2, 6), axis=2), "JOIN: axis must be below output_tensor's dimension count (2), got 2"),
        (join((2, 3), (3, 3)), "JOIN: input_tensors[1].sizes[0] must be output_tensor.sizes[0] (2), got 3"),
        (
            join((2, 3), (2, 4)),
            "JOIN: output_tensor.sizes must be [2, 7] (the inputs one after the other), got [2, 6]",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize("desc", [split((2, 6)), split((2, 1), (2, 5)), join((2, 6)), join((2, 5), (2, 1))])
def test_valid_descriptions_are_accepted(desc):
    operators.check(desc)


def test_the_size_of_a_join():
    assert lowering("JOIN").output_sizes(join((2, 1), (2, 4))) == {"output_tensor": (2, 5)}


def test_a_split_moves_a_box_to_each_output():
    whole = Affine.box((0, 0))
    assert lowering("SPLIT").moves(split((2, 1), (2, 5))) == (
        Move((2, 1), Affine.box((0, 0)), whole, output=0),
        Move((2, 5), Affine.box((0, 1)), whole, output=1),
    )


def test_a_join_moves_each_input_to_a_box():
    moves = lowering("JOIN").moves(join((2, 1), (2, 5)))
    assert [move.destination.start for move in moves] == [(0, 0), (0, 1)]
    output = PlanTensor.of(Role.OUTPUT, 0, TensorDesc(F32, (2, 6)))
    view = moves[1].destination.of(output, (2, 5))
    assert (view.sizes, view.strides, view.offset) == ((2, 5), (6, 1), 1)


def test_kernels_bind_two_buffers_however_many_pieces_there_are():
    pieces = [(2, 1)] * 100
    for desc in (split(*pieces, sizes=(2, 100)), join(*pieces, sizes=(2, 100))):
        kernels = compiler.compile_operator(desc, ANY).kernels
        assert [len(kernel.slots) for kernel in kernels] == [2] * 100


def test_only_a_join_of_several_pieces_preserves_adjacent_bits():
    whole = TensorDesc(U8, (9,))
    for desc in (
        join((9,), axis=0, sizes=(9,), data_type=U8),
        descs.Split(input_tensor=whole, output_tensors=(TensorDesc(U8, (5,)), TensorDesc(U8, (4,))), axis=0),
    ):
        assert not any("own" in kernel.wgsl for kernel in compiler.compile_operator(desc, ANY).kernels)


@pytest.mark.parametrize(
    ("pieces", "sizes", "axis", "labels"),
    [
        pytest.param([(16, 4), (8, 4)], (24, 4), 0, ["join copy x16", "join copy x16"], id="rows of whole units"),
        pytest.param([(2, 16), (2, 4)], (2, 20), 1, ["join copy x4", "join copy x4"], id="columns of whole words"),
        pytest.param([(6,), (2,)], (8,), 0, ["join copy x2", "join copy x2"], id="pieces of half words"),
        pytest.param([(5,), (3,)], (8,), 0, ["join copy", "join copy"], id="odd pieces"),
    ],
)
def test_bytes_are_copied_in_units_that_lie_within_a_piece(pieces, sizes, axis, labels):
    desc = join(*pieces, axis=axis, sizes=sizes, data_type=U8)
    assert [kernel.label for kernel in compiler.compile_operator(desc, ANY).kernels] == labels


def test_pieces_that_share_words_keep_them_without_atomics():
    kernels = compiler.compile_operator(join((5,), (3,), axis=0, sizes=(8,), data_type=U8), ANY).kernels
    assert all("& ~own" in kernel.wgsl and "atomic" not in kernel.wgsl for kernel in kernels)
    assert [kernel.grid for kernel in kernels] == [(1, 1, 1)] * 2


def test_pieces_that_are_strewn_over_many_words_are_stored_by_compare_exchange():
    first, second = compiler.compile_operator(
        join((64, 31), (64, 1), axis=1, sizes=(64, 32), data_type=F16), ANY
    ).kernels
    assert "& ~own" in first.wgsl and "atomicCompareExchangeWeak" in second.wgsl


def test_pieces_of_whole_words_are_just_stored():
    kernels = compiler.compile_operator(join((2, 1), (2, 5)), ANY).kernels
    assert not any("own" in kernel.wgsl or "atomic" in kernel.wgsl for kernel in kernels)
