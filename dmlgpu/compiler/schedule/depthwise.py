"""Depth-wise convolution: each group has one input channel, so that there is nothing to sum but the window.

That is little arithmetic for much memory. An invocation computes a tile of positions over the last two spatial
dimensions, of one output channel: it holds the filter in registers, goes through the rows of the patch that its windows
see, reads each once, in units of four where memory lets it, and adds each element to every position that sees it.
Outer dimensions of the window, and rows where the window is large, are loops around that. Without such loops processors
read a filter in units, too, if initialisation can lay it out for that.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Body, Convolution, Map, Source, Tensor, apply, constants, element
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.rewrites.sources import CONVERT
from dmlgpu.compiler.schedule.patches import MOST_ACROSS, Patch, packed_patch, tile_columns, tile_rows
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps import Steps
from dmlgpu.compiler.schedule.tiles import tiles
from dmlgpu.compiler.target import Profile, Target

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
        epilogue: over {batch, groups, outputs per group, positions..}, with a leaf ``RegisterValue``.
        output: where the result goes.
        target: the adapter.
    """
    columns = tile_columns(convolution.windows[-1].positions, target)
    rows = tile_rows(convolution.windows, columns, target)
    source, across = packed_patch(convolution.input, convolution.windows[-1], columns, target)
    down = Patch(convolution.windows[-2], rows) if rows else None
    looped = convolution.windows[: -2 if rows else -1]
    taps, laid_out = _taps(convolution, target) if not looped else (convolution.filter, Steps())
    values = constants(
        looped=looped,
        in_units=taps is not convolution.filter,
        down=down,
        across=across,
        channel=CHANNEL,
        spatial=SPATIAL,
    )
    inputs = {"input": source, "taps": taps}
    body = element(DEPTHWISE, convolution.accumulator, output.sizes, portable=True, values=values, **inputs)
    ones = (1,) * (SPATIAL + len(looped))
    tile = (*ones, rows, columns) if rows else (*ones, columns)
    return laid_out.as_initialization + tiles("depthwise", body, tile, epilogue, output, target=target)


def _taps(convolution: Convolution, target: Target) -> tuple[Source, Steps]:
    """Return the filter in whole units for each output, and the steps that lay it out so.

    It stays as it is where it may change with every execution, or where reading elements costs no more.
    """
    source, accumulator = convolution.filter, convolution.accumulator
    groups, outputs, _, *window = source.sizes
    if not convolution.filter_owned or target.profile is not Profile.CPU or accumulator.bits != DataType.FLOAT32.bits:
        return source, Steps()
    units = -(-math.prod(window) // UNIT)
    strides = (outputs * units * UNIT, units * UNIT, 1, *packed_strides(window))
    room = Tensor.persistent("taps", accumulator, source.sizes, strides)
    read = replace(room, sizes=(groups, outputs, units), strides=(outputs * units, units, 1), lanes=UNIT)
    copied = apply(CONVERT, accumulator, source.sizes, portable=True, input=source)
    return read, schedule_step(Map("lay out taps", copied, room), target).because("windows are read in units of four")
