"""Shape functions and indexing: views, joined and repeated arrays, elements that indices select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.array.operands import tensor
from dmlgpu.array.searching import indices_of
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.shape import check_count, joined, repeated, stacked, tiled
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import broadcast_sizes, checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat",
    "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tile", "unstack",
]  # fmt: skip

# ---- views -----------------------------------------------------------------------------------------------------------


@named
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Return a view repeated along axes of size 1 and new leading ones.

    Raises:
        InvalidArgument: If a size is neither 1 nor the requested one, or no tensor has such a shape.
    """
    return tensor("x", x).broadcast_to(shape)


@named
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return views of the shape to which arrays broadcast.

    Raises:
        InvalidArgument: If sizes differ and neither is 1.
    """
    operands = {f"arrays[{number}]": tensor(f"arrays[{number}]", array) for number, array in enumerate(arrays)}
    if not operands:
        return []
    sizes = broadcast_sizes(caller(), [(name, operand.sizes) for name, operand in operands.items()])
    return [operand.broadcast_to(sizes) for operand in operands.values()]


@named
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view with new axes of size 1.

    Raises:
        InvalidArgument: If an axis is out of range, or there would be more than 8.
    """
    return tensor("x", x).expand_dims(axis)


@named
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view without axes of size 1.

    Raises:
        InvalidArgument: If an axis is out of range, or of another size.
    """
    return tensor("x", x).squeeze(axis)


@named
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return a view with the axes in another order.

    Raises:
        InvalidArgument: If ``axes`` does not name each axis once.
    """
    operand = tensor("x", x)
    order = checked_axes(caller(), "axes", axes, operand.ndim)
    if len(order) != operand.ndim:
        raise InvalidArgument(f"{caller()}: axes must name all {operand.ndim} axes, got {list(order)}")
    return operand.transpose(order) if order else operand._view((), ())


@named
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return a view with some axes moved, the others in order.

    Raises:
        InvalidArgument: If axes are out of range, or their numbers differ.
    """
    result: Tensor = ops.moveaxis(tensor("x", x), source, destination)
    return result


@named
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements, in order, in another shape: a view if strides allow.

    Args:
        x: Tensor.
        shape: Shape of as many elements; one size may be -1, which means the remainder.
        copy: None copies if no view is possible, True always, False never.

    Raises:
        InvalidArgument: If element counts differ, there are more than 8 axes, or a forbidden copy is needed.
    """
    operand = tensor("x", x)
    return operand.reshape(shape, copy=copy if operand.size else None)


@named
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along an axis, as views without it.

    Raises:
        InvalidArgument: If the axis is out of range.
    """
    operand = tensor("x", x)
    number = checked_axis(caller(), "axis", axis, operand.ndim)
    before = (slice(None),) * number
    return tuple(operand[(*before, place)] for place in range(operand.sizes[number]))


# ---- joined, moved, repeated -----------------------------------------------------------------------------------------


def _promoted(arrays: Any) -> list[Tensor]:
    """Return several arrays in their common dtype."""
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors, at least one, got {shown(arrays)}")
    operands = {f"arrays[{number}]": tensor(f"arrays[{number}]", array) for number, array in enumerate(arrays)}
    return promoted(caller(), operands)


@named
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Join arrays along an axis; None flattens them first.

    Raises:
        InvalidArgument: If there are no arrays or no common dtype, other sizes differ, or the axis is out of range.
    """
    operands = _promoted(arrays)
    return joined([operand.reshape(-1) for operand in operands], 0) if axis is None else joined(operands, axis)


@named
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join arrays of one shape along a new axis.

    Raises:
        InvalidArgument: If there are no arrays or no common dtype, shapes differ, or the axis is out of range.
    """
    return stacked(_promoted(arrays), axis)


@named
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements in reverse order along all axes, or some.

    Raises:
        InvalidArgument: If an axis is out of range.
    """
    return tensor("x", x).flip(axis)


@named
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements shifted along axes, wrapping around; None shifts all, flattened.

    Raises:
        InvalidArgument: If an axis is out of range, or the numbers of shifts and axes differ.
    """
    result: Tensor = ops.roll(tensor("x", x), shift, axis)
    return result


@named
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return the array repeated as a whole along each axis; more repetitions than axes add leading axes.

    Raises:
        InvalidArgument: If ``repetitions`` are negative, or lead to too many axes or elements.
    """
    return tiled(tensor("x", x), "repetitions", repetitions)


@named
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return each element, or slice along an axis, several times in a row.

    Args:
        x: Tensor.
        repeats: Count, or a tensor of counts, one per slice, whose values determine the shape of the result.
        axis: Axis along which to repeat; None flattens `x`.

    Raises:
        InvalidArgument: If counts are negative, there is another number of them, or the axis is out of range.
    """
    operand = tensor("x", x)
    flat, number = (
        (operand.reshape(-1), 0) if axis is None else (operand, checked_axis(caller(), "axis", axis, operand.ndim))
    )
    size = flat.sizes[number]
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
    shape = (*flat.sizes[:number], total, *flat.sizes[number + 1 :])
    check_count(shape)
    if 0 in shape:
        return flat._nothing(shape)
    if count is not None:
        return repeated(flat, number, count, whole=False)._same()
    places = Tensor(np.repeat(np.arange(size), times.astype(np.int64)), device=flat.device)
    return flat._taken(places, number, caller())


# ---- indexing --------------------------------------------------------------------------------------------------------


@named
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices along an axis that indices select; the axes of ``indices`` replace it.

    Args:
        x: Tensor.
        indices: Integers, negative ones counted from the end; those out of range give zeros.
        axis: Axis to index; None for an array of rank 1.

    Raises:
        InvalidArgument: If indices are not integers, or the axis is out of range, or None for several axes.
    """
    operand, places = tensor("x", x), tensor("indices", indices, "integer")
    if axis is None and operand.ndim != 1:
        raise InvalidArgument(f"{caller()}: axis must be given for {operand.ndim} dimensions")
    result: Tensor = ops.take(operand, indices_of(places), 0 if axis is None else axis)
    return result


@named
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the element that each index selects along an axis, at the index's own place along the others.

    Raises:
        InvalidArgument: If indices are not integers, ranks differ, shapes do not broadcast, or an axis is wrong.
    """
    operand, places = tensor("x", x), tensor("indices", indices, "integer")
    number = checked_axis(caller(), "axis", axis, operand.ndim)
    if places.ndim != operand.ndim:
        raise InvalidArgument(f"{caller()}: indices must have {operand.ndim} dimensions, as x, got {places.ndim}")
    around = [
        (name, (*array.sizes[:number], 1, *array.sizes[number + 1 :]))
        for name, array in (("x", operand), ("indices", places))
    ]
    sizes = broadcast_sizes(caller(), around)
    operand, places = (
        array.broadcast_to((*sizes[:number], array.sizes[number], *sizes[number + 1 :])) for array in (operand, places)
    )
    result: Tensor = ops.take_along_axis(operand, indices_of(places), number)
    return result
