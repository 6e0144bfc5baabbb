"""Shape functions and indexing: views, joined and repeated arrays, elements that indices select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu import ops
from dmlgpu.array.operands import tensor
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.shape import joined, stacked, tiled
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
    """Return a view repeated along axes of size 1 and along new leading axes.

    Args:
        x: Tensor of any dtype.
        shape: Shape of the result.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If a size of `x` is neither 1 nor the requested one.

    Examples:
        >>> xp.broadcast_to(xp.asarray([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]

    See also:
        `broadcast_arrays`, `tile`.
    """
    return tensor("x", x).broadcast_to(shape)


@named
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return views of the shape to which tensors broadcast.

    Args:
        arrays: Tensors of any dtype.

    Returns:
        List of views, one per tensor.

    Raises:
        InvalidArgument: If the shapes do not broadcast.

    Examples:
        >>> [x.shape for x in xp.broadcast_arrays(xp.ones((2, 1)), xp.ones(3))]
        [(2, 3), (2, 3)]

    See also:
        `broadcast_to`.
    """
    operands = {f"arrays[{index}]": tensor(f"arrays[{index}]", array) for index, array in enumerate(arrays)}
    if not operands:
        return []
    sizes = broadcast_sizes(caller(), [(name, operand.sizes) for name, operand in operands.items()])
    return [operand.broadcast_to(sizes) for operand in operands.values()]


@named
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view with new axes of size 1.

    Args:
        x: Tensor of any dtype.
        axis: Position, or positions, of the new axes in the result.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If a position is out of range, or there would be more than 8 axes.

    Examples:
        >>> xp.expand_dims(xp.ones(3), axis=0).shape
        (1, 3)

    See also:
        `squeeze`.
    """
    return tensor("x", x).expand_dims(axis)


@named
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return a view without axes of size 1.

    Args:
        x: Tensor of any dtype.
        axis: Axis or axes to remove.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, or not of size 1.

    Examples:
        >>> xp.squeeze(xp.ones((1, 3)), axis=0).shape
        (3,)

    See also:
        `expand_dims`.
    """
    return tensor("x", x).squeeze(axis)


@named
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return a view with the axes in another order.

    Args:
        x: Tensor of any dtype.
        axes: Every axis once, in the order of the result.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If `axes` does not name each axis once.

    Examples:
        >>> xp.permute_dims(xp.ones((1, 2, 3)), (2, 0, 1)).shape
        (3, 1, 2)

    See also:
        `moveaxis`, `matrix_transpose`.
    """
    operand = tensor("x", x)
    order = checked_axes(caller(), "axes", axes, operand.ndim)
    if len(order) != operand.ndim:
        raise InvalidArgument(f"{caller()}: axes must name all {operand.ndim} axes, got {list(order)}")
    return operand.transpose(order) if order else operand._view((), ())


@named
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return a view with some axes moved; the others keep their order.

    Args:
        x: Tensor of any dtype.
        source: Axis or axes to move.
        destination: Position of each in the result.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If an axis is out of range or named twice, or the numbers of axes differ.

    Examples:
        >>> xp.moveaxis(xp.ones((1, 2, 3)), 0, -1).shape
        (2, 3, 1)

    See also:
        `permute_dims`.
    """
    return ops.moveaxis(tensor("x", x), source, destination)


@named
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements, in row-major order, in another shape.

    Args:
        x: Tensor of any dtype.
        shape: Size of each axis; one may be -1, which is inferred.
        copy: None, the default, copies only if strides do not allow a view; True always copies, False never.

    Returns:
        View of `x`, or a copy.

    Raises:
        InvalidArgument: If the element count differs, or `copy` is False and a view is not possible.

    Examples:
        >>> xp.reshape(xp.arange(4), (2, -1)).tolist()
        [[0, 1], [2, 3]]

    See also:
        `Tensor.reshape`.
    """
    operand = tensor("x", x)
    return operand.reshape(shape, copy=copy if operand.size else None)


@named
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return views of the parts along an axis, without the axis.

    Args:
        x: Tensor of any dtype, rank 1 to 8.
        axis: Axis to split; defaults to 0.

    Returns:
        Tuple of views of `x`.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> [x.tolist() for x in xp.unstack(xp.asarray([[1, 2], [3, 4]]))]
        [[1, 2], [3, 4]]

    See also:
        `stack`.
    """
    operand = tensor("x", x)
    axis = checked_axis(caller(), "axis", axis, operand.ndim)
    before = (slice(None),) * axis
    return tuple(operand[(*before, place)] for place in range(operand.sizes[axis]))


# ---- joined, moved, repeated -----------------------------------------------------------------------------------------


def _promoted(arrays: Any) -> list[Tensor]:
    """Return several arrays in their common dtype."""
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors, at least one, got {shown(arrays)}")
    operands = {f"arrays[{index}]": tensor(f"arrays[{index}]", array) for index, array in enumerate(arrays)}
    return promoted(caller(), operands)


@named
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Join tensors along an axis.

    Args:
        arrays: Tensors, promoted to a common dtype, whose sizes are equal along the other axes.
        axis: Axis to join along; None flattens the tensors first. Defaults to 0.

    Returns:
        Tensor of the joined shape and the common dtype.

    Raises:
        InvalidArgument: If there are no tensors or no common dtype, other sizes differ, or the axis is out of range.

    Examples:
        >>> xp.concat([xp.asarray([1, 2]), xp.asarray([3])]).tolist()
        [1, 2, 3]

    See also:
        `stack`.
    """
    return joined(_promoted(arrays), axis)


@named
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Args:
        arrays: Tensors of one shape, promoted to a common dtype.
        axis: Position of the new axis in the result; defaults to 0.

    Returns:
        Tensor with one axis more.

    Raises:
        InvalidArgument: If there are no tensors or no common dtype, shapes differ, or the axis is out of range.

    Examples:
        >>> xp.stack([xp.asarray([1, 2]), xp.asarray([3, 4])]).tolist()
        [[1, 2], [3, 4]]

    See also:
        `concat`, `unstack`.
    """
    return stacked(_promoted(arrays), axis)


@named
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements in reverse order along axes.

    Args:
        x: Tensor of any dtype.
        axis: Axis or axes to reverse; defaults to None, all.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> xp.flip(xp.arange(3)).tolist()
        [2, 1, 0]

    See also:
        `roll`.
    """
    return tensor("x", x).flip(axis)


@named
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return the elements shifted along axes, wrapping around.

    Args:
        x: Tensor of any dtype.
        shift: Number of positions, for all axes or for each.
        axis: Axis or axes to shift along; defaults to None, all elements in row-major order.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        InvalidArgument: If an axis is out of range, or the numbers of shifts and axes differ.

    Examples:
        >>> xp.roll(xp.arange(3), 1).tolist()
        [2, 0, 1]

    See also:
        `flip`.
    """
    return ops.roll(tensor("x", x), shift, axis)


@named
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return the tensor repeated as a whole along each axis.

    Args:
        x: Tensor of any dtype.
        repetitions: Repetitions along each axis; more of them than axes add leading axes.

    Returns:
        Tensor of the repeated shape and the dtype of `x`.

    Raises:
        InvalidArgument: If a repetition is negative, or the result has too many axes or elements.

    Examples:
        >>> xp.tile(xp.arange(2), (2,)).tolist()
        [0, 1, 0, 1]

    See also:
        `repeat`, `broadcast_to`.
    """
    return tiled(tensor("x", x), "repetitions", repetitions)


@named
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return each element, or slice along an axis, several times in a row.

    Args:
        x: Tensor of any dtype.
        repeats: Count, or a Tensor of counts, one per slice, whose values determine the shape of the result.
        axis: Axis along which to repeat; defaults to None: `x`, flattened.

    Returns:
        Tensor of the dtype of `x`.

    Raises:
        InvalidArgument: If a count is negative, there is another number of them, or the axis is out of range.

    Examples:
        >>> xp.repeat(xp.arange(2), 2).tolist()
        [0, 0, 1, 1]

    See also:
        `tile`.
    """
    counts = tensor("repeats", repeats, "integer") if isinstance(repeats, Tensor) else repeats
    return ops.repeat(tensor("x", x), counts, axis)


# ---- indexing --------------------------------------------------------------------------------------------------------


@named
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices along an axis that indices select; the axes of `indices` replace it.

    Args:
        x: Tensor of any dtype.
        indices: Tensor of integers. Negative indices count from the end; those out of range give zeros.
        axis: Axis to index; may be omitted for rank 1.

    Returns:
        Tensor of the dtype of `x`.

    Raises:
        InvalidArgument: If indices are not integers, or the axis is out of range, or omitted for several axes.

    Examples:
        >>> xp.take(xp.asarray([5, 6, 7]), xp.asarray([2, 0])).tolist()
        [7, 5]

    See also:
        `take_along_axis`, `dmlgpu.ops.take`.
    """
    operand, places = tensor("x", x), tensor("indices", indices, "integer")
    if axis is None and operand.ndim != 1:
        raise InvalidArgument(f"{caller()}: axis must be given for {operand.ndim} dimensions")
    return ops.take(operand, places, 0 if axis is None else axis)


@named
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the element that each index selects along an axis.

    Args:
        x: Tensor of any dtype.
        indices: Tensor of integers, of the rank of `x`; the other axes broadcast.
        axis: Axis to index; defaults to the last axis.

    Returns:
        Tensor of the dtype of `x`.

    Raises:
        InvalidArgument: If indices are not integers, ranks differ, shapes do not broadcast, or the axis is out of
            range.

    Examples:
        >>> xp.take_along_axis(xp.asarray([[5, 6], [7, 8]]), xp.asarray([[1], [0]])).tolist()
        [[6], [7]]

    See also:
        `take`, `argsort`.
    """
    return ops.take_along_axis(tensor("x", x), tensor("indices", indices), axis)
