"""Networks, tiles, groups and lines of sorts."""

from __future__ import annotations

import itertools

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, Sort, View
from dmlgpu.compiler.schedule.ordering import MAX_IN_GROUP, choose_group, choose_tile, lines, network
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.ordering import SortSchedule
from dmlgpu.compiler.target import Profile, Target

F32, F16, I64 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT64
CPU, GPU = Target("any", Profile.CPU), Target("any", Profile.DISCRETE)
REGISTERS, WORKGROUP, SUBGROUPS = SortSchedule.REGISTERS, SortSchedule.WORKGROUP, SortSchedule.SUBGROUPS
IN_STEP = Target("any", Profile.DISCRETE, frozenset({"subgroup"}))


def source(sizes, strides=None, data_type=F32):
    return PlanTensor(PlanBinding(Role.INPUT, 0), data_type, sizes, strides or packed_strides(sizes))


# ---- networks


@pytest.mark.parametrize(("width", "count"), [(n, k) for n in range(1, 11) for k in range(1, n + 1)])
def test_a_network_puts_the_first_in_order(width, count):
    """A network that sorts all sequences of 0 and 1 sorts everything."""
    pairs = network(width, count)
    for bits in itertools.product((0, 1), repeat=width):
        values = list(bits)
        for low, high in pairs:
            if values[high] < values[low]:
                values[low], values[high] = values[high], values[low]
        assert values[:count] == sorted(bits)[:count]


@pytest.mark.parametrize(("width", "count"), [(1, 0), (2, 1), (4, 5), (8, 19), (16, 63), (32, 191)])
def test_networks_are_as_short_as_batchers(width, count):
    assert len(network(width, width)) == count


def test_a_network_for_few_is_shorter():
    assert len(network(16, 1)) == 15
    assert len(network(16, 3)) < 45


# ---- choices


@pytest.mark.parametrize(
    ("length", "data_type", "target", "expected"),
    [
        (1, F32, CPU, (REGISTERS, 1)),
        (16, F16, GPU, (REGISTERS, 16)),
        (17, F32, CPU, (REGISTERS, 16)),
        (17, F32, GPU, (WORKGROUP, 32)),
        (8, I64, GPU, (REGISTERS, 8)),
        (9, I64, CPU, (REGISTERS, 8)),
        (9, I64, GPU, (WORKGROUP, 16)),
        (1 << 20, F32, GPU, (WORKGROUP, 1024)),
        (1 << 20, I64, GPU, (WORKGROUP, 1024)),
        (16, F32, IN_STEP, (REGISTERS, 16)),
        (17, F32, IN_STEP, (SUBGROUPS, 32)),
        (9, I64, IN_STEP, (SUBGROUPS, 16)),
        (1 << 20, F32, IN_STEP, (SUBGROUPS, 1024)),
        (1 << 20, I64, Target("any", Profile.DISCRETE, max_workgroup_storage=16000), (WORKGROUP, 512)),
    ],
)
def test_tiles(length, data_type, target, expected):
    assert choose_tile(length, data_type, target) == expected


@pytest.mark.parametrize(
    ("length", "count", "tile", "group"),
    [
        (16, 1, 16, 1),  # one tile anyhow
        (100, 100, 16, 1),
        (100, 30, 16, 1),  # groups would leave nearly as many
        (4096, 50, 16, 8),
        (4096, 1, 16, 64),
        (1000, 1, 1024, 1),
        (1 << 20, 50, 1024, 128),
        (1 << 31, 1, 1024, MAX_IN_GROUP),
    ],
)
def test_groups(length, count, tile, group):
    assert choose_group(length, count, tile) == group


@pytest.mark.parametrize("length", [17, 1000, 4097, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 7, 50, 900])
def test_there_are_as_many_groups_as_requested_records(length, count):
    group = choose_group(length, min(count, length), 16)
    assert -(-length // group) >= min(count, length)
    assert group == 1 or 2 * (length // group + count * group) <= length + 2


# ---- lines


@pytest.mark.parametrize(
    ("sizes", "strides", "axis", "expected"),
    [
        ((2, 3, 4), None, 2, ((6, 4), (4, 1))),
        ((2, 3, 4), None, 1, ((2, 4, 3), (12, 1, 4))),
        ((2, 3, 4), None, 0, ((12, 2), (1, 12))),
        ((2, 3, 4), (1, 2, 6), 2, ((2, 3, 4), (1, 2, 6))),
        ((1, 5, 1), None, 1, ((1, 5), (5, 1))),
        ((7,), (3,), 0, ((7,), (3,))),
    ],
)
def test_lines_lie_along_the_last_dimension(sizes, strides, axis, expected):
    line = lines(source(sizes, strides), axis)
    assert line.sizes == expected[0]
    assert [s for s, n in zip(line.strides, line.sizes, strict=True) if n > 1] == [
        s for s, n in zip(expected[1], expected[0], strict=True) if n > 1
    ]


@pytest.mark.parametrize("target", [CPU, GPU])
@pytest.mark.parametrize(("length", "count"), [(1, 1), (33, 33), (1000, 7), (70001, 70001), (1 << 24, 1)])
def test_the_output_is_one_run_of_the_requested_records(length, count, target):
    output = PlanTensor.temporary("sorted", DataType.UINT32, (3, count), view=View.RAW, lanes=2)
    *before, last = schedule_step(Sort("", source((3, length)), 1, True, output), target).steps
    assert (last.output.sizes, last.output.binding) == ((3, 1, count), output.binding)
    assert all(step.output.binding != output.binding for step in before)
