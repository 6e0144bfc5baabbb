"""Maximum pooling: an invocation chooses for a tile of positions, from rows that it reads once, in units of four."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Pool, Step, constants, element
from dmlgpu.compiler.plan.windows import Windows
from dmlgpu.compiler.rewrites.packing import UNIT, packs_tensor
from dmlgpu.compiler.rewrites.sources import as_bits
from dmlgpu.compiler.rewrites.windows import largest_places, taken_from_places
from dmlgpu.compiler.schedule.launch import light_tile_launch, tile_launch
from dmlgpu.compiler.schedule.registry import YES, Condition, Schedule, at_most, choose, only_if, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, plain_steps, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Patch
from dmlgpu.compiler.schedule.tiles import MAX_ACROSS, packed_patch, tile_columns, tile_rows, tiles, unchanged
from dmlgpu.compiler.target import Target

SPATIAL = 2
"""First spatial dimension of input and output."""

FEW_PLACES = 9
"""Maximum size of disjoint windows for which an invocation computes one unit: reading for more saves less than
the additional registers cost."""

MAX_TAPS_ON_GPU = 64
"""Maximum size of a window that an invocation of a GPU reads as a whole."""


@plain_steps.register
def _plain_pool(step: Pool, target: Target) -> Sequence[Step]:
    """Return the pool itself if it is computed in tiles, else a reduction to indices and a map."""
    return choose(POOL_SCHEDULES, StepProblem(step, target))


def _can_be_tiled(problem: StepProblem[Pool]) -> Condition:
    """Return whether an invocation can choose the elements of many positions at once: for windows that are short enough
    to be written out and for loops."""
    step, limit = problem.step, problem.target.loop_limit
    taps = _taps(problem)
    return (
        at_most(step.output.data_type.bits, WORD_BITS, "bits of an element")
        and at_most(step.windows[-1].size, MAX_ACROSS, "elements in a row of a window")
        and only_if(limit is None or taps < limit, "the driver stops loops of {} elements of a window", taps)
    )


def _pays_in_tiles(problem: StepProblem[Pool]) -> Condition:
    """Return whether tiles gain: on GPUs few invocations would iterate over large windows, and compare-exchange would
    store elements below a word."""
    output = problem.step.output
    is_whole = output.data_type.bits == WORD_BITS or packs_tensor(output, output.rank - 1, UNIT)
    if not problem.target.needs_many_invocations:
        return YES
    few = at_most(_taps(problem), MAX_TAPS_ON_GPU, "elements of a window")
    return few and only_if(is_whole, "elements below a word in rows of no whole units")


def _taps(problem: StepProblem[Pool]) -> int:
    return math.prod(axis.size for axis in problem.step.windows)


def _by_places(step: Pool) -> tuple[Step, Step]:
    finding, places = largest_places(step.input, step.windows)
    return replace(finding, label=step.label), taken_from_places(step, places)


@schedule_step.register
def _in_tiles(step: Pool, target: Target) -> ScheduledSteps:
    """Return a single kernel, which treats elements as unsigned integers. Plans keep only pools in tiles."""
    windows, output = step.windows, as_bits(step.output)
    is_light = _is_light(windows)
    if is_light:
        rows, columns = min(len(windows) - 1, 1), min(UNIT, windows[-1].positions)
    else:
        columns = tile_columns(windows[-1].positions, target)
        rows = tile_rows(windows, columns, target)
    source, across = packed_patch(as_bits(step.input), windows[-1], columns, target)
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


POOL_SCHEDULES: tuple[Schedule[StepProblem[Pool], Sequence[Step]], ...] = register(
    Schedule(
        "pool",
        "tiles",
        lambda problem: (problem.step,),
        "short windows: an invocation chooses for a tile of positions, from rows that it reads once",
        fits=_can_be_tiled,
        pays=_pays_in_tiles,
    ),
    Schedule(
        "pool",
        "places",
        lambda problem: _by_places(problem.step),
        "a reduction to the place of the largest element, and a map that takes it from there",
    ),
)
"""Schedules of maximum pooling, in the order in which they are tried."""


def _is_light(windows: Windows) -> bool:
    """Return whether windows are small and disjoint."""
    share_none = all(axis.stride >= axis.reach for axis in windows)
    return share_none and math.prod(axis.size for axis in windows) <= FEW_PLACES
