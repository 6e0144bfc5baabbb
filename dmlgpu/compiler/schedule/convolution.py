"""Convolutions as matrix products, and depthwise ones. The choice among all schedules is in ``convolution_choice``.

Products take the windows as a virtual operand. A window of one element that never leaves the input is no window at all:
the operand is a view of the input.

Depthwise convolutions have one input channel per group, so that there is nothing to sum but the window: little
arithmetic for much memory. An invocation computes a tile of positions over the last two spatial dimensions, of one
output channel. It holds the filter in registers, goes through the rows of the patch that its windows see, reads each
once, in units of four if possible, and adds each element to every position that sees it. Where reads cost more than
multiplications, a loop goes through the rows. Outer dimensions of the window, and rows if the window is large, are
loops around that. Without such loops CPU adapters read a filter in units, too, if the initialization can lay it out for
that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import (
    Body,
    Contract,
    Convolution,
    Convolve,
    Map,
    PlanTensor,
    Product,
    Sizes,
    Source,
    Space,
    apply,
    constants,
    element,
)
from dmlgpu.compiler.plan.windows import positions_of
from dmlgpu.compiler.rewrites.packing import UNIT, running_dimension
from dmlgpu.compiler.rewrites.sources import CONVERT, is_elementwise, leaves, permuted, rewrite, stepped
from dmlgpu.compiler.rewrites.windows import taken
from dmlgpu.compiler.schedule import gemm_choice
from dmlgpu.compiler.schedule.registry import Condition, at_most, only_if
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Patch
from dmlgpu.compiler.schedule.tiles import MAX_ACROSS, MAX_ROWS, is_narrow, packed_patch, tile_columns, tile_rows, tiles
from dmlgpu.compiler.sizes.arithmetic import computed
from dmlgpu.compiler.target import Target

IMPLICIT_GEMM = "implicit-gemm"

OUTPUT = 2
"""Dimension of the result along which the outputs of a group lie."""

CHANNEL = 2
"""Dimension of input and filter along which the channels of a group lie."""

FEW_POSITIONS = 4
"""Number of positions below which outputs make better columns."""


def implicit_gemm(step: Convolve, target: Target, *, keeps_neighbors: bool = False) -> ScheduledSteps:
    """Schedule a convolution as a product, per group, of the filter and the windows. The positions of all images are
    its columns, or, where memory runs along the outputs (NHWC), its rows. The elements of windows are not copied to
    memory: that would take as many times the input's memory as the window has elements."""
    return schedule_step(replace(as_product(step, target), keeps_neighbors=keeps_neighbors), target)


def as_product(step: Convolve, target: Target) -> Contract:
    """Return a convolution as a product."""
    outputs_last, channels_last = _has_outputs_last(step.output), _has_channels_last(step.convolution, target)
    product, order = _product(step.convolution, outputs_last, channels_last)
    return Contract(step.label, product, permuted(step.epilogue, order), permuted(step.output, order))


def _has_outputs_last(output: PlanTensor) -> bool:
    batch, _, outputs, *positions = output.sizes
    few = batch * math.prod(positions) < min(FEW_POSITIONS, outputs)
    return few or running_dimension(output) == OUTPUT


def _has_channels_last(convolution: Convolution, target: Target) -> bool:
    """Return whether the window comes before the channels, because memory is contiguous along these.

    Only the first inner dimension is split, so that a sum that is too long for an invocation starts with the channels.
    """
    runs = any(running_dimension(tensor) == CHANNEL for tensor in leaves(convolution.input))
    return runs and math.prod(convolution.filter.sizes[2:]) <= gemm_choice.longest(target)


def _product(convolution: Convolution, outputs_last: bool, channels_last: bool) -> tuple[Product, Sizes]:
    """Return the product, and the order in which its dimensions take those of the output."""
    seen, filters = _operands(convolution)
    spatial = len(convolution.windows)
    pixels = (0, *range(3, 3 + spatial))
    inner = _inner(range(3 + spatial, len(seen.sizes)), channels_last)
    along_filter = _inner(range(3, len(filters.sizes)), channels_last)
    groups, outputs = filters.sizes[:1], filters.sizes[1:2]
    pixel_sizes, inner_sizes = (tuple(seen.sizes[d] for d in dimensions) for dimensions in (pixels, inner))
    accumulator, owned = convolution.accumulator, convolution.filter_owned
    if outputs_last:
        a, b = permuted(seen, (1, *pixels, *inner)), permuted(filters, (0, *along_filter, 1))
        space = Space(groups, pixel_sizes, outputs, inner_sizes)
        return Product(space, a, b, accumulator, b_owned=owned, a_stays=True), (1, *pixels, OUTPUT)
    a, b = permuted(filters, (0, 1, *along_filter)), permuted(seen, (1, *inner, *pixels))
    space = Space(groups, outputs, pixel_sizes, inner_sizes)
    stays = not is_elementwise(seen)
    return Product(space, a, b, accumulator, a_owned=owned, b_stays=stays), (1, OUTPUT, *pixels)


def _inner(window: Sequence[int], channels_last: bool) -> Sizes:
    return (*window, CHANNEL) if channels_last else (CHANNEL, *window)


def _operands(convolution: Convolution) -> tuple[Source, Source]:
    """{batch, groups, channels, positions.., window..} and {groups, outputs, channels, window..}."""
    if _is_pointwise(convolution):
        windows, lead = convolution.windows, convolution.input.sizes[:3]
        start, strides = (0, 0, 0, *(-axis.start for axis in windows)), (1, 1, 1, *(axis.stride for axis in windows))
        seen = stepped(convolution.input, lead + positions_of(windows), start, strides)
        return seen, _without_window(convolution.filter)
    return taken(convolution.input, convolution.windows), convolution.filter


def _is_pointwise(convolution: Convolution) -> bool:
    """Return whether windows have a single element, always on the input, so that they are a view of it."""
    inside = (
        axis.size == 1 and axis.start <= 0 and (axis.positions - 1) * axis.stride - axis.start < axis.spatial
        for axis in convolution.windows
    )
    return all(inside) and is_elementwise(convolution.input)


def _without_window(source: Source) -> Source:
    """Return a filter of a single element without the window's dimensions."""

    def drop(node: Source) -> Source:
        if isinstance(node, PlanTensor):
            return replace(node, sizes=node.sizes[:3], strides=node.strides[:3])
        return replace(node, sizes=node.sizes[:3])

    return rewrite(source, drop)


DEPTHWISE, DEPTHWISE_ROWS = "convolution/depthwise", "convolution/depthwise_rows"

SPATIAL = 3
"""First spatial dimension of input, filter and output."""


def fits_depthwise(convolution: Convolution, target: Target) -> Condition:
    """Return whether the schedule can compute a convolution."""
    looped, limit = math.prod(axis.size for axis in convolution.windows), target.loop_limit
    return (
        only_if(convolution.input.sizes[CHANNEL] == 1, "{} input channels per group", convolution.input.sizes[CHANNEL])
        and at_most(convolution.windows[-1].size, MAX_ACROSS, "elements in a row of a window")
        and only_if(limit is None or looped < limit, "the driver stops loops of {} elements of a window", looped)
    )


def depthwise_steps(convolution: Convolution, epilogue: Body, output: PlanTensor, target: Target) -> ScheduledSteps:
    """Return the steps that compute a convolution that fits: a single kernel.

    Args:
        convolution: the convolution.
        epilogue: over {batch, groups, outputs per group, positions..}, with a leaf ``RegisterValue``.
        output: the result.
        target: the compile target.
    """
    columns = tile_columns(convolution.windows[-1].positions, target)
    rows = tile_rows(convolution.windows, columns, target)
    single = is_narrow(output, target)
    source, across = packed_patch(convolution.input, convolution.windows[-1], columns, target, single=single)
    if rows and target.moves_doubles and is_streamed(convolution):
        return _streamed_rows((convolution, epilogue, output), source, across, target)
    down = Patch(convolution.windows[-2], rows, checked=target.policies.varying) if rows else None
    looped = convolution.windows[: -2 if rows else -1]
    taps, laid_out = _taps(convolution, target) if not looped else (convolution.filter, ScheduledSteps())
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


MIN_STREAMED = 3
"""Minimum rows of positions for which an invocation computes several sequentially."""

LONGEST_STREAM = 16
"""Number of rows of positions that an invocation computes sequentially."""

MIN_STREAMS = 256
"""Invocations for which streams of rows are shortened, down to ``MAX_ROWS``."""


def is_streamed(convolution: Convolution) -> bool:
    """Return whether an invocation computes rows one after another in a loop.

    Written out, tiles multiply less, but read more and take drivers seconds to compile. On llvmpipe, where reads cost
    most, loops take 0.6 to 0.9 of the time for more rows than a tile has, and 1.2 to 1.9 for three rows, which then
    share the kernel of more; it is compiled in less than half the time. On SwiftShader loops take 1.0 to 1.2 of the
    time.
    """
    down = convolution.windows[0]
    return len(convolution.windows) == 2 and down.dilation == 1 and down.positions >= MIN_STREAMED


def _streamed_rows(
    step: tuple[Convolution, Body, PlanTensor], source: Source, across: Patch, target: Target
) -> ScheduledSteps:
    """Return the steps that compute a convolution row by row, from a source and the patch along its last dimension."""
    convolution, epilogue, output = step
    down = convolution.windows[0]
    rows = computed(_rows_of_streams, down.positions, math.prod(output.sizes) // down.positions // across.tile)
    taps, laid_out = _taps(convolution, target)
    values = constants(
        in_units=taps is not convolution.filter,
        down=down,
        across=across,
        channel=CHANNEL,
        spatial=SPATIAL,
        steps=rows + (down.size - 1) // down.stride,
    )
    inputs = {"input": source, "taps": taps}
    body = element(DEPTHWISE_ROWS, convolution.accumulator, output.sizes, portable=True, values=values, **inputs)
    tile = (1,) * (SPATIAL + 1) + (across.tile,)
    return laid_out.as_initialization + tiles("depthwise", body, tile, epilogue, output, target=target, rows=rows)


def _rows_of_streams(positions: int, tiles: int) -> int:
    """Return the rows of each stream, about the same number for all, from the rows of positions and the tiles of
    each."""
    longest = max(MAX_ROWS, min(LONGEST_STREAM, positions * tiles // MIN_STREAMS))
    return -(-positions // -(-positions // longest))


def _taps(convolution: Convolution, target: Target) -> tuple[Source, ScheduledSteps]:
    """Return the filter in whole units for each output, and the steps that repack it. It is unchanged if it may change
    with every execution, or if reading elements costs no more."""
    source, accumulator = convolution.filter, convolution.accumulator
    groups, outputs, _, *window = source.sizes
    if not convolution.filter_owned or target.vectorizes_loads or accumulator.bits != DataType.FLOAT32.bits:
        return source, ScheduledSteps()
    units = -(-math.prod(window) // UNIT)
    strides = (outputs * units * UNIT, units * UNIT, 1, *packed_strides(window))
    room = PlanTensor.persistent("taps", accumulator, source.sizes, strides)
    read = replace(room, sizes=(groups, outputs, units), strides=(outputs * units, units, 1), lanes=UNIT)
    copied = apply(CONVERT, accumulator, source.sizes, portable=True, input=source)
    return read, schedule_step(Map("lay out taps", copied, room), target).because("windows are read in units of four")
