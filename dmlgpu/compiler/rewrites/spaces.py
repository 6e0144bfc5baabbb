"""Coordinate spaces: maps between two views of a tensor, and sources in other coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dmlgpu.compiler.plan import Affine, AffineView, Apply, PlanTensor, RegisterValue, Sizes, Source
from dmlgpu.compiler.rewrites.sources import identity, is_identity
from dmlgpu.compiler.sizes.arithmetic import is_many, is_same_size, is_symbolic, remembered


def affine_between(view: PlanTensor, written: PlanTensor) -> Affine | None:
    """Return the map from the coordinates of ``view`` to those of ``written`` that leads to the same elements.

    Args:
        view, written: two tensors in one resource.

    Returns:
        None if they differ in type, if an element of the view is no element of the other, or if no affine map exists,
        for example because a dimension of the view spans several of the other's.
    """
    if view.data_type is not written.data_type or view.lanes != 1 or written.lanes != 1:
        return None
    bits = (view.binding.offset - written.binding.offset) * 8
    if bits % view.data_type.bits:
        return None
    distance = bits // view.data_type.bits + view.offset - written.offset
    return remembered(_affine, distance, view.sizes, view.strides, written.sizes, written.strides)


def _affine(distance: int, sizes: Sizes, strides: Sizes, other_sizes: Sizes, other_strides: Sizes) -> Affine | None:
    """Return the map of ``affine_between`` for a distance in elements between tensors of given sizes and strides."""
    rank, nested = len(other_sizes), _nested(other_sizes, other_strides)
    if nested is None:
        return None
    start = _digits(distance, nested, rank)
    columns = [
        _digits(stride if is_many(size) else 0, nested, rank) for size, stride in zip(sizes, strides, strict=True)
    ]
    if start is None or any(column is None for column in columns):
        return None
    steps = tuple(tuple(column[row] for column in columns if column is not None) for row in range(rank))
    for first, row, size in zip(start, steps, other_sizes, strict=True):
        moves = [(step < 0, step * (extent - 1)) for step, extent in zip(row, sizes, strict=True)]
        lowest = first + sum(move for is_back, move in moves if is_back)
        highest = first + sum(move for is_back, move in moves if not is_back)
        if lowest < 0 or highest >= size:
            return None
    return Affine(start, steps)


def _nested(sizes: Sizes, strides: Sizes) -> list[tuple[int, int]] | None:
    """Return the dimensions of a tensor and their strides, the largest first; None if elements overlap."""
    wide = (dimension for dimension, size in enumerate(sizes) if is_many(size))
    dimensions = sorted(((dimension, strides[dimension]) for dimension in wide), key=lambda each: -each[1])
    inside = 0
    for dimension, stride in reversed(dimensions):
        if stride <= inside:
            return None
        inside += stride * (sizes[dimension] - 1)
    return dimensions


def _digits(distance: int, nested: list[tuple[int, int]], rank: int) -> tuple[int, ...] | None:
    """Return a distance in elements as steps along nested dimensions; None if there is a remainder."""
    steps = [0] * rank
    for dimension, stride in sorted(nested, key=lambda each: each[1] is not distance):  # equal ones of one element last
        if _is_same_stride(stride, distance):  # one step along a dimension, whatever the sizes
            steps[dimension] = 1
            return tuple(steps)
    sign, rest = (1, distance) if distance >= 0 else (-1, -distance)
    for dimension, stride in nested:
        steps[dimension], rest = sign * (rest // stride), rest % stride
    return None if rest else tuple(steps)


def _is_same_stride(stride: int, other: int) -> bool:
    """Return whether two strides are equal. A symbol and a number count as different, without a guard: if a dimension
    has one element, those around it have its stride."""
    return is_symbolic(stride) == is_symbolic(other) and stride == other


def split(view: PlanTensor, written: PlanTensor) -> tuple[Sizes, Affine] | None:
    """Return the space of a view after splitting dimensions that span several dimensions of ``written``, and the map
    from the split coordinates to the view's own; None if no dimension needs to be split.
    """
    extents = [(stride, size) for size, stride in zip(written.sizes, written.strides, strict=True) if is_many(size)]

    def extent(step: int) -> int:  # without a table of strides, which may be symbolic
        return next((size for stride, size in reversed(extents) if _is_same_stride(stride, step)), 0)

    sizes: list[int] = []
    groups: list[list[int]] = []
    for size, stride in zip(view.sizes, view.strides, strict=True):
        parts: list[int] = []  # the innermost first
        rest, step = size, stride
        while (inner := extent(step)) and rest > inner > 1 and not rest % inner:
            parts.append(inner)
            rest, step = rest // inner, step * inner
        groups.append(list(range(len(sizes), len(sizes) + len(parts) + 1)))
        sizes += [rest, *reversed(parts)]
    if len(sizes) == view.rank:
        return None
    rows = []
    for group in groups:
        row = [0] * len(sizes)
        for dimension in group:
            row[dimension] = math.prod(sizes[inner] for inner in group if inner > dimension)
        rows.append(tuple(row))
    return tuple(sizes), Affine((0,) * view.rank, tuple(rows))


def compose(outer: Affine, inner: Affine) -> Affine:
    """Return the composition of two maps: ``outer`` after ``inner``."""
    columns = range(len(inner.steps[0]) if inner.steps else 0)
    start = tuple(
        first + sum(step * other for step, other in zip(row, inner.start, strict=True))
        for first, row in zip(outer.start, outer.steps, strict=True)
    )
    steps = tuple(
        tuple(sum(step * inner.steps[k][column] for k, step in enumerate(row)) for column in columns)
        for row in outer.steps
    )
    return Affine(start, steps)


def is_same(affine: Affine, sizes: Sizes, other: Sizes) -> bool:
    """Return whether a map changes no coordinate between spaces of these sizes; coordinates that are always 0 do not
    count."""
    moving = [dimension for dimension, size in enumerate(sizes) if is_many(size)]
    if len(sizes) != len(other) or not all(map(is_same_size, sizes, other)) or any(affine.start):
        return False
    return all(row[column] == (index == column) for index, row in enumerate(affine.steps) for column in moving)


def reindex(root: Source, sizes: Sizes, affine: Affine, replaced: Mapping[PlanTensor, Source] | None = None) -> Source:
    """Return a source in the coordinates of another space.

    Args:
        root: the source.
        sizes: of the other space.
        affine: map from its coordinates to the source's.
        replaced: replacements, already in the other space, for tensors of the tree.
    """
    same = is_same(affine, sizes, root.sizes)
    return _reindexed(root, sizes, affine, replaced or {}, same=same, memo={})


def _reindexed(
    source: Source,
    sizes: Sizes,
    affine: Affine,
    replaced: Mapping[PlanTensor, Source],
    *,
    same: bool,
    memo: dict[int, Source],
) -> Source:
    if id(source) in memo:
        return memo[id(source)]
    result: Source
    match source:
        case PlanTensor():
            result = replaced.get(source) or affine.of(source, sizes)
        case RegisterValue():
            result = replace(source, sizes=sizes)
        case AffineView():
            result = AffineView(source.source, sizes, compose(source.affine, affine), source.lanes)
        case _ if isinstance(source, Apply) or is_identity(source):
            children = [_reindexed(child, sizes, affine, replaced, same=same, memo=memo) for child in source.children]
            result = replace(source.over(children), sizes=sizes) if isinstance(source, Apply) else identity(children[0])
        case _:
            result = source if same else AffineView(source, sizes, affine)
    memo[id(source)] = result
    return result
