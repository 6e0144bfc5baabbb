"""Workgroups: how many, how large."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import Profile, Target


@dataclass(frozen=True)
class Launch:
    """The shape of a dispatch.

    Attributes:
        workgroup: invocations of a workgroup.
        each: consecutive work items of one invocation.
        grid: workgroups along x, y, z; the number of a workgroup is x + y * grid[0].
        total: work items in all; numbers from there on do nothing.
    """

    workgroup: int
    each: int
    grid: tuple[int, int, int]
    total: int


def fold(groups: int, target: Target) -> tuple[int, int, int]:
    """Return a two-dimensional grid of at least that many workgroups.

    Raises:
        NotSupported: when not even two dimensions hold them.
    """
    limit = target.max_workgroups_per_dimension
    rows = -(-groups // limit)
    if rows > limit:
        raise NotSupported(f"{groups} workgroups exceed what {target.name!r} dispatches at once ({limit} x {limit})")
    return -(-groups // rows), rows, 1


def map_launch(total: int, target: Target) -> Launch:
    """Return one invocation per few items: CPU adapters like several neighbouring ones, GPUs one."""
    each, workgroup = 4 if target.profile is Profile.CPU else 1, min(256, target.max_workgroup_invocations)
    return Launch(workgroup, each, fold(-(-total // (workgroup * each)), target), total)


def item_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item, whatever the adapter."""
    workgroup = 64 if target.profile is Profile.CPU else min(256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(-(-total // workgroup), target), total)


def loop_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for bodies that loop: neighbours run in step, and CPU adapters want few of
    them."""
    workgroup = 8 if target.profile is Profile.CPU else 64
    return Launch(workgroup, 1, fold(-(-total // workgroup), target), total)


def tile_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for bodies that hold much in registers."""
    workgroup = 32 if target.profile is Profile.CPU else 64
    return Launch(workgroup, 1, fold(-(-total // workgroup), target), total)


def light_tile_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for tiles that hold little: workgroups as large as those of maps."""
    workgroup = min(256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(-(-total // workgroup), target), total)


def group_launch(total: int, target: Target) -> Launch:
    """Return one workgroup per item, for cooperative schedules."""
    workgroup = min(256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(total, target), total)


def row_launch(rows: int, units: int, target: Target) -> Launch:
    """Return one workgroup per row of so many units, no larger than the row needs."""
    workgroup = min(max(32, 1 << (units - 1).bit_length()), 256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(rows, target), rows)
