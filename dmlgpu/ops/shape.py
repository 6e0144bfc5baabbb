"""Functions that move elements, under NumPy's names: reshape, join, split, pad, repeat, gather."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, PaddingMode, as_elements
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, check_kind, eager, filled, host_elements, tensor_of
from dmlgpu.tensors.indexing import on_host
from dmlgpu.tensors.layout import (
    InvalidIndex,
    as_integers,
    broadcast_sizes,
    checked_axes,
    checked_axis,
    reshaped_strides,
    resolved_sizes,
)
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import take as gathered
from dmlgpu.tensors.types import TypeLike, as_data_type, as_number, promoted

__all__ = [
    "broadcast_to", "cat", "concat", "concatenate", "expand_dims", "flatten", "flip", "moveaxis", "one_hot", "pad",
    "permute", "repeat", "reshape", "roll", "split", "squeeze", "stack", "swapaxes", "take", "take_along_axis", "tile",
    "transpose", "unsqueeze", "view",
]  # fmt: skip

_INTEGERS = coercion.tuple_of(coercion.integer, "integers")

# ---- views -----------------------------------------------------------------------------------------------------------


@eager
def reshape(x: Operand, shape: Sequence[int] | int, copy: bool | None = None, *, device: Where = None) -> Array:
    """Return the elements, in row-major order, in another shape.

    No operator runs, unless a copy is needed.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        shape: Size of each axis; one may be -1, which is inferred.
        copy: None, the default, copies only if strides do not allow a view; True always copies, False never.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x`, or a copy (a new array if `x` is an array).

    Raises:
        InvalidArgument: If the element count differs, or `copy` is False and a view is not possible.

    Examples:
        >>> ops.reshape([1, 2, 3, 4], (2, -1))
        array([[1, 2],
               [3, 4]])

    See also:
        `transpose`, `expand_dims`, `Tensor.reshape`.
    """
    return tensor_of("x", x).reshape(shape, copy=copy)


@eager
def transpose(x: Operand, axes: Sequence[int] | None = None, *, device: Where = None) -> Array:
    """Return a view with the axes in another order.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axes: Every axis once, in the order of the result; defaults to None, which reverses them.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If `axes` does not name each axis once.

    Examples:
        >>> ops.transpose([[1, 2], [3, 4]])
        array([[1, 3],
               [2, 4]])

    See also:
        `moveaxis`, `Tensor.T`.
    """
    return tensor_of("x", x).transpose(axes)


@eager
def broadcast_to(x: Operand, shape: Sequence[int], *, device: Where = None) -> Array:
    """Return a view repeated along axes of size 1 and along new leading axes.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        shape: Shape of the result.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If a size of `x` is neither 1 nor the requested one.

    Examples:
        >>> ops.broadcast_to([1, 2], (2, 2))
        array([[1, 2],
               [1, 2]])

    See also:
        `tile`, `expand_dims`.
    """
    return tensor_of("x", x).broadcast_to(shape)


@eager
def expand_dims(x: Operand, axis: int | Sequence[int], *, device: Where = None) -> Array:
    """Return a view with new axes of size 1.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axis: Position, or positions, of the new axes in the result; negative ones count from the end.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If a position is out of range, or there would be more than 8 axes.

    Examples:
        >>> ops.expand_dims([1, 2], 0).shape
        (1, 2)

    See also:
        `squeeze`, `reshape`.
    """
    return tensor_of("x", x).expand_dims(axis)


@eager
def squeeze(x: Operand, axis: int | Sequence[int] | None = None, *, device: Where = None) -> Array:
    """Return a view without axes of size 1.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axis: Axis or axes to remove; defaults to None, all of size 1.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If an axis is out of range, or not of size 1.

    Examples:
        >>> ops.squeeze([[1, 2]]).shape
        (2,)

    See also:
        `expand_dims`, `reshape`.
    """
    return tensor_of("x", x).squeeze(axis)


@eager
def permute(x: Operand, axes: Sequence[int], *, device: Where = None) -> Array:
    """Return a view with the axes in another order: `transpose` under PyTorch's name.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axes: Every axis once, in the order of the result.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If `axes` does not name each axis once.

    Examples:
        >>> ops.permute([[[1, 2, 3]]], (2, 0, 1)).shape
        (3, 1, 1)

    See also:
        `transpose`, `moveaxis`.
    """
    tensor = tensor_of("x", x)
    return tensor.transpose(axes) if tensor.ndim else tensor._view((), ())


@eager
def view(x: Operand, shape: Sequence[int] | int, *, device: Where = None) -> Array:
    """Return a view in another shape: PyTorch's `view`, which never copies.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        shape: Size of each axis; one may be -1, which is inferred.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If the element count differs, or strides do not allow a view.

    Examples:
        >>> ops.view([1, 2, 3, 4], (2, -1))
        array([[1, 2],
               [3, 4]])

    See also:
        `reshape`, which copies if needed.
    """
    tensor = tensor_of("x", x)
    sizes = resolved_sizes(caller(), shape, tensor.size)
    if tensor.size and reshaped_strides(tensor.sizes, tensor.strides, sizes) is None:
        raise InvalidArgument(
            f"{caller()}: {list(tensor.sizes)} with strides {list(tensor.strides)} cannot be viewed as {list(sizes)}; "
            "reshape copies"
        )
    return tensor.reshape(sizes)


@eager
def unsqueeze(x: Operand, axis: int | Sequence[int], *, device: Where = None) -> Array:
    """Return a view with new axes of size 1: `expand_dims` under PyTorch's name.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axis: Position, or positions, of the new axes in the result; negative ones count from the end.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If a position is out of range, or there would be more than 8 axes.

    Examples:
        >>> ops.unsqueeze([1, 2], 0).shape
        (1, 2)

    See also:
        `expand_dims`, `squeeze`.
    """
    return tensor_of("x", x).expand_dims(axis)


@eager
def flatten(x: Operand, start_dim: int = 0, end_dim: int = -1, *, device: Where = None) -> Array:
    """Return the elements with a range of axes as one axis, as in PyTorch.

    No operator runs, unless a copy is needed.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8; a scalar gets one axis.
        start_dim: First of the axes; negative axes count from the end. Defaults to 0.
        end_dim: Last of the axes; defaults to the last axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x`, or a copy if strides do not allow one (a new array if `x` is an array).

    Raises:
        InvalidArgument: If an axis is out of range, or `start_dim` comes after `end_dim`.

    Examples:
        >>> ops.flatten(np.zeros((2, 3, 4), np.float32), 1).shape
        (2, 12)

    See also:
        `reshape`, `Tensor.flatten`.
    """
    tensor = tensor_of("x", x)
    rank = max(tensor.ndim, 1)
    first = checked_axis(caller(), "start_dim", start_dim, rank)
    last = checked_axis(caller(), "end_dim", end_dim, rank)
    if first > last:
        raise InvalidArgument(f"{caller()}: start_dim must not come after end_dim, got {start_dim} and {end_dim}")
    sizes = tensor.sizes or (1,)
    return tensor.reshape((*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :]))


@eager
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int], *, device: Where = None
) -> Array:
    """Return a view with some axes moved; the others keep their order.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        source: Axis or axes to move.
        destination: Position of each in the result.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If an axis is out of range or named twice, or the numbers of axes differ.

    Examples:
        >>> ops.moveaxis(np.zeros((2, 3, 4), np.float32), 0, -1).shape
        (3, 4, 2)

    See also:
        `transpose`.
    """
    tensor = tensor_of("x", x)
    old = checked_axes(caller(), "source", source, tensor.ndim)
    new = checked_axes(caller(), "destination", destination, tensor.ndim)
    if len(old) != len(new):
        raise InvalidArgument(f"{caller()}: destination must have {len(old)} axes, as source, got {len(new)}")
    order = [axis for axis in range(tensor.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return tensor.transpose(order) if order else tensor._view((), ())


@eager
def swapaxes(x: Operand, axis1: int, axis2: int, *, device: Where = None) -> Array:
    """Return a view with two axes exchanged.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 1 to 8.
        axis1: One axis; negative axes count from the end.
        axis2: The other axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        View of `x` (a new array if `x` is an array).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.swapaxes([[1, 2, 3]], 0, 1).shape
        (3, 1)

    See also:
        `moveaxis`, `transpose`.
    """
    tensor = tensor_of("x", x)
    first, second = (checked_axis(caller(), f"axis{n}", axis, tensor.ndim) for n, axis in ((1, axis1), (2, axis2)))
    order = list(range(tensor.ndim))
    order[first], order[second] = second, first
    return tensor.transpose(order)


# ---- joined and split ------------------------------------------------------------------------------------------------


@eager
def concatenate(arrays: Sequence[Operand], axis: int | None = 0, *, device: Where = None) -> Array:
    """Join tensors along an axis.

    Args:
        arrays: Tensors or arrays, promoted to a common dtype, whose sizes are equal along the other axes.
        axis: Axis to join along; None flattens the operands first. Defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the joined shape (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there are no operands or no common dtype, or ranks or other sizes differ.

    Examples:
        >>> ops.concatenate([[1, 2], [3]])
        array([1, 2, 3])

    See also:
        `stack`, `split`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`).
    """
    return joined(_tensors(arrays), axis)


@eager
def concat(arrays: Sequence[Operand], axis: int | None = 0, *, device: Where = None) -> Array:
    """Join tensors along an axis: `concatenate` under the array API's name.

    Args:
        arrays: Tensors or arrays, promoted to a common dtype, whose sizes are equal along the other axes.
        axis: Axis to join along; None flattens the operands first. Defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the joined shape (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there are no operands or no common dtype, or ranks or other sizes differ.

    Examples:
        >>> ops.concat([[1, 2], [3]])
        array([1, 2, 3])

    See also:
        `concatenate`, `stack`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`).
    """
    return joined(_tensors(arrays), axis)


@eager
def cat(arrays: Sequence[Operand], axis: int | None = 0, *, device: Where = None) -> Array:
    """Join tensors along an axis: `concatenate` under PyTorch's name.

    Args:
        arrays: Tensors or arrays, promoted to a common dtype, whose sizes are equal along the other axes.
        axis: Axis to join along; None flattens the operands first. Defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the joined shape (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If there are no operands or no common dtype, or ranks or other sizes differ.

    Examples:
        >>> ops.cat([[1, 2], [3]])
        array([1, 2, 3])

    See also:
        `concatenate`, `stack`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`).
    """
    return joined(_tensors(arrays), axis)


@eager
def stack(arrays: Sequence[Operand], axis: int = 0, *, device: Where = None) -> Array:
    """Join tensors of one shape along a new axis.

    Args:
        arrays: Tensors or arrays of one shape, promoted to a common dtype.
        axis: Position of the new axis in the result; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor with one axis more (an array if all operands are arrays).

    Raises:
        InvalidArgument: If there are no operands or no common dtype, or shapes differ.

    Examples:
        >>> ops.stack([[1, 2], [3, 4]], axis=1)
        array([[1, 3],
               [2, 4]])

    See also:
        `concatenate`, `expand_dims`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`).
    """
    return stacked(_tensors(arrays), axis)


def _tensors(arrays: Any) -> list[Tensor]:
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors or arrays, at least one")
    return promoted(
        caller(), {f"arrays[{index}]": tensor_of(f"arrays[{index}]", array) for index, array in enumerate(arrays)}
    )


def _differ(shapes: Sequence[tuple[int, ...]]) -> bool:
    return any(shape != shapes[0] for shape in shapes)  # no set: hashes of symbolic sizes would be guards


def joined(tensors: Sequence[Tensor], axis: int | None) -> Tensor:
    """Join tensors along an axis, or flattened if it is None; those without elements only contribute to the shape."""
    if axis is None:
        tensors, axis = [tensor.reshape(-1) for tensor in tensors], 0
    first = tensors[0]
    if any(tensor.ndim != first.ndim for tensor in tensors):
        ranks = ", ".join(str(tensor.ndim) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have as many dimensions each, got {ranks}")
    axis = checked_axis(caller(), "axis", axis, first.ndim)
    if _differ([(*tensor.sizes[:axis], *tensor.sizes[axis + 1 :]) for tensor in tensors]):
        listing = ", ".join(str(list(tensor.sizes)) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes but for axis {axis}, got {listing}")
    if any(tensor.data_type is not first.data_type for tensor in tensors):
        listing = ", ".join(tensor.type_name for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have one dtype, got {listing}; astype converts")
    parts = [tensor for tensor in tensors if tensor.size]
    if not parts:
        total = sum(tensor.sizes[axis] for tensor in tensors)
        return first._nothing((*first.sizes[:axis], total, *first.sizes[axis + 1 :]))
    return parts[0].copy() if len(parts) == 1 else directml.join(parts, axis=axis)


def stacked(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Join tensors of one shape along a new axis."""
    if _differ([tensor.sizes for tensor in tensors]):
        listing = ", ".join(str(list(tensor.sizes)) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes, got {listing}")
    axis = checked_axis(caller(), "axis", axis, tensors[0].ndim + 1)
    return joined([tensor.expand_dims(axis) for tensor in tensors], axis)


@eager
def split(x: Operand, sections: int | Sequence[int], axis: int = 0, *, device: Where = None) -> tuple[Array, ...]:
    """Return views of consecutive parts along an axis.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 1 to 8.
        sections: Number of equal parts, or the indices at which to split.
        axis: Axis to split; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tuple of views of `x` (of new arrays if `x` is an array).

    Raises:
        InvalidArgument: If the parts are not equal, or a part is empty.

    Examples:
        >>> ops.split([1, 2, 3, 4], 2)
        (array([1, 2]), array([3, 4]))
        >>> ops.split([1, 2, 3, 4], [1])
        (array([1]), array([2, 3, 4]))

    See also:
        `concatenate`, indexing with slices.
    """
    tensor = tensor_of("x", x)
    axis = checked_axis(caller(), "axis", axis, tensor.ndim)
    size = tensor.sizes[axis]
    count = coercion.as_index(sections)
    if count is not None:
        if count < 1 or size % count:
            raise InvalidArgument(f"{caller()}: sections must divide the axis of size {size}, got {shown(sections)}")
        cuts = [part * (size // count) for part in range(count + 1)]
    else:
        cuts = [0, *coercion.argument(caller(), "sections", _INTEGERS, sections), size]
        if any(low >= high for low, high in itertools.pairwise(cuts)):
            raise InvalidArgument(f"{caller()}: sections must grow from 1 to {size - 1}, got {shown(sections)}")
    before = (slice(None),) * axis
    return tuple(tensor[(*before, slice(low, high))] for low, high in itertools.pairwise(cuts))


# ---- padded, reversed, repeated --------------------------------------------------------------------------------------


@eager
def pad(
    x: Operand, pad_width: Any, mode: PaddingMode | str = "constant", value: float = 0, *, device: Where = None
) -> Array:
    """Return the elements with padding around them.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        pad_width: Elements before and after: a number for all sides, a pair for all axes, or a pair for each axis.
        mode: `"constant"`, the default, `"edge"`, `"reflection"` or `"symmetric"`.
        value: Value of constant padding; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the padded shape and the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `pad_width` has another form, or the dtype cannot hold `value`.

    Examples:
        >>> ops.pad([1, 2], 1)
        array([0, 1, 2, 0])
        >>> ops.pad([1, 2, 3], (0, 2), mode="reflection")
        array([1, 2, 3, 2, 1])

    See also:
        `concatenate`, `tile`.

    Computed by PADDING1 (`ns-directml-dml_padding1_operator_desc`).
    """
    tensor = tensor_of("x", x)
    try:
        pairs = np.broadcast_to(np.asarray(pad_width), (tensor.ndim, 2))
    except Exception:  # ragged lists, more pairs than axes
        pairs = np.array(None)
    if pairs.dtype.kind not in "iu" or pairs.min() < 0:
        raise InvalidArgument(
            f"{caller()}: pad_width must be an integer of at least 0, a pair, or a pair for each of {tensor.ndim} "
            f"axes, got {shown(pad_width)}"
        )
    filler = as_number(f"{caller()}: value", value, tensor.data_type)
    if not tensor.size:
        shape = [int(size + before + after) for size, (before, after) in zip(tensor.sizes, pairs, strict=True)]
        if mode not in ("constant", PaddingMode.CONSTANT) and 0 not in shape:
            raise InvalidArgument(f"{caller()}: x must have elements to repeat, got sizes {list(tensor.sizes)}")
        return filled(tensor, shape, filler)
    return directml.padding1(
        tensor,
        padding_mode=mode,
        padding_value=filler,
        start_padding=pairs[:, 0].tolist(),
        end_padding=pairs[:, 1].tolist(),
    )


@eager
def flip(x: Operand, axis: int | Sequence[int] | None = None, *, device: Where = None) -> Array:
    """Return the elements in reverse order along axes.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        axis: Axis or axes to reverse; defaults to None, all.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range.

    Examples:
        >>> ops.flip([1, 2, 3])
        array([3, 2, 1])

    See also:
        `roll`, `sort`.

    Computed by SLICE1 (`ns-directml-dml_slice1_operator_desc`).
    """
    return tensor_of("x", x).flip(axis)


@eager
def roll(
    x: Operand, shift: int | Sequence[int], axis: int | Sequence[int] | None = None, *, device: Where = None
) -> Array:
    """Return the elements shifted along axes, wrapping around.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        shift: Number of positions, for all axes or for each.
        axis: Axis or axes to shift along; defaults to None, all elements in row-major order.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `shift` is not one integer, or one for each axis.

    Examples:
        >>> ops.roll([1, 2, 3], 1)
        array([3, 1, 2])

    See also:
        `flip`, `concatenate`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`).
    """
    tensor = tensor_of("x", x)
    shifts = as_integers(caller(), "shift", shift)
    if axis is None:
        if len(shifts) != 1:
            raise InvalidArgument(f"{caller()}: shift must be one integer where axis is None, got {shown(shift)}")
        return _rolled(tensor.reshape(-1), shifts[0], 0).reshape(tensor.sizes)
    axes = [checked_axis(caller(), "axis", entry, tensor.ndim) for entry in as_integers(caller(), "axis", axis)]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgument(f"{caller()}: shift must have {len(axes)} integers, as axis, got {len(shifts)}")
    result = tensor
    for offset, entry in zip(shifts, axes, strict=True):
        result = _rolled(result, offset, entry)
    return result._same() if result is tensor else result


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    offset = shift % x.sizes[axis] if x.size else 0
    if not offset:
        return x._same()
    before = (slice(None),) * axis
    return joined([x[(*before, slice(-offset, None))], x[(*before, slice(None, -offset))]], axis)


@eager
def tile(x: Operand, reps: int | Sequence[int], *, device: Where = None) -> Array:
    """Return the tensor repeated as a whole along each axis.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        reps: Repetitions along each axis; more of them than axes add leading axes.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the repeated shape and the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `reps` is negative, or the result has more than 8 axes or 2^32 - 1 elements.

    Examples:
        >>> ops.tile([1, 2], 2)
        array([1, 2, 1, 2])

    See also:
        `broadcast_to`, which copies nothing; `concatenate`.

    Computed by ELEMENT_WISE_IDENTITY (`ns-directml-dml_element_wise_identity_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return tiled(tensor, "reps", reps)


@eager
def repeat(
    x: Operand, repeats: int | Sequence[int] | Tensor, axis: int | None = None, *, device: Where = None
) -> Array:
    """Return each element, or slice along an axis, several times in a row.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        repeats: Number of repetitions, or integers, one per slice, which are read, since they determine the shape.
        axis: Axis along which to repeat; defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If a number is negative, there are other ones than slices, or the axis is out of range.
        InvalidState: If a function that is being traced computes `repeats`.

    Examples:
        >>> ops.repeat([1, 2], 2)
        array([1, 1, 2, 2])
        >>> ops.repeat([1, 2], [3, 1])
        array([1, 1, 1, 2])

    See also:
        `tile`, `broadcast_to`.

    Computed by ELEMENT_WISE_IDENTITY (`ns-directml-dml_element_wise_identity_operator_desc`).
    """
    tensor = tensor_of("x", x)
    flat, axis = (
        (tensor.reshape(-1), 0) if axis is None else (tensor, checked_axis(caller(), "axis", axis, tensor.ndim))
    )
    size = flat.sizes[axis]
    times = on_host(repeats)
    if times.dtype.kind not in "iu" or times.ndim > 1 or times.size not in (1, size):
        raise InvalidArgument(
            f"{caller()}: repeats must be an integer, or {size} in a row, one for each slice, got {shown(repeats)}"
        )
    if times.size and times.min() < 0:
        raise InvalidArgument(f"{caller()}: repeats must be at least 0, got {shown(repeats)}")
    total = int(times.sum()) if times.size == size and times.ndim else int(times.reshape(-1)[0]) * size
    shape = (*flat.sizes[:axis], total, *flat.sizes[axis + 1 :])
    check_count(shape)
    if 0 in shape:
        return flat._nothing(shape)
    if times.size == 1:
        return repeated(flat, axis, total // size, whole=False)._same()
    places = flat._beside(np.repeat(np.arange(size), times.astype(np.int64)))
    return flat._taken(places, axis, caller())


def tiled(x: Tensor, name: str, repetitions: Any) -> Tensor:
    """Repeat a tensor as a whole along each axis; ``name`` is that of the parameter, for messages."""
    counts = as_integers(caller(), name, repetitions)
    if any(count < 0 for count in counts):
        raise InvalidArgument(f"{caller()}: {name} must be at least 0 each, got {shown(repetitions)}")
    rank = max(len(counts), x.ndim)
    if rank > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: {name} must leave at most 8 dimensions, got {rank}")
    counts = (1,) * (rank - len(counts)) + counts
    result = x.expand_dims(tuple(range(rank - x.ndim))) if rank > x.ndim else x
    shape = tuple(count * size for count, size in zip(counts, result.sizes, strict=True))
    check_count(shape)
    if 0 in shape:
        return x._nothing(shape)
    for axis, count in enumerate(counts):
        result = repeated(result, axis, count, whole=True)
    return result._same() if result is x else result


def check_count(shape: Sequence[int]) -> None:
    """Reject a shape with more elements than a tensor may have."""
    if math.prod(shape) > MAX_ELEMENTS:
        raise InvalidArgument(f"{caller()}: at most 2^32 - 1 elements must result, got {shown(math.prod(shape))}")


def repeated(x: Tensor, axis: int, count: int, whole: bool) -> Tensor:
    """Repeat each element along an axis ``count`` times, or all of them as a ``whole``."""
    if count == 1:
        return x
    if x.ndim == MAX_DIMENSIONS:
        places = [*range(x.sizes[axis])] * count if whole else np.repeat(range(x.sizes[axis]), count)
        return x._taken(Tensor(np.asarray(places, np.int64), device=x.device), axis, caller())
    new = axis if whole else axis + 1
    wider = x.expand_dims(new)
    shape = (*x.sizes[:axis], count * x.sizes[axis], *x.sizes[axis + 1 :])
    return wider.broadcast_to((*wider.sizes[:new], count, *wider.sizes[new + 1 :])).copy()._renamed(shape)


# ---- gathered --------------------------------------------------------------------------------------------------------


@eager
def take(x: Operand, indices: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Return the slices of `x` along an axis that `indices` select.

    Args:
        x: Tensor or array of any dtype, rank 0 to 8.
        indices: Integer, or Tensor or array of integers. Negative indices count from the end. Those of a Tensor are not
            checked: out of range, they give zeros.
        axis: Axis to index; defaults to None: `x`, flattened.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x`, in which the axes of `indices` replace `axis` (an array if both operands are
        arrays).

    Raises:
        InvalidArgument: If `indices` are not integers, those of an array or a list are out of range, `axis` is out of
            range, or more than 8 axes result.

    Examples:
        >>> ops.take([[1, 2], [3, 4], [5, 6]], [2, 0], axis=0)
        array([[5, 6],
               [1, 2]])

    See also:
        `take_along_axis`, indexing with arrays.

    Computed by GATHER (`ns-directml-dml_gather_operator_desc`).
    """
    tensor, axis = along(tensor_of("x", x), axis)
    return gathered(tensor, indices_of("indices", indices, tensor, axis), axis, caller())


@eager
def take_along_axis(x: Operand, indices: Operand, axis: int | None = -1, *, device: Where = None) -> Array:
    """Return the element that each index selects along an axis.

    Args:
        x: Tensor or array of any dtype, rank 1 to 8.
        indices: Tensor or array of integers, of the rank of `x`. Negative indices count from the end. Those of a Tensor
            are not checked: out of range, they give zeros.
        axis: Axis to index; defaults to the last axis, None flattens `x`. The other axes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the dtype of `x`, with the size of `indices` along `axis` (an array if no operand is a Tensor).

    Raises:
        InvalidArgument: If `indices` are not integers, those of an array or a list are out of range, ranks differ,
            shapes do not broadcast, or `axis` is out of range.

    Examples:
        >>> ops.take_along_axis([[1, 2], [3, 4]], [[1], [0]])
        array([[2],
               [3]])

    See also:
        `take`, `argsort`.

    Computed by GATHER_ELEMENTS (`ns-directml-dml_gather_elements_operator_desc`).
    """
    tensor, axis = along(tensor_of("x", x), axis)
    places = indices_of("indices", indices, tensor, axis)
    if places.ndim != tensor.ndim:
        raise InvalidArgument(f"{caller()}: indices must have {tensor.ndim} dimensions, as x, got {places.ndim}")
    around = [
        (name, (*array.sizes[:axis], 1, *array.sizes[axis + 1 :]))
        for name, array in (("x", tensor), ("indices", places))
    ]
    sizes = broadcast_sizes(caller(), around)
    tensor, places = (
        array.broadcast_to((*sizes[:axis], array.sizes[axis], *sizes[axis + 1 :])) for array in (tensor, places)
    )
    if not places.size:
        return tensor._nothing(places.sizes)
    return directml.gather_elements(tensor, places, axis=axis)


def along(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """Return a tensor and the number of its axis; None means the tensor flattened, as in NumPy."""
    return (x.reshape(-1), 0) if axis is None else (x, checked_axis(caller(), "axis", axis, x.ndim))


def indices_of(name: str, indices: Any, x: Tensor, axis: int) -> Tensor:
    """Return indices along an axis of `x` as GATHER takes them: a tensor of integers of at least 32 bits.

    Raises:
        InvalidArgument: If they are not integers; names the function and the operand.
        InvalidIndex: If the host knows them, and one is out of range.
    """
    size = x.sizes[axis]
    return index_typed(name, integers_of(name, indices, x, -size, size - 1, f" for axis {axis}"))


def index_typed(name: str, x: Tensor) -> Tensor:
    """Return integers as operators take them as indices: of at least 32 bits.

    Raises:
        InvalidArgument: If they are not integers; names the function and the operand.
    """
    check_kind(name, x, "integer")
    return x if x.data_type.bits >= 32 else x.astype(DataType.INT32)


def integers_of(
    name: str, value: Any, x: Tensor | None, low: int, high: int, where: str = "", exempt: int | None = None
) -> Tensor:
    """Return an operand as a tensor; its elements are checked if the host knows them.

    Those of an argument of a traced function are checked at each call that passes an array.

    Args:
        name: The parameter.
        value: The argument: a tensor, or an integer if there is `x`.
        x: A tensor of the device or graph that an integer is copied to.
        low, high: The permitted range.
        where: Subject of the range in messages; `{high}` and `{count}`, which is one more, stand for numbers.
        exempt: A number that is permitted in addition.

    Raises:
        InvalidIndex: If the host knows the elements, and one is out of range; names the function and the operand.
    """
    number = None if x is None or isinstance(value, Tensor) else coercion.as_index(value)
    elements = host_elements(tensor_of(name, value)) if number is None else np.asarray(int(number))
    check = functools.partial(_check_range, f"{caller()}: {name}", where, exempt)
    if elements is not None:
        check(elements, low, high)
    elif value.graph is not None:
        value.graph._check_at_calls(value, low, high, check)
    return value if x is None or number is None else x._beside(elements)


def _check_range(name: str, where: str, exempt: int | None, elements: NDArray[Any], low: int, high: int) -> None:
    if elements.dtype.kind not in "iuO":  # integers beyond 64 bits are objects
        return
    elements = elements if exempt is None else elements[elements != exempt]
    if elements.size and not (low <= int(elements.min()) and int(elements.max()) <= high):
        worst = elements.max() if elements.max() > high else elements.min()
        where = where.format(high=high, count=high + 1)
        permitted = f"between {low} and {high}" if low <= high else "absent"
        also = "" if exempt is None else f", or {exempt}"
        raise InvalidIndex(f"{name} must be {permitted}{where}{also}, got {shown(int(worst))}")


@eager
def one_hot(
    indices: Operand,
    depth: int,
    axis: int = -1,
    dtype: TypeLike = "float32",
    on: float = 1,
    off: float = 0,
    *,
    device: Where = None,
) -> Array:
    """Return a tensor with a new axis that is `on` at each index and `off` elsewhere.

    Args:
        indices: Tensor or array of integers from 0 to `depth` - 1. Those of a Tensor are not checked: negative ones
            count from the end, and those out of range give `off` throughout.
        depth: Size of the new axis.
        axis: Position of the new axis in the result; defaults to the last.
        dtype: Dtype of the result; defaults to float32.
        on: Value at the index; defaults to 1.
        off: Value elsewhere; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor with one axis more than `indices`, of `dtype` (an array if `indices` is one).

    Raises:
        InvalidArgument: If `depth` is below 1, `indices` are not integers, those of an array or a list are out of
            range, or the dtype cannot hold a value.

    Examples:
        >>> ops.one_hot([0, 2], 3)
        array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)

    See also:
        `take`, `equal`.

    Computed by ONE_HOT (`ns-directml-dml_one_hot_operator_desc`).
    """
    count = coercion.argument(caller(), "depth", coercion.between(1, 2**32 - 1), depth)
    places = index_typed("indices", integers_of("indices", indices, None, 0, count - 1, " for a depth of {count}"))
    axis = checked_axis(caller(), "axis", axis, places.ndim + 1)
    data_type = as_data_type(caller(), "dtype", dtype)
    values = as_elements(data_type, [as_number(caller(), off, data_type), as_number(caller(), on, data_type)])
    shape = (*places.sizes[:axis], count, *places.sizes[axis:])
    if not places.size:
        return filled(places, shape, data_type=data_type)
    return directml.one_hot(
        places.expand_dims(axis),
        Tensor(values, data_type, device=places.device).reshape((1,) * places.ndim + (2,)),
        axis=axis,
        output_sizes=shape,
    )
