"""Scatters and maps in one kernel: when they are, and when each has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Map, PlanTensor, Role, Scatter, Together, View, apply
from dmlgpu.compiler.plan.sources import PlanBinding
from dmlgpu.compiler.schedule.launch import NARROWEST
from dmlgpu.compiler.schedule.scheduling import as_schedule, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.together import ScheduledTogether
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.render import render

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
TARGET = Target("x", Profile.CPU)
ROWS, CACHE = (1, 2, 3, 8), (1, 2, 16, 8)


def tensor(role: Role, index: int, data_type: DataType, sizes: tuple[int, ...], view: View) -> PlanTensor:
    strides = tuple(int(np.prod(sizes[place + 1 :])) for place in range(len(sizes)))
    return PlanTensor(PlanBinding(role, index), data_type, sizes, strides, view)


def cache_rows(number: int, data_type: DataType = F32) -> Scatter:
    source = tensor(Role.INPUT, number, data_type, ROWS, View.RAW)
    output = tensor(Role.OUTPUT, number, data_type, CACHE, View.RAW)
    past = replace(tensor(Role.INPUT, 9, DataType.INT32, (1,), View.RAW), sizes=ROWS, strides=(0,) * 4)
    follows = (None, None, None, 3)
    return Scatter(
        "cache rows", "attention/cached", source, (("past", past),), output, (), follows, distinct=True, rest=3
    )


def odd_rows(number: int) -> Scatter:
    step, odd = cache_rows(number, F16), (1, 2, 3, 7)
    source = tensor(Role.INPUT, number, F16, odd, View.RAW)
    output = tensor(Role.OUTPUT, number, F16, (1, 2, 16, 7), View.RAW)
    past = replace(step.inputs[0][1], sizes=odd)
    return replace(step, source=source, output=output, inputs=(("past", past),))


def magnitudes(number: int) -> Map:
    source = tensor(Role.INPUT, number, F32, ROWS, View.COMPUTE)
    body = apply("elementwise/element_wise_abs", F32, ROWS, portable=True, input=source)
    return Map("magnitudes", body, tensor(Role.OUTPUT, number, F32, ROWS, View.COMPUTE))


def joined(*steps: Map | Scatter, target: Target = TARGET) -> list[ScheduledTogether]:
    return [
        step for step in schedule_step(Together("caches", steps), target).steps if isinstance(step, ScheduledTogether)
    ]


def test_parts_follow_each_other_in_whole_subgroups() -> None:
    steps = cache_rows(0), cache_rows(1), magnitudes(2)
    (step,) = joined(*steps)
    each = [schedule_step(part, TARGET).steps[0].launch for part in steps]
    invocations = [-(-launch.total // launch.items_per_invocation) for launch in each]
    assert len(step.parts) == 3 and step.starts[0] == 0
    ends = (*step.starts[1:], step.launch.total)
    for start, end, count in zip(step.starts, ends, invocations, strict=True):
        assert start % NARROWEST == 0 and count <= end - start < count + NARROWEST
    (kernel,) = render(as_schedule("TEST", ScheduledSteps((step,)), TARGET, ())).kernels
    text = kernel.wgsl
    assert text.count("@compute") == 1 and all(f"part{index}_" in text for index in range(3))


def test_too_many_buffers_for_one_kernel() -> None:
    steps = cache_rows(0), cache_rows(1), magnitudes(2)  # seven tensors: past is shared
    assert len(joined(*steps, target=replace(TARGET, max_storage_buffers=7))) == 1
    few = replace(TARGET, max_storage_buffers=6)
    (scatters,) = joined(*steps, target=few)
    assert len(scatters.parts) == 2
    assert len(schedule_step(Together("caches", steps), few).steps) == 2


def test_steps_around_one_that_cannot_join_are_kernels_of_those_that_can() -> None:
    """Rows of odd length share words, so each scatter of them is atomic."""
    maps, odd = [magnitudes(number) for number in range(4)], odd_rows(4)
    steps = schedule_step(Together("caches", (*maps[:2], odd, *maps[2:])), TARGET).steps
    assert [len(step.parts) if isinstance(step, ScheduledTogether) else 1 for step in steps] == [2, 1, 2]


def test_words_that_elements_share_have_kernels_of_their_own() -> None:
    """Atomic stores of single float16 elements are no part of another kernel."""
    assert len(joined(cache_rows(0, F16), cache_rows(1, F16))) == 1
    assert not joined(odd_rows(0), odd_rows(1))
