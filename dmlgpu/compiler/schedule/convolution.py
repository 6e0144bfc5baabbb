"""Convolutions as matrix products, with the windows as a virtual operand.

A window of one element that never leaves the input is no window at all: the operand is a view of the input. Other
schedules, and what picks among them, are in ``convolution_choice``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.compiler.plan import Contract, Convolution, Convolve, Product, Sizes, Source, Space, Tensor
from dmlgpu.compiler.plan.windows import positions_of
from dmlgpu.compiler.rewrites.packing import running_dimension
from dmlgpu.compiler.rewrites.sources import is_elementwise, leaves, permuted, rewrite, stepped
from dmlgpu.compiler.rewrites.windows import taken
from dmlgpu.compiler.schedule import gemm_choice
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps import Steps
from dmlgpu.compiler.target import Target

IMPLICIT_GEMM = "implicit-gemm"

OUTPUT = 2
"""The dimension of the result along which the outputs of a group lie."""

CHANNEL = 2
"""The dimension of the input along which the channels of a group lie."""

FEW_POSITIONS = 4
"""Positions below which outputs make better columns."""


def implicit_gemm(step: Convolve, target: Target, *, keeps_neighbours: bool = False) -> Steps:
    """Schedule a convolution as a product, per group, of the filter and what the windows see.

    The positions of all images are its columns, or, where memory runs along the outputs (NHWC), its rows. What the
    windows see is not laid out in memory: that would take as many times the input's memory as the window has elements.
    """
    outputs_last, channels_last = _has_outputs_last(step.output), _has_channels_last(step.convolution, target)
    product, order = _product(step.convolution, outputs_last, channels_last)
    epilogue, output = permuted(step.epilogue, order), permuted(step.output, order)
    return schedule_step(Contract(step.label, product, epilogue, output, keeps_neighbours), target)


def _has_outputs_last(output: Tensor) -> bool:
    batch, _, outputs, *positions = output.sizes
    few = batch * math.prod(positions) < min(FEW_POSITIONS, outputs)
    return few or running_dimension(output) == OUTPUT


def _has_channels_last(convolution: Convolution, target: Target) -> bool:
    """Return whether the window come before the channels, because memory runs along these.

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
    """Return whether windows have one place each, always on the input, so that a view of it shows what they see."""
    inside = (
        axis.size == 1 and axis.start <= 0 and (axis.positions - 1) * axis.stride - axis.start < axis.spatial
        for axis in convolution.windows
    )
    return all(inside) and is_elementwise(convolution.input)


def _without_window(source: Source) -> Source:
    """Return a filter of one place without the window's dimensions."""

    def drop(node: Source) -> Source:
        if isinstance(node, Tensor):
            return replace(node, sizes=node.sizes[:3], strides=node.strides[:3])
        return replace(node, sizes=node.sizes[:3])

    return rewrite(source, drop)
