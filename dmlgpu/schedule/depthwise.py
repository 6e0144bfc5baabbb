"""Depth-wise convolution: each group has one input channel, so that there is nothing to sum but the window.

That is little arithmetic for much memory. An invocation computes a tile of positions over the last two spatial
dimensions, of one output channel: it holds the filter in registers, goes through the rows of the patch that its windows
see, reads each once, in units of four where memory lets it, and adds each element to every position that sees it.
Outer dimensions of the window, and rows where the window is large, are loops around that.
"""

from __future__ import annotations

import math

from dmlgpu.plan import Body, Convolution, Tensor, constants, element
from dmlgpu.schedule.patches import MOST_ACROSS, Patch, packed_patch, tile_columns, tile_rows
from dmlgpu.schedule.steps import Steps
from dmlgpu.schedule.tiles import tiles
from dmlgpu.target import Target

DEPTHWISE = "convolution/depthwise"

CHANNEL = 2
SPATIAL = 3
"""The channel's dimension, and the first spatial one, of input, filter and output."""


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
    columns = tile_columns(convolution.windows[-1].positions, target)
    rows = tile_rows(convolution.windows, columns, target)
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
