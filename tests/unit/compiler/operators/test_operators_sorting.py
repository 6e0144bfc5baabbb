"""TOP_K and TOP_K1: validation, output sizes, upgrade, plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, I64, U8, U32, U64 = (DataType[name] for name in ("FLOAT32", "INT64", "UINT8", "UINT32", "UINT64"))
CPU, GPU = Target("any", Profile.CPU), Target("any", Profile.DISCRETE)
DECREASING = AxisDirection.DECREASING


def top(sizes=(4, 5, 6), axis=1, k=2, data_type=F32, *, values=None, places=None, direction=DECREASING, strides=None):
    first = tuple(k if dimension == axis else size for dimension, size in enumerate(sizes))
    return descs.TopK1(
        input_tensor=TensorDesc(data_type, sizes, strides),
        output_value_tensor=TensorDesc(data_type, values or first),
        output_index_tensor=TensorDesc(U64, places or first),
        axis=axis,
        k=k,
        axis_direction=direction,
    )


def older(desc):
    return descs.TopK(
        input_tensor=desc.input_tensor,
        output_value_tensor=desc.output_value_tensor,
        output_index_tensor=desc.output_index_tensor,
        axis=desc.axis,
        k=desc.k,
    )


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (top(axis=3), "TOP_K1: axis must be below input_tensor's dimension count (3), got 3"),
        (top(k=6), "TOP_K1: k must be from 1 to input_tensor.sizes[1] (5), got 6"),
        (replace(top(), k=0), "TOP_K1: k must be from 1 to input_tensor.sizes[1] (5), got 0"),
        (older(top(k=6)), "TOP_K: k must be from 1 to input_tensor.sizes[1] (5), got 6"),
        (
            top(values=(4, 3, 6)),
            "TOP_K1: output_value_tensor.sizes must be [4, 2, 6] (input_tensor.sizes with k along the axis),"
            " got [4, 3, 6]",
        ),
        (
            older(top(places=(4, 5, 2))),
            "TOP_K: output_index_tensor.sizes must be [4, 2, 6] (input_tensor.sizes with k along the axis),"
            " got [4, 5, 2]",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


def test_k_may_be_the_whole_axis():
    operators.check(top(k=5))


def test_output_sizes():
    sizes = {"output_value_tensor": (4, 5, 3), "output_index_tensor": (4, 5, 3)}
    assert lowering("TOP_K1").output_sizes(top(axis=2, k=3)) == sizes


def test_the_older_operator_takes_the_largest():
    assert operators.upgrade(older(top())) == top()


def test_a_line_too_long_for_its_positions_is_rejected():
    sizes = (1 << 31,)
    with pytest.raises(NotSupported) as caught:
        compiler.compile_operator(top(sizes, 0, 1, strides=(0,)), CPU)
    assert str(caught.value) == "TOP_K1: sorts axes of at most 2,147,483,647 elements, got 2,147,483,648"


def labels(desc, target):
    return [step.label for step in steps_of(desc, target)]


@pytest.mark.parametrize(
    ("desc", "target", "expected"),
    [
        (top(), CPU, ["tiles of 5 in registers"]),
        (top((9, 16), k=16), GPU, ["tiles of 16 in registers"]),
        (top((9, 17), k=17), GPU, ["tiles of 32 in workgroup"]),
        (top((9, 17), k=17), CPU, ["tiles of 16 in registers", "merge to 17"]),
        (top((9, 50), k=50), CPU, ["tiles of 16 in registers", "merge to 32", "merge to 50"]),
        (top((9, 9), k=9, data_type=I64), CPU, ["tiles of 8 in registers", "merge to 9"]),
        (top((2, 2000), k=2000), GPU, ["tiles of 1024 in workgroup", "merge to 2000"]),
        (
            top((9, 100), k=3),
            CPU,
            ["best of 4", "tiles of 16 in registers", "merge to 3", "groups of 4", "tiles of 12 in registers"],
        ),
        (
            top((2, 1 << 20), k=50),
            GPU,
            [
                "best of 128",
                *("tiles of 1024 in workgroup", "merge to 50", "merge to 50", "merge to 50"),
                "groups of 128",
                *("tiles of 1024 in workgroup", "merge to 50", "merge to 50", "merge to 50"),
            ],
        ),
    ],
)
def test_the_steps_depend_on_sizes_and_target(desc, target, expected):
    assert labels(desc, target) == [*expected, "values", "indices"]


def test_memory_of_read_records_is_reused():
    """7 tiles of 16, then 4, 2 and 1 runs."""
    desc = top((3, 100), k=100)
    *sorting, _, _ = steps_of(desc, CPU)
    assert [step.source.binding for step in sorting[1:]] == [step.output.binding for step in sorting[:-1]]
    assert compiler.compile_operator(desc, CPU).temporary_size < sum(step.output.reach for step in sorting)


def test_values_are_moved_as_bits():
    values = steps_of(top(data_type=DataType.FLOAT16), CPU)[-2]
    assert values.body.moves


@pytest.mark.parametrize("target", [CPU, GPU])
@pytest.mark.parametrize("data_type", [I64, U64])
def test_64_bit_integers_need_no_feature(data_type, target):
    program = compiler.compile_operator(top((3, 5000), 1, 9, data_type), target)
    assert all(len(kernel.slots) <= 3 for kernel in program.kernels)
    assert not any("i64(" in kernel.wgsl or "u64(" in kernel.wgsl for kernel in program.kernels)
