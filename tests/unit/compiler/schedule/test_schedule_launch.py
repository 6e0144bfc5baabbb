"""Grids: enough workgroups, within the adapter's limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Map, PlanTensor, apply, constants, element
from dmlgpu.compiler.rewrites.sources import MERGE
from dmlgpu.compiler.schedule.launch import fold, item_launch, loop_launch, map_launch, row_launch
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.sizes.arithmetic import Recording
from dmlgpu.compiler.target import Profile, Target

CPU, GPU = Target("any", Profile.CPU), Target("any", Profile.DISCRETE)
SUBGROUPS = Target("any", Profile.DISCRETE, frozenset({"subgroup"}), subgroup_lanes=8)
DOUBLES = Target("any", Profile.CPU, frozenset({"subgroup", "shader-int64"}), subgroup_lanes=8)
LAUNCHES = (map_launch, item_launch, loop_launch)


@pytest.mark.parametrize(
    ("groups", "grid"),
    [
        (1, (1, 1, 1)),
        (65535, (65535, 1, 1)),
        (65536, (32768, 2, 1)),
        (65535 * 2, (65535, 2, 1)),
        (65535 * 2 + 1, (43691, 3, 1)),
        (65535 * 65535, (65535, 65535, 1)),
    ],
)
def test_more_workgroups_than_an_axis_takes_fold_over_two(groups, grid):
    assert fold(groups, CPU) == grid


@given(st.integers(1, 65535**2))
def test_a_folded_grid_holds_every_workgroup_and_less_than_a_row_more(groups):
    x, y, z = fold(groups, CPU)
    assert x <= 65535 and y <= 65535 and z == 1
    assert groups <= x * y < groups + y


def test_too_many_workgroups_for_two_axes_are_rejected():
    with pytest.raises(NotSupported) as caught:
        fold(101, Target("Tiny GPU", max_workgroups_per_dimension=10))
    assert str(caught.value) == "101 workgroups exceed what 'Tiny GPU' dispatches at once (10 x 10)"


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.__name__)
def test_invocations_take_items_in_lockstep_if_drivers_load_doubles_lane_by_lane(launch):
    assert launch(1 << 20, DOUBLES).lockstep == 8
    for other in (
        CPU,
        SUBGROUPS,
        replace(DOUBLES, profile=Profile.DISCRETE),
        replace(DOUBLES, features=frozenset({"subgroup"})),
        replace(DOUBLES, features=frozenset({"shader-int64"})),
        replace(DOUBLES, subgroup_lanes=4),
        replace(DOUBLES, max_workgroup_invocations=4),
    ):
        assert launch(1 << 20, other).lockstep == 0


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.profile)
@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.__name__)
@pytest.mark.parametrize("total", [1, 63, 64, 65, 256, 257, 1 << 20, (1 << 24) + 1])
def test_a_launch_covers_its_items(launch, target, total):
    shape = launch(total, target)
    per_group = shape.workgroup * shape.items_per_invocation
    groups = shape.grid[0] * shape.grid[1]
    assert shape.total == total <= groups * per_group
    assert shape.workgroup <= target.max_workgroup_invocations
    assert (groups - shape.grid[1]) * per_group < total


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.__name__)
def test_every_index_is_below_two_to_the_32(launch):
    """The running index is a u32: it must not wrap around in the last workgroups of a grid."""
    shape = launch(1 << 31, CPU)
    assert shape.grid[0] * shape.grid[1] * shape.workgroup * shape.items_per_invocation < 1 << 32


def test_cpu_adapters_take_several_items_per_invocation_and_gpus_one():
    assert map_launch(1000, CPU).items_per_invocation > 1
    assert map_launch(1000, GPU).items_per_invocation == 1


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.__name__)
def test_workgroups_keep_to_a_small_adapters_limit(launch, profile):
    assert launch(1000, Target("any", profile, max_workgroup_invocations=64)).workgroup <= 64


@pytest.mark.parametrize(
    ("units", "alone", "by_subgroups"),
    [(33, 64, 32), (63, 64, 32), (64, 64, 64), (65, 128, 64), (192, 256, 128), (256, 256, 256), (100_000, 256, 256)],
)
def test_a_row_has_a_workgroup(units, alone, by_subgroups):
    """If subgroups exchange values, all invocations have one."""
    launch = row_launch(70_000, units, GPU)
    assert (launch.workgroup, launch.grid, launch.subgroup) == (alone, (35_000, 2, 1), 0)
    launch = row_launch(70_000, units, SUBGROUPS)
    assert (launch.workgroup, launch.grid, launch.subgroup) == (by_subgroups, (35_000, 2, 1), 8)


@pytest.mark.parametrize("target", [GPU, SUBGROUPS])
def test_the_workgroup_of_a_row_keeps_to_a_small_adapters_limit(target):
    assert row_launch(1, 1000, replace(target, max_workgroup_invocations=64)).workgroup == 64


def test_workgroups_of_cpu_adapters_exchange_nothing_by_subgroups():
    assert row_launch(1, 1000, replace(SUBGROUPS, profile=Profile.CPU)).subgroup == 0


def test_maps_that_run_once_or_loop_take_one_unit_at_a_time():
    """Compilers translate each of several units separately."""
    sizes = (1 << 16,)
    source, output = (PlanTensor.temporary(label, DataType.FLOAT32, sizes) for label in ("source", "output"))
    partials = PlanTensor.temporary("partials", DataType.FLOAT32, (2, *sizes))

    def units(body, is_once):
        (step,) = schedule_step(Map("copy", body, output, is_once=is_once), CPU).steps
        return step.launch.items_per_invocation

    plain = apply("elementwise/element_wise_abs", DataType.FLOAT32, sizes, input=source)
    merged = element(MERGE, DataType.FLOAT32, sizes, values=constants(parts=2), partials=partials)
    assert (units(plain, False), units(plain, True), units(merged, False)) == (4, 1, 1)


def test_small_maps_of_sizes_that_vary_take_units_in_a_loop():
    """Compilers translate a loop once; it serves sizes up to four times as large."""

    def in_loop(count, target):
        source, output = (PlanTensor.temporary(label, DataType.FLOAT32, (count,)) for label in ("source", "output"))
        body = apply("activation/activation_tanh", DataType.FLOAT32, (count,), input=source)
        (step,) = schedule_step(Map("tanh", body, output), target).steps
        return step.launch.in_loop

    varying = CPU.varying
    counts = (1 << 14, 1 << 22)
    assert [in_loop(count, varying) for count in counts] == [True, False]
    assert [in_loop(count, CPU) for count in counts] == [in_loop(count, GPU.varying) for count in counts] == [False] * 2
    recording = Recording([1 << 14])
    with recording.active():
        assert in_loop(recording.symbols[0] * 4, varying)
        replay = recording.replay(())
    assert [replay([size]) is not None for size in (1 << 10, 1 << 18, 1 << 22)] == [True, True, False]
