"""Nearest neighbour by whole factors as strides: of a dimension that is split in two, the inner one repeats elements.

Element o of such an axis is element ``o // factor`` of the input. Over {size, factor} in its place, the input has its
own stride along the first and 0 along the second; all other tensors of a map are only split. What is left is arithmetic
on tensors in memory, whose neighbours become units where elements are repeated for whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Affine, AffineView, Apply, Body, Element, Source, Tensor, View
from dmlgpu.compiler.rewrites.resampling import LONGEST_LISTED, NEAREST, Axis, Rounding
from dmlgpu.compiler.rewrites.sources import identity, is_identity

Factors = Mapping[int, int]
"""How often each element is repeated along a dimension, by dimension; those that are not split are not named."""

_INTEGERS = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32}
"""By bits: what moves elements of any type as they are and, as numbers do, repeats one for a unit."""


def split_repeats(body: Body, output: Tensor) -> tuple[Body, Tensor]:
    """Return an element-wise tree with nearest neighbours by whole factors among its leaves, and its output, with these
    as strides over split dimensions; other trees as they are, and those that repeat whole runs of neighbours."""
    factors: dict[int, int] = {}
    if not _gather(body, factors, set()) or not any(output.strides[dimension] == 1 for dimension in factors):
        return body, output
    body = body if _keeps_coordinates(body) else identity(body)
    sizes = _split(output.sizes, factors, lambda size, factor: (size // factor, factor))
    made = replace(output, sizes=sizes, strides=_split(output.strides, factors, _steps))
    body = _over_split(body, sizes, factors, {})
    if body.moves:
        return _as_integers(body, {}), _integer(made)
    return body, made


def _gather(source: Source, factors: dict[int, int], seen: set[int]) -> bool:
    """Gather the factors of nearest neighbours; return whether all of the tree is what ``split_repeats`` says, with one
    factor along each dimension."""
    if id(source) in seen:
        return True
    seen.add(id(source))
    if isinstance(source, Tensor):
        return source.view is not View.INDEX
    if _keeps_coordinates(source):
        return all(_gather(child, factors, seen) for child in source.children)
    found = _factors(source)
    return found is not None and all(factors.setdefault(dimension, n) == n for dimension, n in found.items())


def _keeps_coordinates(source: Source) -> TypeGuard[Body]:
    return isinstance(source, Apply) or is_identity(source)


def _factors(source: Source) -> Factors | None:
    """Return how often a nearest neighbour, or an affine view of one, repeats the elements of a tensor in memory; None
    for another source, and where it does not repeat all equally often."""
    view, lookup = _view_of(source)
    if not isinstance(lookup, Body) or lookup.file != NEAREST or not isinstance(lookup.children[0], Tensor):
        return None
    values, found = dict(lookup.constants), {}
    for axis in values["axes"]:
        row, start = view.steps[axis.dimension], view.start[axis.dimension]
        columns = [column for column, step in enumerate(row) if step]
        factor = _factor(axis, Rounding(values["increasing"]))
        if factor is None or start or len(columns) != 1 or row[columns[0]] != 1 or columns[0] in found:
            return None
        others = (other for number, other in enumerate(view.steps) if number != axis.dimension)
        if source.sizes[columns[0]] != axis.count or any(other[columns[0]] for other in others):
            return None
        found[columns[0]] = factor
    return found


def _view_of(source: Source) -> tuple[Affine, Source]:
    """Return what a view sees and how; for another source the map of its own coordinates."""
    if isinstance(source, AffineView):
        return source.affine, source.source
    return Affine.box((0,) * len(source.sizes)), source


def _factor(axis: Axis, rounding: Rounding) -> int | None:
    """Return how often nearest neighbour repeats each element of an axis, if it does so equally often."""
    factor = axis.count // axis.size
    if factor * axis.size != axis.count or axis.count > LONGEST_LISTED:
        return None
    repeated = np.arange(axis.count) // factor
    return factor if np.array_equal(axis.places(rounding), repeated) else None


def _steps(stride: int, factor: int) -> tuple[int, int]:
    return stride * factor, stride


def _split(values: Sequence[int], factors: Factors, parts: Callable[[int, int], tuple[int, int]]) -> tuple[int, ...]:
    """Return numbers of dimensions with two in the place of each that is split."""
    found: list[int] = []
    for dimension, value in enumerate(values):
        found += parts(value, factors[dimension]) if dimension in factors else (value,)
    return tuple(found)


def _over_split(source: Source, sizes: tuple[int, ...], factors: Factors, memo: dict[int, Source]) -> Any:
    """Return a tree over the split dimensions; what is shared in it stays shared."""
    if id(source) in memo:
        return memo[id(source)]
    found: Source
    if isinstance(source, Tensor):
        found = replace(source, sizes=sizes, strides=_split(source.strides, factors, _steps))
    elif _keeps_coordinates(source):
        made = source.over([_over_split(child, sizes, factors, memo) for child in source.children])
        found = replace(made, sizes=sizes)
        if isinstance(found, Element):  # an identity
            found = replace(found, follows=(tuple(range(len(sizes))),))
    else:
        found = _repeated(source, sizes, factors)
    memo[id(source)] = found
    return found


def _repeated(source: Source, sizes: tuple[int, ...], factors: Factors) -> Tensor:
    """Return the tensor that a nearest neighbour, or a view of one, sees over the split dimensions."""
    view, lookup = _view_of(source)
    assert isinstance(lookup, Body)
    axes = [axis.dimension for axis in dict(lookup.constants)["axes"]]
    moved = {view.steps[axis].index(1) for axis in axes}  # all the others of a column are 0
    (tensor,) = lookup.children
    assert isinstance(tensor, Tensor)
    seen = view.of(tensor, source.sizes)
    strides: list[int] = []
    for dimension, stride in enumerate(seen.strides):
        if dimension in moved:
            strides += (stride, 0)
        else:
            strides += _steps(stride, factors[dimension]) if dimension in factors else (stride,)
    return replace(seen, sizes=sizes, strides=tuple(strides))


def _as_integers(source: Source, memo: dict[int, Source]) -> Any:
    """Return a tree that moves elements as one of integers with their bits."""
    if isinstance(source, Tensor):
        return _integer(source)
    assert isinstance(source, Body)
    if id(source) not in memo:
        data_type = _INTEGERS.get(source.data_type.bits, source.data_type)
        memo[id(source)] = replace(
            source.over([_as_integers(child, memo) for child in source.children]), data_type=data_type
        )
    return memo[id(source)]


def _integer(tensor: Tensor) -> Tensor:
    if tensor.data_type.bits not in _INTEGERS:
        return tensor
    return replace(tensor, data_type=_INTEGERS[tensor.data_type.bits], view=View.COMPUTE)
