"""Maps along runs: their profitability, their parts, and the elements that they visit."""

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, element_offsets, packed_strides
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, apply
from dmlgpu.compiler.schedule.runs import (
    LONGEST_STEP,
    RUNS_IN_FLIGHT,
    SHORTEST_RUN,
    can_run,
    fixed_leaves,
    runs_pay,
    schedule_runs,
)
from dmlgpu.compiler.sizes.arithmetic import Recording
from dmlgpu.compiler.target import Profile, Target
from tests import schedules

F32 = DataType.FLOAT32
CPU, GPU = Target("any", Profile.CPU), Target("any", Profile.DISCRETE)


def tensor(role, index, sizes, strides=None):
    return PlanTensor(PlanBinding(role, index), F32, sizes, strides or packed_strides(sizes))


def added(sizes, strides):
    """Return the sum of a tensor and one with other strides."""
    a, b = tensor(Role.INPUT, 0, sizes), tensor(Role.INPUT, 1, sizes, strides)
    body = apply("elementwise/element_wise_add", F32, sizes, portable=True, a=a, b=b)
    return body, tensor(Role.OUTPUT, 0, sizes)


def find_runs(body, output, target):
    """Return the kernel, or the condition that fails."""
    condition = can_run(body, output) and runs_pay(body, output)
    return condition and schedule_runs("map", body, output, target)


def test_a_run_lies_along_what_is_repeated():
    runs = find_runs(*added((2000, 50), (1, 0)), CPU)
    assert (runs.axis, runs.output.sizes) == (1, (2000, 50))
    assert [(name, leaf.binding.index) for name, leaf in fixed_leaves(runs.body, [runs.axis])] == [("fixed0", 1)]


@pytest.mark.parametrize(
    ("sizes", "strides", "why"),
    [
        ((2000, 50), (50, 1), "0 of 2 tensors are the same along a run, less than half"),
        ((2000, SHORTEST_RUN - 1), (1, 0), "0 of 2 tensors are the same along a run, less than half"),
        ((2000, LONGEST_STEP // 4 + 1), (0, 1), "1 of 2 tensors are the same along a run across rows, less than 3/4"),
        ((SHORTEST_RUN - 1, SHORTEST_RUN - 1), (1, 0), "no run of 16 units"),
    ],
)
def test_other_maps_have_no_runs(sizes, strides, why):
    assert str(find_runs(*added(sizes, strides), CPU)) == why


@pytest.mark.parametrize(("target", "kind"), [(CPU, "runs"), (GPU, "map")])
def test_gpus_go_unit_by_unit(target, kind):
    image, bias = TensorDesc(F32, (2000, 50)), TensorDesc(F32, (2000, 50), (1, 0))
    (kernel,) = schedules.steps_of(descs.ElementWiseAdd(a_tensor=image, b_tensor=bias, output_tensor=image), target)
    assert kernel.kind == kind


def test_runs_go_down_narrow_rows():
    runs = find_runs(*added((1 << 14, LONGEST_STEP // 4), (0, 1)), CPU)
    assert runs.output.sizes[:-1] == (4, 4096)


def test_runs_go_down_wide_rows_if_most_operands_repeat():
    sizes = (1 << 14, LONGEST_STEP)
    tensors = {name: tensor(Role.INPUT, n, sizes, (0, 1) if n else None) for n, name in enumerate("abcd")}
    body = apply("elementwise/element_wise_mean", F32, sizes, portable=True, **tensors)
    runs = find_runs(body, tensor(Role.OUTPUT, 0, sizes), CPU)
    assert (runs.axis, runs.output.sizes) == (0, sizes)


def test_float16_that_shares_words_has_no_runs():
    body, output = added((2000, 50), (1, 0))
    half = replace(output, data_type=DataType.FLOAT16)
    assert str(find_runs(body, half, CPU)) == "it is more than arithmetic on whole words"


def test_few_runs_are_cut_until_they_fill_the_adapter():
    runs = find_runs(*added((64, 3136), (1, 0)), CPU)
    assert (runs.axis, runs.output.sizes) == (2, (64, 16, 196))
    assert RUNS_IN_FLIGHT <= 64 * 16


def test_runs_are_cut_into_as_few_parts_as_fill_the_adapter():
    for units in (48, 720, 3136, 2 * 3 * 5 * 7 * 11 * 13, 65536):
        divisors = [n for n in range(1, units // SHORTEST_RUN + 1) if units % n == 0]
        expected = next((n for n in divisors if n >= RUNS_IN_FLIGHT), divisors[-1])
        runs = find_runs(*added((1, units), (1, 0)), CPU)
        assert units // runs.output.sizes[runs.axis] == expected


def test_runs_of_prime_length_stay_whole_unless_a_loop_would_be_cut():
    assert find_runs(*added((2, 65537), (1, 0)), CPU).output.sizes == (2, 65537)
    assert not find_runs(*added((2, 65537), (1, 0)), replace(CPU, loop_limit=65535))


def test_cut_runs_have_the_same_elements():
    body, output = added((64, 3136), (1, 0))
    runs = find_runs(body, output, CPU)
    for before, after in zip(body.inputs, runs.body.inputs, strict=True):
        offsets = [element_offsets(source.sizes, source.strides).ravel() for _, source in (before, after)]
        np.testing.assert_array_equal(*offsets)
    np.testing.assert_array_equal(
        element_offsets(output.sizes, output.strides).ravel(),
        element_offsets(runs.output.sizes, runs.output.strides).ravel(),
    )


def test_one_recording_cuts_runs_of_all_sizes():
    recording = Recording([24, 288])
    with recording.active():
        count, units = recording.symbols
        runs = find_runs(*added((count, units), (1, 0)), CPU)
        replay = recording.replay(runs.output.sizes)
    for count in (20, 24, 100, 333):
        for units in (288, 360, 1024):
            runs = find_runs(*added((count, units), (1, 0)), CPU)
            assert replay([count, units]) == runs.output.sizes


def test_runs_that_are_not_cut_share_the_recording_of_cut_ones():
    """They are one part, since the kernel for many parts is right for one."""
    recording = Recording([24, 288])
    with recording.active():
        runs = find_runs(*added(recording.symbols, (1, 0)), CPU)
        replay = recording.replay(runs.output.sizes)
    assert [replay([24, units]) for units in (31, 97)] == [(24, 1, 31), (24, 1, 97)]
    assert replay([RUNS_IN_FLIGHT, 288]) == (RUNS_IN_FLIGHT, 1, 288)
