"""Reductions: the order of elements, the choice of schedules, loops within every driver's limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Reduce, Reduction, Role, constants
from dmlgpu.compiler.schedule.launch import row_launch
from dmlgpu.compiler.schedule.reduce import WORTH_SHARING, canonical
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule
from dmlgpu.compiler.target import Profile, Target

F32, F16, U32 = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT32
CPU, GPU = (Target("any", profile, max_binding_size=1 << 50) for profile in (Profile.CPU, Profile.DISCRETE))
LOOP_LIMIT = 65535
REDUCTION = Reduction(
    "reduction/argmin", U32, 2, portable=True, constants=constants(order="ascending", decreasing=False), ordered=True
)


def tensor(role, sizes, strides=None, data_type=F32):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(role, 0), data_type, tuple(sizes), tuple(strides))


def scheduled(source, axes, output, target, reduction=REDUCTION):
    return schedule_step(Reduce("", reduction, source, tuple(axes), output), target).steps


@st.composite
def problems(draw):
    rank = draw(st.integers(1, 5))
    sizes = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    strides = tuple(draw(st.integers(0, 30)) for _ in range(rank))
    if draw(st.booleans()):
        strides = packed_strides(sizes)
    axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return sizes, strides, axes


@given(problems())
def test_merged_rows_have_the_same_elements_in_the_same_order(problem):
    sizes, strides, axes = problem
    others = [axis for axis in range(len(sizes)) if axis not in axes]
    reduced_sizes = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    source, new_axes, output, _ = canonical(
        tensor(Role.INPUT, sizes, strides), axes, tensor(Role.OUTPUT, reduced_sizes)
    )
    rows = element_offsets(sizes, strides).transpose(*others, *sorted(axes)).reshape(math.prod(reduced_sizes), -1)
    assert new_axes == tuple(range(source.rank - len(new_axes), source.rank))
    np.testing.assert_array_equal(element_offsets(source.sizes, source.strides).reshape(rows.shape), rows)
    np.testing.assert_array_equal(
        element_offsets(output.sizes, output.strides).ravel(),
        element_offsets(reduced_sizes, packed_strides(reduced_sizes)).ravel(),
    )
    assert all(output.sizes[axis] == 1 for axis in new_axes)


def test_kept_and_reduced_dimensions_merge_among_themselves():
    source, axes, output, _ = canonical(tensor(Role.INPUT, (2, 3, 4, 5)), (3, 2), tensor(Role.OUTPUT, (2, 3, 1, 1)))
    assert (source.sizes, source.strides, axes) == ((6, 20), (20, 1), (1,))
    assert (output.sizes, output.strides) == ((6, 1), (1, 0))


@given(problems())
def test_rows_in_memory_order_have_the_same_elements(problem):
    sizes, strides, axes = problem
    others = [axis for axis in range(len(sizes)) if axis not in axes]
    reduced_sizes = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    output = tensor(Role.OUTPUT, reduced_sizes)
    source, *_ = canonical(tensor(Role.INPUT, sizes, strides), axes, output, ordered=False)
    rows = element_offsets(sizes, strides).transpose(*others, *sorted(axes)).reshape(math.prod(reduced_sizes), -1)
    offsets = element_offsets(source.sizes, source.strides).reshape(rows.shape)
    np.testing.assert_array_equal(np.sort(offsets, 1), np.sort(rows, 1))


def test_a_transposed_tensor_is_one_run_if_order_does_not_matter():
    source, output = tensor(Role.INPUT, (6, 8), (1, 6)), tensor(Role.OUTPUT, (1, 1))
    merged, axes, *_ = canonical(source, (0, 1), output, ordered=False)
    assert (merged.sizes, merged.strides, axes) == ((48,), (1,), (0,))
    merged, axes, *_ = canonical(source, (0, 1), output)
    assert (merged.sizes, merged.strides, axes) == ((6, 8), (1, 6), (0, 1))


def packing(sizes, axes, strides=None, *, data_type=F32, output_type=F32, output_strides=None):
    """Return lanes, the dimension across, and lanes of the output, of the first step."""
    reduced_sizes = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    source = tensor(Role.INPUT, sizes, strides, data_type)
    output = tensor(Role.OUTPUT, reduced_sizes, output_strides, output_type)
    step = scheduled(source, axes, output, CPU)[0]
    return step.lanes, step.across, step.output.lanes


@pytest.mark.parametrize(
    ("sizes", "axes", "strides", "others", "expected"),
    [
        ((90, 64), (1,), None, {}, (4, None, 1)),
        ((90, 62), (1,), None, {}, (2, None, 1)),
        ((90, 61), (1,), None, {}, (1, None, 1)),
        ((64, 360), (0,), None, {}, (4, 0, 4)),
        ((64, 180), (0,), None, {}, (4, 0, 4)),
        ((64, 181), (0,), None, {}, (1, 0, 1)),
        ((5, 64, 92), (1,), None, {}, (4, 1, 4)),
        ((90, 64), (1,), (65, 1), {}, (1, None, 1)),
        ((90, 64), (1,), (68, 1), {}, (4, None, 1)),
        ((90, 64), (1,), (64, 2), {}, (1, None, 1)),
        ((90, 64), (1,), (0, 1), {}, (4, None, 1)),
        ((90, 64), (1,), (1, 90), {}, (2, 0, 2)),
        ((92, 64), (1,), (1, 92), {}, (4, 0, 4)),
        ((64, 90), (0,), (90, 0), {}, (1, None, 1)),
        ((90, 64), (1,), None, {"data_type": DataType.INT64}, (1, None, 1)),
        ((64, 360), (0,), None, {"output_type": DataType.INT64}, (4, 0, 1)),
        ((64, 360), (0,), None, {"output_strides": (360, 2)}, (4, 0, 1)),
        ((64, 181), (0,), None, {"data_type": F16, "output_type": F16}, (1, None, 1)),
        ((64, 360), (0,), None, {"data_type": F16, "output_type": F16}, (4, 0, 4)),
    ],
)
def test_rows_are_packed_along_themselves_or_across(sizes, axes, strides, others, expected):
    assert packing(sizes, axes, strides, **others) == expected


def first_step(sizes, axes, target=CPU, data_type=F32, lanes=2):
    reduced_sizes = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    source, output = tensor(Role.INPUT, sizes, data_type=data_type), tensor(Role.OUTPUT, reduced_sizes)
    return scheduled(source, axes, output, target, replace(REDUCTION, lanes=lanes))[0]


@pytest.mark.parametrize(
    ("sizes", "options", "width"),
    [
        ((4096, 4096), {}, 4),
        ((4096, 4095), {}, 16),
        ((4096, 4096), {"lanes": 4}, 2),
        ((4096, 4096), {"lanes": 1}, 4),
        ((4096, 4096), {"data_type": F16}, 4),
        ((4096, 4095), {"data_type": DataType.INT64}, 8),
        ((40960, 8), {}, 2),
        ((40960, 3), {}, 3),
        ((50, 400), {}, 1),
        ((4096, 4096), {"target": GPU}, 1),
    ],
)
def test_cpus_take_a_cache_line_of_columns_at_once(sizes, options, width):
    assert first_step(sizes, (0,), **options).width == width


@pytest.mark.parametrize(
    ("sizes", "axes", "together"),
    [((1 << 24,), (0,), 8), ((1 << 20, 8), (0,), 8), ((1 << 16, 64), (0,), 2), ((1 << 16, 1 << 10), (0,), 1)],
)
def test_cpus_share_runs_and_gpus_whole_rows(sizes, axes, together):
    """Invocations in lockstep read adjacent units, then the next ones."""
    step = first_step(sizes, axes)
    assert (step.together, step.output.sizes[-1] % together) == (together, 0)
    step = first_step(sizes, axes, GPU)
    assert step.together == step.output.sizes[-1]


def test_partial_results_are_stored_in_order_of_computation():
    along = scheduled(tensor(Role.INPUT, (2, 1 << 20)), (1,), tensor(Role.OUTPUT, (2, 1)), CPU)[0]
    parts = along.output.sizes[-1]
    assert (along.output.sizes, along.output.strides) == ((2, 1, parts), (parts, parts, 1))
    across = scheduled(tensor(Role.INPUT, (1 << 20, 8)), (0,), tensor(Role.OUTPUT, (1, 8)), CPU)[0]
    assert (across.output.sizes[:2], across.output.strides) == ((8, 1), (1, 1, 8))
    assert (across.lanes, across.across) == (4, 0)


@pytest.mark.parametrize(("rows", "schedules"), [(8, ["partial", "tree"]), (4096, ["partial", "serial"])])
def test_gpus_reduce_adjacent_columns_together(rows, schedules):
    """A workgroup per column would read words that lie far apart."""
    source, output = tensor(Role.INPUT, (40_000, rows)), tensor(Role.OUTPUT, (1, rows))
    assert [step.schedule for step in scheduled(source, (0,), output, GPU)] == schedules


def test_rows_that_exceed_the_largest_binding_are_reduced_in_pieces():
    source, output = tensor(Role.INPUT, (1 << 27,)), tensor(Role.OUTPUT, (1,))
    for target in (CPU, GPU):
        *partial, last = scheduled(source, (0,), output, replace(target, max_binding_size=128 << 20))
        assert len(partial) == 4 and last.of_partials
        assert all(step.schedule == "partial" and max(step.bound.values()) <= 128 << 20 for step in partial)
        assert {step.source.binding.offset for step in partial} == {index << 27 for index in range(4)}


def test_a_small_reduction_takes_one_kernel():
    assert [len(steps_of(rows, 2048 * 4 // rows, CPU)) for rows in (1, 2, 8)] == [1, 1, 1]
    assert [len(steps_of(rows, 4096 * 4 // rows, CPU)) for rows in (1, 2, 8)] == [2, 2, 2]


def test_sixteen_numbers_are_lifted_at_once():
    """On CPU adapters with float64, along long rows of tensors; partial results are merged one by one."""
    doubles = replace(CPU, features=frozenset({"shader-f64"}))
    sums = Reduction("reduction/reduce_sum_float", F32, 2, portable=True)

    def groups(sizes, axis, target, reduction=sums):
        row_sizes = tuple(1 if index == axis else size for index, size in enumerate(sizes))
        source, output = tensor(Role.INPUT, sizes), tensor(Role.OUTPUT, row_sizes)
        return [step.group for step in scheduled(source, (axis,), output, target, reduction)]

    assert groups((64, 1024), 1, doubles) == [4]
    assert groups((64, 1023), 1, doubles) == [16]
    assert groups((64, 32), 1, doubles) == [4]
    assert groups((1, 1 << 20), 1, doubles) == [4, 0]
    assert groups((64, 31), 1, doubles) == groups((64, 28), 1, doubles) == [0]
    assert not any(groups((1024, 64), 0, doubles))
    assert groups((64, 1024), 1, CPU) == groups((64, 1024), 1, replace(doubles, profile=Profile.DISCRETE)) == [0]
    assert groups((64, 1024), 1, doubles, replace(sums, file="reduction/reduce_sum_square_float")) == [0]


def steps_of(rows, count, target, data_type=F32):
    source = tensor(Role.INPUT, (rows, count), data_type=data_type)
    return scheduled(source, (1,), tensor(Role.OUTPUT, (rows, 1), data_type=data_type), target)


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.profile)
@pytest.mark.parametrize("rows", [64, 1000])
@pytest.mark.parametrize("count", [1, 2, 32])
def test_short_rows_take_one_serial_step(rows, count, target):
    assert [step.label for step in steps_of(rows, count, target)] == ["serial"]


def test_gpus_take_a_workgroup_per_row_and_cpus_an_invocation():
    assert [step.schedule for step in steps_of(1000, 2048, GPU)] == [ReduceSchedule.TREE]
    assert [step.schedule for step in steps_of(1000, 2048, CPU)] == [ReduceSchedule.SERIAL]


def test_cpus_share_long_rows():
    """Invocations in lockstep with a row each would access different pages."""
    first, second = steps_of(1000, 4 * WORTH_SHARING, CPU)
    assert (first.schedule, first.together, first.output.sizes) == (ReduceSchedule.PARTIAL, 8, (1000, 1, 8))
    assert second.schedule == ReduceSchedule.SERIAL


def test_one_invocation_takes_one_sum_of_few_partial_ones():
    _, second = steps_of(24, 560, CPU)
    assert (second.source.sizes[-1], second.launch.items_per_invocation) == (3, 1)
    (single,) = steps_of(64, 3, CPU)
    assert single.launch.items_per_invocation == 4


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.profile)
def test_sixteen_million_elements_take_partial_results(target):
    first, second = steps_of(1, 1 << 24, target)
    assert (first.label, second.label) == ("partial", f"{second.schedule} of partials")
    assert (first.output.binding.role, first.output.data_type, first.output.lanes) == (Role.TEMPORARY, U32, 2)
    assert first.output.sizes[-1] >= 512


def longest_loop(step, target):
    """Return the iterations of the busiest invocation, over all units of a word that it stores."""
    units = max(1, 32 // step.output.unit_bits)
    count = step.source.sizes[-1] if step.of_partials else math.prod(step.source.sizes[axis] for axis in step.axes)
    if step.schedule is ReduceSchedule.SERIAL:
        return units * (count - 1)
    if step.schedule is ReduceSchedule.PARTIAL:
        return -(-count // step.output.sizes[-1]) - 1
    workgroup = row_launch(1, count, target).workgroup
    return units * (-(-count // workgroup) + workgroup.bit_length())


EDGES = [near + off for near in (1 << 14, 1 << 15, 1 << 16, 1 << 24, 1 << 31, 1 << 32) for off in (-1, 0, 1)][:-2]


@pytest.mark.parametrize("rows", [1, 3, 63, 64, 100_000])
@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.profile)
@pytest.mark.parametrize("data_type", [F32, F16, DataType.UINT8], ids=lambda t: t.name)
def test_loops_stay_within_every_drivers_limit(rows, target, data_type):
    random = np.random.default_rng(rows).integers(1, 1 << 32, 200).tolist()
    for count in (*EDGES, *range(1, 70), *random):
        columns = tensor(Role.INPUT, (count, rows), data_type=data_type)
        output = tensor(Role.OUTPUT, (1, rows), data_type=data_type)
        by_columns = scheduled(columns, (0,), output, target)
        for step in (*steps_of(rows, count, target, data_type), *by_columns):
            assert longest_loop(step, target) <= LOOP_LIMIT, count
            assert step.schedule is not ReduceSchedule.PARTIAL or step.output.sizes[-1] <= count


def test_sums_are_no_longer_than_rounding_errors_allow():
    source, output = tensor(Role.INPUT, (1000, 1 << 14)), tensor(Role.OUTPUT, (1000, 1))
    steps = scheduled(source, (1,), output, CPU, replace(REDUCTION, longest=64))
    assert all(longest_loop(step, CPU) < 64 for step in steps if step.schedule is not ReduceSchedule.TREE)


def test_gpus_read_several_units_before_they_merge_them():
    source, output = tensor(Role.INPUT, (8192, 8192)), tensor(Role.OUTPUT, (1, 8192))
    rows, partials = scheduled(source, (0,), output, GPU)
    assert (rows.schedule, rows.ahead) == (ReduceSchedule.PARTIAL, 4)
    assert (partials.schedule, partials.ahead) == (ReduceSchedule.SERIAL, 8)
    assert {step.ahead for step in scheduled(source, (0,), output, CPU)} == {1}
    assert {step.ahead for step in scheduled(source, (1,), tensor(Role.OUTPUT, (8192, 1)), GPU)} == {1}
