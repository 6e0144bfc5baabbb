"""Depth-wise convolution: each group has one input channel, so that there is nothing to sum but the window.

That is little arithmetic for much memory. An invocation computes a tile of positions over the last two spatial
dimensions, of one output channel: it holds the filter in registers, goes through the rows of the patch that its windows
see, reads each once, in units of four where memory lets it, and adds each element to every position that sees it.
Outer dimensions of the window, and rows where the window is large, are loops around that.
"""

from __future__ import annotations

import math

from dmlgpu.kernels.packing import UNIT
from dmlgpu.plan import Body, Convolution, Tensor, constants, element
from dmlgpu.plan.windows import Axis
from dmlgpu.schedule.patches import Patch, packed_patch
from dmlgpu.schedule.steps import Steps
from dmlgpu.schedule.tiles import tiles
from dmlgpu.target import Profile, Target

DEPTHWISE = "convolution/depthwise"

CHANNEL = 2
SPATIAL = 3
"""The channel's dimension, and the first spatial one, of input, filter and output."""

MOST_ACROSS = 32
"""Places of a window along the last dimension up to which they are written out one by one."""

MOST_PRODUCTS = 320
"""Multiplications up to which those of a tile are written out one by one."""

MOST_ROWS, MOST_ROWS_ON_GPU = 4, 2
"""Rows of a tile: fewer where many invocations hide how long memory takes."""


def depthwise_fits(convolution: Convolution, target: Target) -> bool:
    """Return whether the schedule can compute a convolution."""
    looped = math.prod(axis.size for axis in convolution.windows)
    below_limit = target.loop_limit is None or looped < target.loop_limit
    return convolution.input.sizes[CHANNEL] == 1 and convolution.windows[-1].size <= MOST_ACROSS and below_limit


def depthwise_steps(convolution: Convolution, epilogue: Body, output: Tensor, target: Target) -> Steps:
    """Return the steps that compute a convolution that fits: a single kernel.

    Args:
        convolution: what is summed.
        epilogue: over {batch, groups, outputs per group, positions..}, with a leaf ``Held``.
        output: where the result goes.
        target: the adapter.
    """
    columns = _columns(convolution.windows[-1].positions, target)
    rows = _rows(convolution, columns, target)
    source, across = packed_patch(convolution.input, convolution.windows[-1], columns)
    down = Patch(convolution.windows[-2], rows) if rows else None
    looped = convolution.windows[: -2 if rows else -1]
    values = constants(
        looped=looped,
        inside=tuple(f"inside{number}" for number in range(len(looped))),
        down=down,
        across=across,
        channel=CHANNEL,
        spatial=SPATIAL,
    )
    inputs = {"input": source, "taps": convolution.filter}
    body = element(DEPTHWISE, convolution.accumulator, output.sizes, portable=True, values=values, **inputs)
    ones = (1,) * (SPATIAL + len(looped))
    tile = (*ones, rows, columns) if rows else (*ones, columns)
    return tiles("depthwise", body, tile, epilogue, output, target=target)


def _columns(positions: int, target: Target) -> int:
    """Return the columns of a tile: one unit, or two on a CPU adapter if no tile is then less than half full."""
    two = target.profile is Profile.CPU and positions % (2 * UNIT) in (0, *range(UNIT + 1, 2 * UNIT))
    return 2 * UNIT if two else min(UNIT, positions)


def _rows(convolution: Convolution, columns: int, target: Target) -> int:
    """Return the rows of a tile; 0 where the last dimension but one is looped over, or missing.

    A single row shares nothing with others: on a CPU adapter, whose compiler takes seconds for a window that is written
    out, a loop does the same.
    """
    if len(convolution.windows) < 2:
        return 0
    *_, down, across = convolution.windows
    on_cpu = target.profile is Profile.CPU
    most = min(MOST_ROWS if on_cpu else MOST_ROWS_ON_GPU, down.positions)
    several = range(most, 1 if on_cpu else 0, -1)
    return next((rows for rows in several if _products(down, across, rows, columns) <= MOST_PRODUCTS), 0)


def _products(down: Axis, across: Axis, rows: int, columns: int) -> int:
    return rows * columns * down.size * across.size
