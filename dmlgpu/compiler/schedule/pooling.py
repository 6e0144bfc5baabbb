"""Maximum pooling: an invocation chooses for a tile of positions, from rows that it reads once, in units of four."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import PlanTensor, Pool, Step, constants, element
from dmlgpu.compiler.plan.windows import Windows
from dmlgpu.compiler.rewrites.packing import UNIT, packs_tensor
from dmlgpu.compiler.rewrites.windows import largest_places, taken_from_places
from dmlgpu.compiler.schedule.launch import light_tile_launch, tile_launch
from dmlgpu.compiler.schedule.scheduling import (
    Candidate,
    StepProblem,
    first_fitting,
    plain_steps,
    schedule_step,
    schedule_steps,
)
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Patch
from dmlgpu.compiler.schedule.tiles import MAX_ACROSS, packed_patch, tile_columns, tile_rows, tiles, unchanged
from dmlgpu.compiler.target import Profile, Target

SPATIAL = 2
"""First spatial dimension of input and output."""

FEW_PLACES = 9
"""Maximum size of disjoint windows for which an invocation computes one unit: reading for more saves less than
the additional registers cost."""

MAX_TAPS_ON_GPU = 64
"""Maximum size of a window that an invocation of a GPU reads as a whole."""

_UNSIGNED = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32}


@plain_steps.register
def _plain_pool(step: Pool, target: Target) -> Sequence[Step]:
    """Return a reduction to indices and a map, unless the pool is computed in tiles."""
    return (step,) if _is_tiled(step, target) else _by_places(step)


def _is_tiled(step: Pool, target: Target) -> bool:
    """Return whether an invocation can choose the elements of many positions at once, and gains by it: for windows that
    are short enough to be written out and for loops. On GPUs few invocations would iterate over large windows, and
    compare-exchange would store elements below a word."""
    taps, limit, output = math.prod(axis.size for axis in step.windows), target.loop_limit, step.output
    if output.data_type.bits > WORD_BITS or step.windows[-1].size > MAX_ACROSS or not (limit is None or taps < limit):
        return False
    is_whole = output.data_type.bits == WORD_BITS or packs_tensor(output, output.rank - 1, UNIT)
    return target.profile is Profile.CPU or (taps <= MAX_TAPS_ON_GPU and is_whole)


def _by_places(step: Pool) -> tuple[Step, Step]:
    finding, places = largest_places(step.input, step.windows)
    return replace(finding, label=step.label), taken_from_places(step, places)


def _in_tiles(problem: StepProblem[Pool]) -> ScheduledSteps | None:
    """Return a single kernel, which treats elements as unsigned integers."""
    step, target = problem.step, problem.target
    if not _is_tiled(step, target):
        return None
    windows, output = step.windows, _bits(step.output)
    is_light = _is_light(windows)
    if is_light:
        rows, columns = min(len(windows) - 1, 1), min(UNIT, windows[-1].positions)
    else:
        columns = tile_columns(windows[-1].positions, target)
        rows = tile_rows(windows, columns, target)
    source, across = packed_patch(_bits(step.input), windows[-1], columns, target)
    looped = windows[: -2 if rows else -1]
    values = constants(
        looped=looped,
        down=Patch(windows[-2], rows) if rows else None,
        across=across,
        spatial=SPATIAL,
        elements=step.input.data_type,
    )
    body = element("pooling/max_tile", DataType.UINT32, output.sizes, portable=True, values=values, input=source)
    ones = (1,) * (SPATIAL + len(looped))
    tile = (*ones, rows, columns) if rows else (*ones, columns)
    epilogue = unchanged(output.data_type, output.sizes)
    launch = light_tile_launch if is_light else tile_launch
    steps = tiles("largest", body, tile, epilogue, output, target=target, launch=launch)
    return steps.because(
        f"an invocation chooses for {max(rows, 1)} x {columns} positions, from what it reads only once"
    )


POOL_SCHEDULES: tuple[Candidate[StepProblem[Pool], ScheduledSteps], ...] = (
    Candidate(
        "tiles",
        "short windows: an invocation chooses for a tile of positions, from rows that it reads once",
        _in_tiles,
    ),
    Candidate(
        "places",
        "everything else: a reduction to the place of the largest element, and a map that takes it from there",
        lambda problem: schedule_steps(_by_places(problem.step), problem.target),
    ),
)
"""Schedules of maximum pooling, in the order in which they are tried."""


@schedule_step.register
def _pool(step: Pool, target: Target) -> ScheduledSteps:
    return first_fitting(POOL_SCHEDULES, StepProblem(step, target))


def _is_light(windows: Windows) -> bool:
    """Return whether windows are small and disjoint."""
    share_none = all(axis.stride >= axis.reach for axis in windows)
    return share_none and math.prod(axis.size for axis in windows) <= FEW_PLACES


def _bits(tensor: PlanTensor) -> PlanTensor:
    return replace(tensor, data_type=_UNSIGNED[tensor.data_type.bits])
