"""Maximum pooling: an invocation chooses for a tile of positions, from rows that it reads once, in units of four."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import UNIT
from dmlgpu.plan import Pool, Tensor, constants, element
from dmlgpu.plan.windows import Windows
from dmlgpu.schedule.launch import light_tile_launch, tile_launch
from dmlgpu.schedule.patches import Patch, packed_patch, tile_columns, tile_rows
from dmlgpu.schedule.scheduling import schedule_step
from dmlgpu.schedule.steps import Steps
from dmlgpu.schedule.tiles import tiles, unchanged
from dmlgpu.target import Target

SPATIAL = 2
"""The first spatial dimension of input and output."""

FEW_PLACES = 9
"""Places of windows that share none, up to which an invocation chooses for one unit: reading for more saves less than
what holding more in registers costs."""

_UNSIGNED = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32}


@schedule_step.register
def _pool(step: Pool, target: Target) -> Steps:
    """Return a single kernel, to which elements are unsigned numbers of their bits."""
    windows, output = step.windows, _bits(step.output)
    is_light = _is_light(windows)
    rows, columns = _light_tile(windows) if is_light else _tile(windows, target)
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
    made = tiles("largest", body, tile, epilogue, output, target=target, launch=launch)
    return made.because(f"an invocation chooses for {max(rows, 1)} x {columns} positions, from what it reads only once")


def _is_light(windows: Windows) -> bool:
    """Return whether windows are small and share no place."""
    share_none = all(axis.stride >= axis.reach for axis in windows)
    return share_none and math.prod(axis.size for axis in windows) <= FEW_PLACES


def _light_tile(windows: Windows) -> tuple[int, int]:
    """Return the rows and columns of a tile of windows that share no place: a unit."""
    return min(len(windows) - 1, 1), min(UNIT, windows[-1].positions)


def _tile(windows: Windows, target: Target) -> tuple[int, int]:
    """Return the rows and columns of a tile of windows that share places; 0 rows where they are looped over."""
    columns = tile_columns(windows[-1].positions, target)
    return tile_rows(windows, columns, target), columns


def _bits(tensor: Tensor) -> Tensor:
    return replace(tensor, data_type=_UNSIGNED[tensor.data_type.bits])
