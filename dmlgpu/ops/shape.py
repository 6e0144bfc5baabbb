"""Functions that move elements, under NumPy's names: reshape, join, split, pad, repeat, gather."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import PaddingMode
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, tensor_of
from dmlgpu.tensors.layout import as_integers, checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import take as gathered
from dmlgpu.tensors.types import TypeLike, as_data_type, as_number

__all__ = [
    "broadcast_to", "concatenate", "expand_dims", "flip", "moveaxis", "one_hot", "pad", "reshape", "roll", "split",
    "squeeze", "stack", "take", "take_along_axis", "tile", "transpose",
]  # fmt: skip

_INTEGERS = coercion.tuple_of(coercion.integer, "integers")

# ---- views -----------------------------------------------------------------------------------------------------------


@eager
def reshape(x: Operand, shape: Sequence[int] | int, copy: bool | None = None, *, device: Where = None) -> Array:
    """Return the elements, in order, in another shape; see ``Tensor.reshape``."""
    return tensor_of("x", x).reshape(shape, copy=copy)


@eager
def transpose(x: Operand, axes: Sequence[int] | None = None, *, device: Where = None) -> Array:
    """Return a view with the axes in another order; None reverses them."""
    return tensor_of("x", x).transpose(axes)


@eager
def broadcast_to(x: Operand, shape: Sequence[int], *, device: Where = None) -> Array:
    """Return a view repeated along axes of size 1 and new leading ones."""
    return tensor_of("x", x).broadcast_to(shape)


@eager
def expand_dims(x: Operand, axis: int | Sequence[int], *, device: Where = None) -> Array:
    """Return a view with new axes of size 1."""
    return tensor_of("x", x).expand_dims(axis)


@eager
def squeeze(x: Operand, axis: int | Sequence[int] | None = None, *, device: Where = None) -> Array:
    """Return a view without axes of size 1."""
    return tensor_of("x", x).squeeze(axis)


@eager
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int], *, device: Where = None
) -> Array:
    """Return a view with some axes moved, the others in order."""
    tensor = tensor_of("x", x)
    old = checked_axes(caller(), "source", source, tensor.ndim)
    new = checked_axes(caller(), "destination", destination, tensor.ndim)
    if len(old) != len(new):
        raise InvalidArgument(f"{caller()}: destination must have {len(old)} axes, as source, got {len(new)}")
    order = [axis for axis in range(tensor.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return tensor.transpose(order) if order else tensor._view((), ())


# ---- joined and split ------------------------------------------------------------------------------------------------


@eager
def concatenate(arrays: Sequence[Operand], axis: int = 0, *, device: Where = None) -> Array:
    """Join tensors of one dtype along an axis; their other sizes are equal.

    Raises:
        InvalidArgument: If dtypes, ranks or other sizes differ.
    """
    tensors = _tensors(arrays)
    return joined(tensors, axis)


@eager
def stack(arrays: Sequence[Operand], axis: int = 0, *, device: Where = None) -> Array:
    """Join tensors of one shape and dtype along a new axis.

    Raises:
        InvalidArgument: If shapes or dtypes differ.
    """
    return stacked(_tensors(arrays), axis)


def _tensors(arrays: Any) -> list[Tensor]:
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors or arrays, at least one")
    return [tensor_of(f"arrays[{number}]", array) for number, array in enumerate(arrays)]


def joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Join tensors along an axis; those without elements only contribute to the shape."""
    first = tensors[0]
    if any(tensor.ndim != first.ndim for tensor in tensors):
        ranks = ", ".join(str(tensor.ndim) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have as many dimensions each, got {ranks}")
    number = checked_axis(caller(), "axis", axis, first.ndim)
    if len({(*tensor.sizes[:number], *tensor.sizes[number + 1 :]) for tensor in tensors}) > 1:
        listing = ", ".join(str(list(tensor.sizes)) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes but for axis {number}, got {listing}")
    if any(tensor.data_type is not first.data_type for tensor in tensors):
        listing = ", ".join(tensor.type_name for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have one dtype, got {listing}; astype converts")
    parts = [tensor for tensor in tensors if tensor.size]
    if not parts:
        total = sum(tensor.sizes[number] for tensor in tensors)
        return first._nothing((*first.sizes[:number], total, *first.sizes[number + 1 :]))
    return parts[0].copy() if len(parts) == 1 else directml.join(parts, axis=number)


def stacked(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Join tensors of one shape along a new axis."""
    if len({tensor.sizes for tensor in tensors}) > 1:
        listing = ", ".join(str(list(tensor.sizes)) for tensor in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have equal sizes, got {listing}")
    number = checked_axis(caller(), "axis", axis, tensors[0].ndim + 1)
    return joined([tensor.expand_dims(number) for tensor in tensors], number)


@eager
def split(x: Operand, sections: int | Sequence[int], axis: int = 0, *, device: Where = None) -> tuple[Array, ...]:
    """Return views of parts along an axis.

    Args:
        x: Tensor or array.
        sections: Number of equal parts, or the indices at which to split.
        axis: Axis to split.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If parts are not equal, or empty.
    """
    tensor = tensor_of("x", x)
    number = checked_axis(caller(), "axis", axis, tensor.ndim)
    size = tensor.sizes[number]
    count = coercion.as_index(sections)
    if count is not None:
        if count < 1 or size % count:
            raise InvalidArgument(f"{caller()}: sections must divide the axis of size {size}, got {shown(sections)}")
        cuts = [part * (size // count) for part in range(count + 1)]
    else:
        cuts = [0, *coercion.argument(caller(), "sections", _INTEGERS, sections), size]
        if any(low >= high for low, high in itertools.pairwise(cuts)):
            raise InvalidArgument(f"{caller()}: sections must grow from 1 to {size - 1}, got {shown(sections)}")
    before = (slice(None),) * number
    return tuple(tensor[(*before, slice(low, high))] for low, high in itertools.pairwise(cuts))


# ---- padded, reversed, repeated --------------------------------------------------------------------------------------


@eager
def pad(
    x: Operand, pad_width: Any, mode: PaddingMode | str = "constant", value: float = 0, *, device: Where = None
) -> Array:
    """Return the elements with padding around them.

    Args:
        x: Tensor or array.
        pad_width: Elements before and after: a number for all, a pair for all axes, or a pair for each axis.
        mode: ``"constant"``, ``"edge"``, ``"reflection"`` or ``"symmetric"``.
        value: Value of constant padding.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If ``pad_width`` has another form, or the dtype cannot hold ``value``.
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
    """Return the elements in reverse order along all axes, or some."""
    return tensor_of("x", x).flip(axis)


@eager
def roll(
    x: Operand, shift: int | Sequence[int], axis: int | Sequence[int] | None = None, *, device: Where = None
) -> Array:
    """Return the elements shifted along axes, wrapping around; None shifts all, flattened.

    Raises:
        InvalidArgument: If ``shift`` is not one integer, or one for each axis.
    """
    tensor = tensor_of("x", x)
    shifts = as_integers(caller(), "shift", shift)
    if axis is None:
        if len(shifts) != 1:
            raise InvalidArgument(f"{caller()}: shift must be one integer where axis is None, got {shown(shift)}")
        return _rolled(tensor.reshape(-1), shifts[0], 0).reshape(tensor.sizes)
    axes = [checked_axis(caller(), "axis", number, tensor.ndim) for number in as_integers(caller(), "axis", axis)]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise InvalidArgument(f"{caller()}: shift must have {len(axes)} integers, as axis, got {len(shifts)}")
    result = tensor
    for offset, number in zip(shifts, axes, strict=True):
        result = _rolled(result, offset, number)
    return result._same() if result is tensor else result


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    offset = shift % x.sizes[axis] if x.size else 0
    if not offset:
        return x._same()
    before = (slice(None),) * axis
    return joined([x[(*before, slice(-offset, None))], x[(*before, slice(None, -offset))]], axis)


@eager
def tile(x: Operand, reps: int | Sequence[int], *, device: Where = None) -> Array:
    """Return the tensor repeated as a whole along each axis; more repetitions than axes add leading axes.

    Raises:
        InvalidArgument: If ``reps`` is negative, or leads to too many axes or elements.
    """
    tensor = tensor_of("x", x)
    return tiled(tensor, "reps", reps)


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
    """Return the slices along an axis that indices select; the axes of ``indices`` replace it.

    Args:
        x: Tensor or array.
        indices: Tensor or array of int32, int64, uint32 or uint64; negative ones count from the end, those out of
            range give zeros.
        axis: Axis to index; None selects elements of x, flattened.
        device: Device or adapter name that computes arrays.
    """
    tensor, places = tensor_of("x", x), tensor_of("indices", indices)
    if axis is None:
        return gathered(tensor.reshape(-1), places, 0, caller())
    return gathered(tensor, places, checked_axis(caller(), "axis", axis, tensor.ndim), caller())


@eager
def take_along_axis(x: Operand, indices: Operand, axis: int = -1, *, device: Where = None) -> Array:
    """Return the element that each index selects along an axis, at the index's own place along the others."""
    tensor, places = tensor_of("x", x), tensor_of("indices", indices)
    number = checked_axis(caller(), "axis", axis, tensor.ndim)
    if not places.size and places.ndim == tensor.ndim:
        return tensor._nothing(places.sizes)
    return directml.gather_elements(tensor, places, axis=number)


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
    """Return a tensor with a new axis of ``depth`` elements: ``on`` at the index, ``off`` elsewhere.

    Raises:
        InvalidArgument: If ``depth`` is below 1, or the dtype cannot hold a value.
    """
    places = tensor_of("indices", indices)
    count = coercion.argument(caller(), "depth", coercion.between(1, 2**32 - 1), depth)
    number = checked_axis(caller(), "axis", axis, places.ndim + 1)
    data_type = as_data_type(caller(), "dtype", dtype)
    values = np.array([as_number(caller(), off, data_type), as_number(caller(), on, data_type)], data_type.numpy)
    shape = (*places.sizes[:number], count, *places.sizes[number:])
    if not places.size:
        return filled(places, shape, data_type=data_type)
    return directml.one_hot(
        places.expand_dims(number),
        Tensor(values, data_type, device=places.device).reshape((1,) * places.ndim + (2,)),
        axis=number,
        output_sizes=shape,
    )
