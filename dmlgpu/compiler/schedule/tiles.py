"""Tiles: kernels whose invocations compute several adjacent elements from operands that they read only once.

The windows of a tile of positions read a patch of a convolution's input, since adjacent windows overlap. A tile reads
each element that its windows need once, in units of four if the input allows that, and its windows select their
elements from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, PlanTensor, RegisterValue, Sizes, Source, apply
from dmlgpu.compiler.plan.windows import WindowAxis, Windows
from dmlgpu.compiler.rewrites.packing import (
    UNIT,
    in_pairs,
    is_paired,
    pack_source,
    pack_tensor,
    packs_source,
    packs_tensor,
)
from dmlgpu.compiler.rewrites.sources import CONVERT
from dmlgpu.compiler.schedule.launch import Launch, Walk, choose_walk, tile_launch
from dmlgpu.compiler.schedule.registry import by_profile
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Patch, ScheduledTiles
from dmlgpu.compiler.schedule.units import IMAGES, reads_single
from dmlgpu.compiler.target import Target

MAX_ACROSS = 32
"""Maximum window size along the last dimension for unrolled code."""

MAX_ROWS = 4
"""Maximum rows of a tile."""

LIMITS = by_profile(cpu=(2, MAX_ROWS, 800), gpus=(1, 2, 320))
"""Minimum and maximum rows of an unrolled tile, and maximum total size of its windows. A single row shares nothing with
others: on a CPU adapter, whose compiler takes seconds for an unrolled window, a loop is as fast. Rows are fewer if many
invocations hide memory latency."""


def tiles(
    label: str,
    body: Body,
    tile: Sizes,
    epilogue: Body,
    output: PlanTensor,
    *,
    target: Target,
    launch: Callable[[int, Target], Launch] = tile_launch,
    first: int | None = None,
    rows: int = 0,
) -> ScheduledSteps:
    """Return the kernel, packed if tile, output and epilogue allow it (see ``ScheduledTiles``).

    Args:
        label, body, tile, epilogue, output: Parts of the kernel.
        target: The adapter.
        launch: Function from the number of tiles to a launch.
        first: The dimension along which adjacent invocations lie; None for the contiguous one.
        rows: As in ``ScheduledTiles``.
    """
    last = output.rank - 1
    if (
        not is_narrow(output, target)
        and tile[last] % UNIT == 0
        and packs_tensor(output, last, UNIT)
        and packs_source(epilogue, last, UNIT)
    ):
        epilogue, output = pack_source(epilogue, last, UNIT), pack_tensor(output, last, UNIT)
        if target.moves_pairs and tile[last] % (2 * UNIT) == 0:
            output = in_pairs(output)
    # A row of one tile shares the kernel of others; unrolled tiles would lose more than that gains.
    walk = _walk((*tile[:-2], rows or tile[-2], tile[-1]), output, first, walked=(last,) if rows else ())
    return ScheduledSteps(
        (
            ScheduledTiles(
                label, launch(walk.count, target), output, body, tile, epilogue, walk, rows, target.policies.varying
            ),
        )
    )


def is_narrow(image: PlanTensor | Source, target: Target) -> bool:
    """Return whether rows of an image are so short that single elements are read and written, if sizes vary."""
    return reads_single(image.sizes[-1], math.prod(image.sizes), IMAGES, target)


def _walk(tile: Sizes, output: PlanTensor, first: int | None, walked: Collection[int] = ()) -> Walk:
    """Return the order of the tiles: along the dimension ``first``, then in the order of memory. Dimensions with one
    tile have no digit, except ``walked``."""
    units = (*tile[:-1], tile[-1] // output.lanes)
    sizes = tuple(-(-size // count) for size, count in zip(output.sizes, units, strict=True))
    strides = tuple(
        0 if dimension == first else stride * count
        for dimension, (stride, count) in enumerate(zip(output.strides, units, strict=True))
    )
    grid = replace(output, data_type=DataType.UINT32, sizes=sizes, strides=strides, offset=0, lanes=1)
    return choose_walk(grid, walked=walked)


def unchanged(data_type: DataType, sizes: Sizes) -> Body:
    """Return the epilogue that stores the numbers unchanged."""
    return apply(CONVERT, data_type, sizes, portable=True, input=RegisterValue.product(data_type, sizes))


# ---- patches


def packed_patch(
    source: Source, axis: WindowAxis, tile: int, target: Target, *, single: bool = False
) -> tuple[Source, Patch]:
    """Return the patch along the last dimension, and the source in units of four, or pairs of them, if it and the tile
    allow that."""
    last = len(source.sizes) - 1
    checked = target.policies.varying
    if single:
        return source, Patch(axis, tile, checked=checked)
    packs = tile * axis.stride % UNIT == 0 and axis.spatial % UNIT == 0 and packs_source(source, last, UNIT)
    if not packs:
        return source, Patch(axis, tile, checked=checked)
    units = pack_source(source, last, UNIT)
    if target.moves_pairs and tile * axis.stride % (2 * UNIT) == 0:
        units = in_pairs(units)
    return units, Patch(axis, tile, UNIT, is_paired(units), checked)


def tile_columns(positions: int, target: Target) -> int:
    """Return the columns of a tile: one unit, or two on a CPU adapter if no tile is then less than half full. If sizes
    vary, more columns than a unit have two, so that their kernel is one."""
    if target.needs_many_invocations:
        return min(UNIT, positions)
    if target.policies.varying and positions > UNIT:
        return 2 * UNIT
    return 2 * UNIT if not 0 < positions % (2 * UNIT) <= UNIT else min(UNIT, positions)


def tile_rows(windows: Windows, columns: int, target: Target) -> int:
    """Return the rows of a tile; 0 if the last dimension but one is looped over, or missing."""
    if len(windows) < 2:
        return 0
    *_, down, across = windows
    min_rows, max_rows, places = LIMITS[target.profile]
    several = range(min(max_rows, down.positions), min_rows - 1, -1)
    return next((rows for rows in several if rows * columns * down.size * across.size <= places), 0)
