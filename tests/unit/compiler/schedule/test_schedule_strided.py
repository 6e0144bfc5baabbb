"""Maps of narrow types on GPUs: several units per invocation, which are all read before the first write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.schedule.launch import FULL_CARD
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.render import render
from tests import schedules

GPU = Target("any", Profile.DISCRETE)
F16, F32, U8, I64 = DataType.FLOAT16, DataType.FLOAT32, DataType.UINT8, DataType.INT64


def add(data_type: DataType, elements: int) -> OperatorDesc:
    tensor = TensorDesc(data_type, (elements,))
    return descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)


def cast(source: DataType, result: DataType, elements: int) -> OperatorDesc:
    return descs.Cast(input_tensor=TensorDesc(source, (elements,)), output_tensor=TensorDesc(result, (elements,)))


def scheduled(desc: OperatorDesc, target: Target = GPU) -> ScheduledMap:
    (step,) = schedules.steps_of(desc, target)
    assert isinstance(step, ScheduledMap)
    return step


@pytest.mark.parametrize(
    ("desc", "items"),
    [
        (add(F16, 8 * FULL_CARD), 2),
        (add(F16, 8 * FULL_CARD - 4), 1),
        (add(U8, 16 * FULL_CARD), 4),
        (add(F32, 16 * FULL_CARD), 1),
        (add(F32, 4 * FULL_CARD + 1), 4),
        (add(I64, 2 * FULL_CARD), 2),
        (cast(F32, F16, 16 * FULL_CARD), 1),
        (cast(F16, F32, 16 * FULL_CARD), 2),
    ],
    ids=str,
)
def test_an_invocation_reads_16_bytes_of_its_widest_input(desc: OperatorDesc, items: int) -> None:
    launch = scheduled(desc).launch
    assert (launch.items_per_invocation, launch.strided) == (items, items > 1)
    assert launch.grid[0] * launch.grid[1] * launch.workgroup * items >= launch.total


def test_cpu_adapters_and_long_bodies_take_units_one_by_one() -> None:
    assert not scheduled(add(F16, 8 * FULL_CARD), replace(GPU, profile=Profile.CPU)).launch.strided
    tensor = TensorDesc(F16, (8 * FULL_CARD,))
    assert not scheduled(descs.ElementWiseTanh(input_tensor=tensor, output_tensor=tensor)).launch.strided


@pytest.mark.parametrize("elements", [8 * FULL_CARD, 8 * FULL_CARD + 4])
def test_all_units_are_read_before_the_first_is_written(elements: int) -> None:
    (kernel,) = render(schedules.scheduled(add(F16, elements), GPU)).kernels
    main = kernel.wgsl.partition("@compute")[2]
    assert main.rindex("element(") < main.index("store0(")
    assert ("if (" in main) is ("min(" in main) is (elements % (2 * 4 * 256) != 0)
