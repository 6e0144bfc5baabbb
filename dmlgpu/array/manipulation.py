"""Elements put elsewhere: other sizes, other orders, joined, repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.array.indexing import indices_of
from dmlgpu.array.operands import run, tensor
from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import as_integers, broadcast_sizes, checked_axes, checked_axis
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]


@named
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Return the view repeated along dimensions of size 1 and new leading ones.

    Raises:
        InvalidArgument: a size is neither 1 nor the wanted one, or no tensor has such sizes.
    """
    return tensor("x", x).broadcast_to(shape)


@named
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return views of the sizes that arrays have together.

    Raises:
        InvalidArgument: sizes differ where neither is 1.
    """
    given = [tensor(f"arrays[{number}]", one) for number, one in enumerate(arrays)]
    if not given:
        return []
    sizes = broadcast_sizes(caller(), [(f"arrays[{number}]", one.sizes) for number, one in enumerate(given)])
    return [one.broadcast_to(sizes) for one in given]


def _arrays(arrays: Any) -> list[Tensor]:
    """Return several arrays in the type that they have together."""
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors, at least one, got {shown(arrays)}")
    given = {f"arrays[{number}]": tensor(f"arrays[{number}]", one) for number, one in enumerate(arrays)}
    return promoted(caller(), given)


@named
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Return arrays in a row along an axis; None makes each a row first.

    Raises:
        InvalidArgument: no arrays, no common type, other sizes that differ, or an axis out of range.
    """
    given = _arrays(arrays)
    if axis is None:
        given, axis = [one.reshape(-1) for one in given], 0
    if any(one.ndim != given[0].ndim for one in given):
        ranks = ", ".join(str(one.ndim) for one in given)
        raise InvalidArgument(f"{caller()}: arrays must have as many dimensions each, got {ranks}")
    return joined(given, checked_axis(caller(), "axis", axis, given[0].ndim))


def joined(arrays: Sequence[Tensor], axis: int) -> Tensor:
    """Return arrays of one type in a row along an axis; those without elements count by their sizes alone."""
    around = {(*one.sizes[:axis], *one.sizes[axis + 1 :]) for one in arrays}
    if len(around) > 1:
        listing = ", ".join(str(list(one.sizes)) for one in arrays)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes but for axis {axis}, got {listing}")
    full = [one for one in arrays if one.size]
    if not full:
        total = sum(one.sizes[axis] for one in arrays)
        return arrays[0]._nothing((*arrays[0].sizes[:axis], total, *arrays[0].sizes[axis + 1 :]))
    return full[0].copy() if len(full) == 1 else run(descs.Join, input_tensors=full, axis=axis)


@named
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Return arrays of equal sizes in a row along a new axis.

    Raises:
        InvalidArgument: no arrays, no common type, sizes that differ, or an axis out of range.
    """
    given = _arrays(arrays)
    if len({one.sizes for one in given}) > 1:
        listing = ", ".join(str(list(one.sizes)) for one in given)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes, got {listing}")
    number = checked_axis(caller(), "axis", axis, given[0].ndim + 1)
    return joined([one.expand_dims(number) for one in given], number)


@named
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts along an axis, views without it.

    Raises:
        InvalidArgument: an axis out of range.
    """
    given = tensor("x", x)
    number = checked_axis(caller(), "axis", axis, given.ndim)
    before = (slice(None),) * number
    return tuple(given[(*before, place)] for place in range(given.sizes[number]))


@named
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return the view with a new dimension of size 1, or several.

    Raises:
        InvalidArgument: an axis out of range, or more than 8 dimensions.
    """
    return tensor("x", x).expand_dims(axis)


@named
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return the view without dimensions of size 1.

    Raises:
        InvalidArgument: an axis out of range, or of another size.
    """
    return tensor("x", x).squeeze(axis)


@named
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements in reverse order along all axes, or some.

    Raises:
        InvalidArgument: an axis out of range.
    """
    return tensor("x", x).flip(axis)


@named
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return the view whose dimensions are those of the given axes, all of them, in order.

    Raises:
        InvalidArgument: not each axis once.
    """
    given = tensor("x", x)
    order = checked_axes(caller(), "axes", axes, given.ndim)
    if len(order) != given.ndim:
        raise InvalidArgument(f"{caller()}: axes must name all {given.ndim} axes, got {list(order)}")
    return given.transpose(order) if order else given._view((), ())


@named
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return the view with some axes elsewhere, the others in order.

    Raises:
        InvalidArgument: axes out of range, or other numbers of them.
    """
    given = tensor("x", x)
    old = checked_axes(caller(), "source", source, given.ndim)
    new = checked_axes(caller(), "destination", destination, given.ndim)
    if len(old) != len(new):
        raise InvalidArgument(f"{caller()}: destination must have {len(old)} axes, as source, got {len(new)}")
    order = [axis for axis in range(given.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return given.transpose(order) if order else given._view((), ())


@named
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements, in order, with other sizes: a view where strides allow.

    Args:
        x: any array.
        shape: as many elements; one size may be -1, which stands for what is left.
        copy: None copies where no view will do, True always, False never.

    Raises:
        InvalidArgument: another number of elements, more than 8 dimensions, or a copy is needed that must not be.
    """
    given = tensor("x", x)
    return given.reshape(shape, copy=copy if given.size else None)


@named
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements moved along axes; what leaves at an end comes in again. None moves all in a row.

    Raises:
        InvalidArgument: no integers, an axis out of range, or other numbers of shifts than of axes.
    """
    given = tensor("x", x)
    shifts = as_integers(caller(), "shift", shift)
    if axis is None:
        if len(shifts) != 1:
            raise InvalidArgument(f"{caller()}: shift must be one integer where axis is None, got {shown(shift)}")
        return _rolled(given.reshape(-1), shifts[0], 0).reshape(given.sizes)
    axes = tuple(checked_axis(caller(), "axis", one, given.ndim) for one in as_integers(caller(), "axis", axis))
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgument(f"{caller()}: shift must have {len(axes)} integers, as axis, got {len(shifts)}")
    for by, number in zip(shifts, axes, strict=True):
        given = _rolled(given, by, number)
    return given._same() if given is x else given


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    by = shift % x.sizes[axis] if x.size else 0
    if not by:
        return x._same()
    before = (slice(None),) * axis
    return joined([x[(*before, slice(-by, None))], x[(*before, slice(None, -by))]], axis)


@named
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return the array repeated as a whole along each axis; more repetitions than axes lead to new ones.

    Raises:
        InvalidArgument: no integers, negative ones, or too many dimensions or elements.
    """
    given, counts = tensor("x", x), as_integers(caller(), "repetitions", repetitions)
    if any(count < 0 for count in counts):
        raise InvalidArgument(f"{caller()}: repetitions must be at least 0 each, got {shown(repetitions)}")
    rank = max(len(counts), given.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    if rank > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: repetitions must leave at most 8 dimensions, got {rank}")
    given = given.expand_dims(tuple(range(rank - given.ndim))) if rank > given.ndim else given
    sizes = tuple(count * size for count, size in zip(counts, given.sizes, strict=True))
    if math.prod(sizes) > MAX_ELEMENTS:
        raise InvalidArgument(f"{caller()}: at most 2^32 - 1 elements must result, got {shown(math.prod(sizes))}")
    if 0 in sizes:
        return given._nothing(sizes)
    for axis, count in enumerate(counts):
        given = _repeated(given, axis, count, whole=True)
    return given._same() if given is x else given


def _repeated(x: Tensor, axis: int, count: int, whole: bool) -> Tensor:
    """Return elements ``count`` times along an axis: each in a row, or all of them as a ``whole``."""
    if count == 1:
        return x
    if x.ndim == MAX_DIMENSIONS:
        places = [*range(x.sizes[axis])] * count if whole else np.repeat(range(x.sizes[axis]), count)
        return x._taken(Tensor(np.asarray(places, np.int64), device=x.device), axis, caller())
    new = axis if whole else axis + 1
    wider = x.expand_dims(new)
    sizes = (*x.sizes[:axis], count * x.sizes[axis], *x.sizes[axis + 1 :])
    return wider.broadcast_to((*wider.sizes[:new], count, *wider.sizes[new + 1 :])).copy()._renamed(sizes)


@named
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return each element, or part along an axis, several times in a row.

    Args:
        x: any array.
        repeats: how often: an integer, or an array of them, one per part, on whose values the result's size depends.
        axis: None takes all elements in a row.

    Raises:
        InvalidArgument: no integers, negative ones, another number of them, or an axis out of range.
    """
    given = tensor("x", x)
    given, number = (
        (given.reshape(-1), 0) if axis is None else (given, checked_axis(caller(), "axis", axis, given.ndim))
    )
    size = given.sizes[number]
    count = None if isinstance(repeats, Tensor) else argument(caller(), "repeats", integer, repeats)
    if count is None:
        times = indexing.looked_at(tensor("repeats", repeats, "integer"))
        if times.ndim > 1 or times.size not in (1, size):
            raise InvalidArgument(
                f"{caller()}: repeats must be one integer or {size} in a row, got sizes {list(times.shape)}"
            )
        count = int(times.reshape(-1)[0]) if (times.size == 1 and size != 1) or times.ndim == 0 else None
    if (count is not None and count < 0) or (count is None and times.size and times.min() < 0):
        raise InvalidArgument(f"{caller()}: repeats must be at least 0, got {shown(repeats)}")
    total = count * size if count is not None else int(times.sum())
    sizes = (*given.sizes[:number], total, *given.sizes[number + 1 :])
    if math.prod(sizes) > MAX_ELEMENTS:
        raise InvalidArgument(f"{caller()}: at most 2^32 - 1 elements must result, got {shown(math.prod(sizes))}")
    if 0 in sizes:
        return given._nothing(sizes)
    if count is not None:
        return _repeated(given, number, count, whole=False)._same()
    places = Tensor(np.repeat(np.arange(size), times.astype(np.int64)), device=given.device)
    return given._taken(indices_of(places), number, caller())
