"""Steps whose tensors exceed what a kernel can bind, computed part by part along a dimension of the output.

Steps that stream (maps, reductions, rows, products) are split. Where that does not help, rows of reductions and lines
of scans are cut into pieces (``pieces``); other kernels bind a tensor that is larger than the largest binding in
several parts (``wgsl.spreading``), as long as the adapter has binding slots for them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, overload

from dmlgpu.compiler.plan import (
    Affine,
    Allocation,
    Body,
    Contract,
    Loop,
    Map,
    PlanBinding,
    PlanTensor,
    Reduce,
    Role,
    Rows,
    Scan,
    Sizes,
    Source,
    Step,
    Together,
)
from dmlgpu.compiler.plan.parts import replace_parts, tensors, written
from dmlgpu.compiler.rewrites.sources import fold_views, identity, leaves
from dmlgpu.compiler.rewrites.spaces import reindex
from dmlgpu.compiler.sizes.arithmetic import largest
from dmlgpu.compiler.target import Target

MAX_PARTS = 64
"""Maximum number of parts of a step: each has its own kernels."""

MAX_PIECES = 1024
"""Maximum number of pieces of a row or a line: most of them differ only in their bindings."""

Cut: TypeAlias = tuple[int, int, int]
"""A dimension of the output, the first element along it, and the number of elements."""

OFFSET_ALIGNMENT = 256
"""Maximum distance in bytes from the start of a binding to its range (``aliasing``)."""

ALIGNMENT = 16
"""Alignment in bytes of the start of a binding, so that every unit stays aligned."""


def tightened(tensor: PlanTensor) -> PlanTensor:
    """Return the tensor in a binding that starts less than 16 bytes before its first element in memory."""
    first = tensor.offset + sum(
        (size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True) if stride < 0
    )
    skipped = first // (8 * ALIGNMENT // tensor.unit_bits) * ALIGNMENT
    binding = replace(tensor.binding, offset=tensor.binding.offset + skipped)
    return replace(tensor, binding=binding, offset=tensor.offset - skipped * 8 // tensor.unit_bits)


def in_parts(step: Step, target: Target) -> tuple[Step, ...]:
    """Return a step, or its parts if it binds too much and parts bind less.

    Maps, rows and reductions are split so that every tensor fits one binding, which costs nothing; if that is not
    possible, and for products, so that the kernel has slots for the parts of all tensors. Loops are split once they are
    maps.
    """
    limit = target.max_binding_size
    if isinstance(step, Loop) or not exceeds_binding(step, target):
        return (step,)
    if isinstance(step, Together):
        return tuple(part for inner in step.steps for part in in_parts(inner, target))

    def fits_slots(part: Step) -> bool:
        ranges = _ranges(part)
        is_spread = all(tensors == 1 or size <= limit for tensors, size in ranges)
        return is_spread and sum(-(-size // limit) for _, size in ranges) <= target.bindings

    def fits_bindings(part: Step) -> bool:
        return max(size for _, size in _ranges(part)) <= limit

    parts: tuple[Step, ...] = (step,)
    if not isinstance(step, Contract):
        for dimension in _dimensions(step)[:1]:
            step = _part(step, (dimension, 0, _output(step).sizes[dimension]))  # the whole step, bound tightly
        parts = (step,) if fits_bindings(step) else _split(step, fits_bindings)
    if len(parts) > 1 or fits_slots(step):
        return parts
    return _split(step, fits_slots)


def exceeds_binding(step: Step, target: Target) -> bool:
    """Return whether a step binds a tensor that is larger than the largest binding."""
    return bool(largest(0, *_bound(step).values()) > target.max_binding_size)


def pieces(sources: Sequence[Source], dimension: int, unit: int, target: Target) -> tuple[tuple[int, int], ...]:
    """Return the pieces into which sources are cut along a dimension, so that a kernel can bind a piece of each: first
    elements and counts. One piece if that suffices, or if no piece is small enough.

    Args:
        sources: Sources over one space.
        dimension: Dimension along which they are cut.
        unit: Number of elements of which the length of a piece is a multiple.
        target: Compile target.
    """
    limit, size = target.max_binding_size, sources[0].sizes[dimension]
    whole = ((0, size),)
    bound = _largest(sources)
    if largest(0, bound) <= limit:
        return whole
    units = -(-size // unit)
    count = -(-bound // limit)
    while count <= min(2 * units, MAX_PIECES):
        length = -(-units // count) * unit
        cuts = tuple((start, min(length, size - start)) for start in range(0, size, length))
        if all(_largest([piece(source, (dimension, *cut)) for source in sources]) <= limit for cut in cuts):
            return cuts
        count *= 2
    return whole


@overload
def piece(source: PlanTensor, cut: Cut) -> PlanTensor: ...
@overload
def piece(source: Source, cut: Cut) -> Source: ...
def piece(source: Source, cut: Cut) -> Source:
    """Return a part of a source, bound close to its elements."""
    if isinstance(source, PlanTensor):
        return tightened(_view(source, cut))
    part: Source = replace_parts(_seen(source, cut), PlanTensor, tightened)
    return part


def _largest(sources: Sequence[Source]) -> int:
    """Return the bytes up to which a kernel that reads sources binds a resource."""
    return max((tensor.reach for source in sources for tensor in leaves(source)), default=0)


def _split(step: Step, fits: Callable[[Step], bool]) -> tuple[Step, ...]:
    """Return the fewest parts of a step that fit, along one dimension or two; itself if there are none."""
    dimensions = _dimensions(step)
    smallest = step
    for dimension in dimensions:
        smallest = _part(smallest, (dimension, 0, 1))
    if not fits(smallest):
        return (step,)
    for dimension in dimensions:
        parts = _along(step, dimension, fits)
        if parts is not None:
            return parts
    counts = [2**exponent for exponent in range(1, (MAX_PARTS // 2).bit_length())]
    for count, dimension in itertools.product(counts, dimensions):
        size = _output(step).sizes[dimension]
        slices = _slices(step, dimension, -(-size // min(count, size)))
        for other in _dimensions(slices[0]):
            max_parts = MAX_PARTS // len(slices) if other != dimension else 0
            if _along(slices[0], other, fits, max_parts) is not None:
                inner = [_along(each, other, fits, max_parts) for each in slices]
                if all(inner):
                    return tuple(itertools.chain(*(parts or () for parts in inner)))
    return (step,)


def _along(
    step: Step, dimension: int, fits: Callable[[Step], bool], max_parts: int = MAX_PARTS
) -> tuple[Step, ...] | None:
    """Return the fewest parts along a dimension that fit, at most ``max_parts``; None if there are none."""
    size, count = _output(step).sizes[dimension], 2
    while count <= max_parts:
        parts = _slices(step, dimension, -(-size // min(count, size)))
        if all(map(fits, parts)):
            return parts
        if count >= size:
            return None
        count *= 2
    return None


def _slices(step: Step, dimension: int, length: int) -> tuple[Step, ...]:
    size = _output(step).sizes[dimension]
    return tuple(_part(step, (dimension, start, min(length, size - start))) for start in range(0, size, length))


def _bound(step: Step) -> dict[PlanBinding, int]:
    """Return the bytes that a step binds of each resource."""
    bound: dict[PlanBinding, int] = {}
    for tensor in tensors(step):
        bound[tensor.binding] = largest(bound.get(tensor.binding, 0), tensor.reach)
    return bound


def _ranges(step: Step) -> list[tuple[int, int]]:
    """Return the number of bindings that overlap in each range of a resource that a step binds, and its bytes: such
    ranges are bound as one (``aliasing``), which cannot be spread."""
    by_resource: dict[tuple[Role, int | Allocation], list[tuple[int, int]]] = {}
    for binding, size in _bound(step).items():
        ranges = by_resource.setdefault((binding.role, binding.index), [])
        ranges.append((binding.offset, binding.offset + size))
    result = []
    for ranges in by_resource.values():
        joined: list[tuple[int, int, int]] = []
        for begin, end in sorted(ranges):
            if joined and begin - OFFSET_ALIGNMENT < joined[-1][2]:
                count, first, last = joined.pop()
                joined.append((count + 1, first, max(last, end)))
            else:
                joined.append((1, begin, end))
        result += [(count, last - first) for count, first, last in joined]
    return result


def _output(step: Step) -> PlanTensor:
    match step:
        case Map() | Reduce() | Rows() | Scan() | Contract():
            return step.output
    raise TypeError(f"{type(step).__name__} cannot be split")


def _dimensions(step: Step) -> Sequence[int]:
    """Return the dimensions along which a step can be split, those with the largest strides first."""
    match step:
        case Map():
            fixed: Sequence[int] = ()
        case Reduce() | Rows():
            fixed = step.axes
        case Scan():
            fixed = (step.axis,)
        case Contract() if not (step.product.a_owned or step.product.b_owned):
            fixed = ()
        case _:
            return ()
    output = _output(step)
    free = (
        axis
        for axis in range(output.rank)
        if axis not in fixed
        and output.sizes[axis] > 1
        and (_keeps_neighbors(step) or all(_has_own_words(tensor, axis) for tensor in written(step)))
    )
    return sorted(free, key=lambda axis: -abs(output.strides[axis]))


def _keeps_neighbors(step: Step) -> bool:
    """Return whether a step can preserve elements in shared words that other steps write."""
    return isinstance(step, Map | Contract)


def _has_own_words(output: PlanTensor, axis: int) -> bool:
    """Return whether slices along an axis are disjoint in memory and share no words."""
    stride = abs(output.strides[axis])
    others = (
        (size - 1) * abs(step)
        for other, (size, step) in enumerate(zip(output.sizes, output.strides, strict=True))
        if other != axis
    )
    return output.unit_bits >= 32 or (stride * output.unit_bits % 32 == 0 and sum(others) < stride)


def _part(step: Step, cut: Cut) -> Step:
    """Return the step for a part of the output, bound close to the elements that it reads and writes."""
    return replace_parts(_cut(step, cut), PlanTensor, tightened)


@functools.singledispatch
def _cut(step: Step, cut: Cut) -> Step:
    raise TypeError(f"{type(step).__name__} cannot be split")


@_cut.register
def _(step: Map, cut: Cut) -> Step:
    shares_words = step.keeps_neighbors or step.output.unit_bits < 32
    return replace(step, body=_seen_body(step.body, cut), output=_view(step.output, cut), keeps_neighbors=shares_words)


@_cut.register
def _(step: Reduce, cut: Cut) -> Step:
    epilogue = None if step.epilogue is None else _seen_body(step.epilogue, cut)
    return replace(step, source=_seen(step.source, cut), output=_view(step.output, cut), epilogue=epilogue)


@_cut.register
def _(step: Rows, cut: Cut) -> Step:
    return replace(
        step,
        source=_seen(step.source, cut),
        body=_seen_body(step.body, cut),
        output=_view(step.output, cut),
        statistics=tuple(_seen_body(body, cut) for body in step.statistics),
        statistic_outputs=tuple(_view(output, cut) for output in step.statistic_outputs),
    )


@_cut.register
def _(step: Scan, cut: Cut) -> Step:
    return replace(step, source=_view(step.source, cut), output=_view(step.output, cut))


@_cut.register
def _(step: Contract, cut: Cut) -> Step:
    product, (dimension, start, count) = step.product, cut
    space = product.space
    batch, rows, columns, inner = (len(group) for group in (space.batch, space.rows, space.columns, space.inner))
    a, b, groups = product.a, product.b, [space.batch, space.rows, space.columns]
    norm = product.norm
    if dimension < batch + rows:
        a = _seen(a, cut)
        if norm is not None and norm.gain is not None:
            norm = replace(norm, gain=_view(norm.gain, cut))
    if dimension < batch:
        b = _seen(b, cut)
    if dimension >= batch + rows:  # the columns, after the inner dimensions of b
        b = _seen(b, (dimension - rows + inner, start, count))
    axis_group, place = next(
        (axis_group, dimension - first)
        for axis_group, (first, length) in enumerate(((0, batch), (batch, rows), (batch + rows, columns)))
        if first <= dimension < first + length
    )
    groups[axis_group] = _with(groups[axis_group], place, count)
    part = replace(
        product, space=replace(space, batch=groups[0], rows=groups[1], columns=groups[2]), a=a, b=b, norm=norm
    )
    keeps = step.keeps_neighbors or step.output.unit_bits < 32
    return replace(
        step,
        product=part,
        epilogue=_seen_body(step.epilogue, cut),
        output=_view(step.output, cut),
        keeps_neighbors=keeps,
    )


def _seen(source: Source, cut: Cut) -> Source:
    """Return a source over a part of its space."""
    dimension, start, count = cut
    rank = len(source.sizes)
    first = Affine.box(_with((0,) * rank, dimension, start))
    return fold_views(reindex(source, _with(source.sizes, dimension, count), first))


def _seen_body(body: Body, cut: Cut) -> Body:
    seen = _seen(body, cut)
    return seen if isinstance(seen, Body) else identity(seen)


def _view(tensor: PlanTensor, cut: Cut) -> PlanTensor:
    dimension, start, count = cut
    sizes = _with(tensor.sizes, dimension, count)
    return replace(tensor, sizes=sizes, offset=tensor.offset + start * tensor.strides[dimension])


def _with(sizes: Sizes, dimension: int, size: int) -> Sizes:
    return (*sizes[:dimension], size, *sizes[dimension + 1 :])
