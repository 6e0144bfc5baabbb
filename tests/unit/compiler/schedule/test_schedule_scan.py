"""Scans: elements and order of lines, the choice of schedules and blocks, loops within every driver's limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import element_offsets, packed_strides
from dmlgpu.compiler.plan import Compact, PlanBinding, PlanTensor, Role, Scan, Scanning, View, constants
from dmlgpu.compiler.schedule import scan
from dmlgpu.compiler.schedule.scan import TOTAL, canonical, tree_launch
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.reductions import ScanSchedule, ScheduledScan
from dmlgpu.compiler.target import Profile, Target

F32, F16, I64 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT64
CPU, GPU = (Target("any", profile, max_binding_size=1 << 50) for profile in (Profile.CPU, Profile.DISCRETE))
SERIAL, TREE = ScanSchedule.SERIAL, ScanSchedule.TREE
SUMMING = Scanning("scanning/cumulative_summation_float", F32, 2, portable=True)
LONGEST_LOOP = 16384


def tensor(role, sizes, strides=None, data_type=F32):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(role, 0), data_type, tuple(sizes), tuple(strides))


def steps_of(sizes, axis, target, data_type=F32, strides=None):
    source, output = (tensor(role, sizes, strides, data_type) for role in (Role.INPUT, Role.OUTPUT))
    return schedule_step(Scan("", SUMMING, source, axis, output), target).steps


def memory_of(steps):
    """Return the bytes of each temporary tensor that some step writes."""
    outputs = (step.output for step in steps if step.output.binding.role is Role.TEMPORARY)
    return tuple({output.binding: output.reach for output in outputs}.values())


@st.composite
def problems(draw):
    rank = draw(st.integers(1, 5))
    sizes = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    strides = [tuple(draw(st.integers(0, 30)) for _ in range(rank)) for _ in range(2)]
    order = draw(st.permutations(range(rank)))
    if draw(st.booleans()):
        packed = packed_strides([sizes[dimension] for dimension in order])
        strides[1] = tuple(packed[order.index(dimension)] for dimension in range(rank))
    return sizes, strides, draw(st.integers(0, rank - 1))


@given(problems())
def test_merged_lines_have_the_same_elements_in_the_same_order(problem):
    sizes, strides, axis = problem
    tensors = [tensor(*fields) for fields in zip((Role.INPUT, Role.OUTPUT), (sizes, sizes), strides, strict=True)]
    merged = canonical(tensors[0], axis, tensors[1])
    assert merged[0].sizes == merged[1].sizes and merged[0].rank >= 2 and merged[0].sizes[-1] == sizes[axis]

    def lines(pair, along):
        moved = [np.moveaxis(element_offsets(view.sizes, view.strides), along, -1) for view in pair]
        return sorted(np.stack(moved, -1).reshape(-1, 2 * sizes[axis]).tolist())

    assert lines(merged, -1) == lines(tensors, axis)


def test_lines_are_numbered_in_the_order_of_the_outputs_memory():
    source, output = tensor(Role.INPUT, (3, 4, 5)), tensor(Role.OUTPUT, (3, 4, 5), (1, 15, 3))
    merged = canonical(source, 1, output)
    assert [view.sizes for view in merged] == [(5, 3, 4)] * 2
    assert [view.strides for view in merged] == [(1, 20, 5), (3, 1, 15)]


SHAPES = {
    "short lines": ((100, 7), 1, F32, CPU, (SERIAL, 1, False, 1)),
    "packed along": ((100, 64), 1, F32, CPU, (SERIAL, 4, False, 1)),
    "pairs along": ((100, 62), 1, F16, CPU, (SERIAL, 2, False, 1)),
    "packed across": ((3, 50, 64), 1, F32, CPU, (SERIAL, 4, True, 1)),
    "64-bit elements": ((100, 64), 1, I64, CPU, (SERIAL, 1, False, 1)),
    "one element each": ((100, 1), 1, F32, CPU, (SERIAL, 4, True, 1)),
    "many long lines": ((64, 4096), 1, F32, CPU, (SERIAL, 4, False, 1)),
    "few long lines": ((3, 20000), 1, F32, CPU, (SERIAL, 4, False, 9)),
    "one long line": ((1 << 24,), 0, F32, CPU, (SERIAL, 4, False, 1024)),
    "long columns": ((20000, 3), 0, F32, CPU, (SERIAL, 1, False, 39)),
    "a line per workgroup": ((9, 256), 1, F32, GPU, (TREE, 4, False, 1)),
    "an odd line per workgroup": ((9, 257), 1, F32, GPU, (TREE, 1, False, 1)),
    "short lines on a GPU": ((9, 32), 1, F32, GPU, (SERIAL, 4, False, 1)),
    "tiles one by one": ((2, 20000), 1, F32, GPU, (TREE, 4, False, 1)),
    "one long line on a GPU": ((1 << 24,), 0, F32, GPU, (TREE, 4, False, 4096)),
    "columns on a GPU": ((4096, 4096), 0, F32, GPU, (SERIAL, 4, True, 32)),
    "many columns on a GPU": ((300, 1 << 16), 0, F32, GPU, (SERIAL, 4, True, 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_chosen_schedules(name):
    sizes, axis, data_type, target, (schedule, lanes, across, blocks) = SHAPES[name]
    steps = steps_of(sizes, axis, target, data_type)
    last = steps[-1]
    assert (last.schedule, last.source.lanes, last.across, last.blocks) == (schedule, lanes, across, blocks)
    assert last.output.lanes == lanes
    assert len(steps) == (1 if blocks == 1 else 3) and len(memory_of(steps)) == len(steps) // 2


def test_long_lines_take_totals_their_scan_and_a_scan_of_blocks():
    first, second, last = steps_of((3, 20000), 1, CPU)
    assert [step.label for step in (first, second, last)] == ["totals serial", "serial of totals", "from serial"]
    totals = first.output
    assert (totals.binding.role, totals.data_type, totals.lanes) == (Role.TEMPORARY, F32, 2)
    assert (totals.sizes, totals.strides, totals.reach) == ((3, 9), (1, 3), 3 * 9 * 8)
    assert (first.length, first.blocks, second.blocks) == (556, 9, 1)


def test_lines_across_have_separate_totals():
    first, _, last = steps_of((4096, 8), 0, CPU)
    assert last.across and (last.lines, last.units) == (2, 4096)
    assert (first.output.sizes, first.output.strides, first.output.reach) == ((8, 8), (1, 8), 8 * 8 * 8)


@pytest.mark.parametrize(("data_type", "lanes"), [(F32, 4), (F16, 4), (I64, 1)])
def test_counted_elements_are_read_in_units_unless_they_have_64_bits(data_type, lanes):
    numbers = DataType.UINT32
    source, output = tensor(Role.INPUT, (4, 8), data_type=data_type), tensor(Role.OUTPUT, (32, 2), data_type=numbers)
    count = PlanTensor(PlanBinding(Role.OUTPUT, 1), numbers, (1,), (1,), view=View.RAW)
    digits = constants(digits=[(8, 8), (1, 8)])
    step = Compact("", source, "scanning/is_nonzero", "scanning/nonzero_coordinates", digits, output, count)
    counting = [kernel for kernel in schedule_step(step, CPU).steps if isinstance(kernel, ScheduledScan)]
    assert counting[0].source.lanes == lanes


def test_totals_of_totals(monkeypatch):
    monkeypatch.setattr(scan, "LONGEST_WALK", 8)
    steps = steps_of((70, 500), 1, CPU)
    assert [step.label for step in steps] == [
        "totals serial",
        "totals serial of totals",
        "serial of totals",
        "from serial of totals",
        "from serial",
    ]
    assert [step.blocks for step in steps] == [16, 2, 1, 2, 16]
    assert memory_of(steps) == (70 * 16 * 8, 70 * 2 * 8)


def longest_loop(step, target):
    """Return the iterations of the busiest invocation of a step, over all its loops."""
    if step.schedule is SERIAL:
        return step.length
    workgroup = tree_launch(1, step.length, step.held, target).workgroup
    tiles = -(-step.length // (workgroup * step.held))
    halves = workgroup.bit_length()
    return -(-step.length // workgroup) + halves if step.advance == TOTAL else tiles * (1 + halves)


EDGES = [near + off for near in (1, 1 << 14, 1 << 16, 1 << 20, 1 << 24, 1 << 28) for off in (0, 1, 4)]


@pytest.mark.parametrize("lines", [1, 3, 64, 5000])
@pytest.mark.parametrize("target", [CPU, GPU, replace(CPU, loop_limit=65535)], ids=lambda target: target.profile)
@pytest.mark.parametrize("along", [False, True])
def test_loops_are_bounded_and_every_unit_has_one_block(along, target, lines):
    longest = LONGEST_LOOP if target.loop_limit is None else target.loop_limit // 4
    for count in EDGES:
        sizes, axis = ((lines, count), 1) if along else ((count, lines), 0)
        steps = steps_of(sizes, axis, target)
        for step in steps:
            assert longest_loop(step, target) <= longest
            assert (step.blocks - 1) * step.length < step.units <= step.blocks * step.length
        assert sum(memory_of(steps)) <= max(4 * lines * count // 8, 1 << 22)
        assert math.prod(steps[-1].source.sizes) * steps[-1].source.lanes == lines * count


SHUFFLING = Target("any", Profile.DISCRETE, frozenset({"subgroup"}), subgroup_lanes=8)


@pytest.mark.parametrize(
    ("sizes", "data_type", "target", "paired"),
    [
        ((8, 1024), F32, SHUFFLING, True),
        ((8, 1024), F32, GPU, False),  # invocations could swap results through workgroup memory only
        ((8, 1024), F16, SHUFFLING, False),
        ((8, 1023), F32, SHUFFLING, False),
        ((8, 132), F32, SHUFFLING, True),  # two units each
        ((8, 64), F32, SHUFFLING, False),  # one unit each
    ],
)
def test_adjacent_invocations_swap_results_of_16_bytes(sizes, data_type, target, paired):
    (step,) = steps_of(sizes, 1, target, data_type)
    assert (step.schedule, step.paired) == (TREE, paired)


def test_totals_of_blocks_are_not_swapped():
    steps = steps_of((1, 1 << 20), 1, SHUFFLING)
    assert [step.paired for step in steps] == [False] * (len(steps) - 1) + [True]
