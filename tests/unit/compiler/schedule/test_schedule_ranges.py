"""Copies bind only the ranges that they access."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc, element_offsets
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, View, apply
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.copies import tighten_binding, tightened
from dmlgpu.compiler.target import Target

F32, U8, I64, U4 = (DataType[name] for name in ("FLOAT32", "UINT8", "INT64", "UINT4"))


def tensor(sizes, strides, data_type=F32, *, offset=0, index=0, role=Role.INPUT):
    return PlanTensor(PlanBinding(role, index), data_type, sizes, strides, View.RAW, offset)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-9, 9)), min_size=1, max_size=3),
    st.integers(0, 99),
    st.sampled_from([F32, U8, I64, U4]),
)
def test_every_element_keeps_its_offset(dimensions, offset, data_type):
    sizes, strides = zip(*dimensions, strict=True)
    given_tensor = tensor(sizes, strides, data_type, offset=200 + offset)
    bound = tightened(given_tensor)
    assert bound.binding.offset % 16 == 0
    before = given_tensor.offset + element_offsets(sizes, strides)
    after = bound.binding.offset * 8 // data_type.bits + bound.offset + element_offsets(sizes, strides)
    np.testing.assert_array_equal(before, after)
    assert 0 <= (before.min() * data_type.bits // 8) - bound.binding.offset < 16


def test_only_copies_between_tensors_are_rebound():
    source, output = tensor((4,), (1,), offset=8), tensor((4,), (1,), offset=12, role=Role.OUTPUT)
    body, bound = tighten_binding(identity(source), output)
    assert (body.inputs[0][1].binding.offset, body.inputs[0][1].offset) == (32, 0)
    assert (bound.binding, bound.offset) == (PlanBinding(Role.OUTPUT, 0, 48), 0)
    computed = apply("elementwise/element_wise_abs", F32, (4,), input=source)
    assert tighten_binding(computed, output) == (computed, output)
    shared = tensor((4,), (1,), offset=4)
    assert tighten_binding(identity(source), shared) == (identity(source), shared)


def split(count, extent, flags=TensorFlags.NONE, data_type=F32):
    pieces = tuple(TensorDesc(data_type, (extent,)) for _ in range(count))
    whole = TensorDesc(data_type, (count * extent,), flags=flags)
    return descs.Split(input_tensor=whole, output_tensors=pieces, axis=0)


def test_pieces_of_equal_sizes_have_equal_kernels():
    kernels = compiler.compile_operator(split(100, 8), Target("any")).kernels
    assert len({kernel.wgsl for kernel in kernels}) == 1
    slots = [kernel.slots[1] for kernel in kernels]
    assert [(slot.role, slot.offset, slot.size) for slot in slots] == [(Role.INPUT, 32 * n, 32) for n in range(100)]


def test_odd_pieces_have_a_kernel_per_offset_within_16_bytes():
    assert len({kernel.wgsl for kernel in compiler.compile_operator(split(100, 7), Target("any")).kernels}) == 4


def test_a_piece_of_an_owned_input_lies_within_its_copy():
    program = compiler.compile_operator(split(3, 8, TensorFlags.OWNED_BY_DML), Target("any"))
    assert [kernel.slots[1].offset for kernel in program.kernels] == [0, 32, 64]
    assert {kernel.slots[1].role for kernel in program.kernels} == {Role.PERSISTENT}
    assert program.persistent_size == 256


def test_tensors_too_large_for_a_binding_are_copied_piece_by_piece():
    small = Target("small", max_binding_size=1 << 20)
    program = compiler.compile_operator(split(4, 1 << 18), small)
    assert max(slot.size for kernel in program.kernels for slot in kernel.slots) == 1 << 20
    (first, *_) = compiler.compile_operator(split(2, (1 << 18) + 1), small).kernels
    assert [(slot.role, slot.offset, slot.size, slot.is_continued) for slot in first.slots] == [
        (role, 0, (1 << 19) + 4, False) for role in (Role.OUTPUT, Role.INPUT)
    ]
    with pytest.raises(
        NotSupported,
        match="SPLIT: output 0 takes 629,145,600 bytes, but 'small' binds at most 1,048,576 at once and has 8 bindings",
    ):
        compiler.compile_operator(split(2, 600 << 18), small)
