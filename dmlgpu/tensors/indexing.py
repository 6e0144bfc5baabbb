"""Indexing with arrays of integers and with masks, and assignment."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors import layout
from dmlgpu.tensors.array_like import convert_float64
from dmlgpu.tensors.layout import InvalidIndex
from dmlgpu.tensors.strided import TensorBase

if TYPE_CHECKING:
    from dmlgpu.tensors.tensor import Tensor

CALLER = "Tensor[...]"


def looked_at(x: TensorBase) -> NDArray[Any]:
    """Return, as an array of the host, the elements of a tensor that determine the sizes of a result."""
    return x.numpy()


def on_host(values: Any) -> NDArray[Any]:
    """Return operands as host arrays; None stays None."""
    if isinstance(values, TensorBase):
        return looked_at(values)
    try:
        return np.asarray(values)
    except Exception:  # ragged lists, and whatever a foreign __array__ raises
        return np.array(None)


def is_array(index: Any) -> bool:
    """Return whether an index is an array: a tensor or an array of rank 1 or more, a mask, a list."""
    if isinstance(index, TensorBase | np.ndarray):
        return index.ndim > 0 or index.dtype == bool
    return isinstance(index, list | bool | np.bool_)


def select(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Select elements by a tuple of which some entries are arrays, by NumPy's rules.

    Raises:
        InvalidArgument: an index of another kind, out of range where the host knows it, or of sizes that do not
            broadcast; more than 8 dimensions.
    """
    entries = _expanded(x, index)
    view = x[tuple(slice(None) if _is_single(entry) else entry for entry in entries)]
    axes = [i for i, entry in enumerate(entries) if _is_single(entry)]
    indices = [_as_indices(x, entries[axis], view.sizes[axis], axis) for axis in axes]
    sizes = layout.broadcast_sizes(
        CALLER, [(f"index {axis}", entry.sizes) for axis, entry in zip(axes, indices, strict=True)]
    )
    rest = [axis for axis in range(view.ndim) if axis not in axes]
    rest_sizes = tuple(view.sizes[axis] for axis in rest)
    if len(sizes) + len(rest_sizes) > MAX_DIMENSIONS:
        raise InvalidArgument(f"{CALLER}: indices must leave at most 8 dimensions, got {len(sizes) + len(rest_sizes)}")
    if 0 in sizes or 0 in rest_sizes:
        return x._nothing((*sizes, *rest_sizes))
    place = indices[0]
    for i, axis in enumerate(axes[1:], 1):
        place = place * view.sizes[axis] + indices[i]
    place = place.broadcast_to(sizes)
    extent = math.prod(view.sizes[axis] for axis in axes)
    if not extent:
        raise InvalidArgument(f"{CALLER}: an index must name an element, got one into a dimension of size 0")
    flat = view.transpose(*axes, *rest).reshape(extent, *rest_sizes) if view.ndim else view.reshape(1)
    result = flat._taken(place.reshape(-1), 0, CALLER)._renamed((*sizes, *rest_sizes))
    first = axes[0]
    if axes == list(range(first, first + len(axes))) and first:
        order = [*range(len(sizes), len(sizes) + first), *range(len(sizes)), *range(len(sizes) + first, result.ndim)]
        result = result.transpose(order)
    return result


def _expanded(x: Tensor, index: tuple[Any, ...]) -> list[Any]:
    """Return an entry per axis and new axis, with Ellipsis expanded and masks as the indices of their true elements."""
    entries: list[Any] = []
    for item in index:
        entry = np.asarray(item) if isinstance(item, bool | np.bool_) else item
        entry = np.asarray(entry, None if entry else np.int64) if isinstance(entry, list) else entry
        if isinstance(entry, TensorBase | np.ndarray) and entry.dtype == bool:
            entries.extend(_places(x, entry, len(entries)))
        else:
            entries.append(entry)
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise InvalidArgument(f"{CALLER}: at most one Ellipsis must be given")
    taken = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if taken > x.ndim:
        raise InvalidArgument(f"{CALLER}: at most {x.ndim} indices must be given for {list(x.sizes)}, got {taken}")
    place = next((index for index, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    entries[place : place + 1] = [slice(None)] * (x.ndim - taken)
    return entries


def _places(x: Tensor, mask: Any, begin: int) -> list[Any]:
    """Return the indices of a mask's true elements, one array per axis of the mask.

    Raises:
        InvalidArgument: the mask has not the sizes of the dimensions that it chooses from.
    """
    array = looked_at(mask) if isinstance(mask, TensorBase) else mask
    if not array.ndim:
        raise InvalidArgument(f"{CALLER}: a single boolean must be the only index")
    _check_mask(array.shape, x.sizes[begin : begin + array.ndim])
    return list(np.nonzero(array))


def _check_mask(mask_sizes: layout.Sizes, sizes: layout.Sizes) -> None:
    if mask_sizes != sizes:
        raise InvalidIndex(
            f"{CALLER}: a mask must have the sizes {list(sizes)} of the dimensions it selects from, got "
            f"{list(mask_sizes)}"
        )


def _is_single(index: Any) -> bool:
    return index is not None and not isinstance(index, slice)


def _as_indices(x: Tensor, index: Any, size: int, axis: int) -> Tensor:
    """Return an index as a tensor of INT64, none of it negative."""
    tensor_class = type(x)
    if not isinstance(index, TensorBase):
        array = _integers(index, axis)
        _check_indices(axis, array, -size, size - 1)
        return tensor_class((array % size if size else array).astype(np.int64), device=x.device)
    if index.data_type.is_float or index.data_type.bits < 8:
        raise InvalidArgument(
            f"{CALLER}: an index must be of integers or booleans, got {index.type_name}; astype('int64') converts it"
        )
    if index.graph is not None:
        index.graph._check_at_calls(index, -size, size - 1, functools.partial(_check_indices, axis))
    tensor: Any = index
    if not tensor.data_type.is_signed:
        return tensor.astype(DataType.INT64)
    wide = tensor.astype(DataType.INT64)
    if not wide.size:
        return wide
    return wide + (wide < 0).astype(DataType.INT64) * size


def _check_indices(axis: int, array: NDArray[Any], low: int, high: int) -> None:
    if array.size and not (low <= array.min() and array.max() <= high):
        worst = array.max() if array.max() > high else array.min()
        raise InvalidIndex(f"{CALLER}: an index must be between {low} and {high} for axis {axis}, got {worst}")


def _integers(index: Any, axis: int) -> NDArray[Any]:
    try:
        array = np.asarray(index)
    except Exception:  # ragged lists
        array = np.empty(1, object)
    if array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"{CALLER}: an index must be an integer, a slice, None, Ellipsis, or an array of integers or booleans, "
            f"got {shown(index, typed=True)} for axis {axis}"
        )
    return array


def masked(x: Tensor, mask: Any) -> Tensor:
    """Return the elements, or slices along leading axes, that a mask selects.

    Raises:
        InvalidArgument: the mask has not the sizes of these dimensions.
    """
    array = looked_at(mask) if isinstance(mask, TensorBase) else np.asarray(mask)
    _check_mask(array.shape, x.sizes[: array.ndim])
    rest = x.sizes[array.ndim :]
    places = np.flatnonzero(array)
    if not places.size or 0 in rest:
        return x._nothing((places.size, *rest))
    flat = x.reshape(array.size, *rest)
    return flat._taken(type(x)(places.astype(np.int64), device=x.device), 0, CALLER)


def assigned(x: Tensor, index: Any, value: Any) -> Tensor:
    """Return a copy of a tensor with the selected elements replaced.

    Raises:
        InvalidIndex: an index out of range or of another kind.
        InvalidArgument: a value of another type, or one whose sizes do not broadcast.
    """
    caller = "Tensor[...] = value"
    is_mask = isinstance(index, TensorBase) and index.dtype == bool
    if is_mask and index.sizes == x.sizes and _is_single_value(value):
        value = _as_value(caller, x, value, x.sizes)
        if not x.size:
            return x
        values = {"condition_tensor": index, "a_tensor": value, "b_tensor": x}
        return x._operator(caller, descs.ElementWiseIf, **values)
    try:
        names = np.arange(x.size).reshape(x.sizes)[_on_host(index)]
    except IndexError as error:
        raise InvalidIndex(f"{caller}: {error}") from None
    value = _as_value(caller, x, value, names.shape)
    if not names.size:
        return x
    if names.size == x.size and np.array_equal(names.reshape(-1), np.arange(x.size)):
        return value.reshape(x.sizes).copy()
    places = type(x)(names.reshape(-1).astype(np.int64), device=x.device)
    values = {"input_tensor": x.reshape(-1), "indices_tensor": places, "updates_tensor": value.reshape(-1), "axis": 0}
    return x._operator(caller, descs.ScatterElements, **values)._renamed(x.sizes)


def _is_single_value(value: Any) -> bool:
    return math.prod(np.shape(value)) == 1


def _on_host(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_on_host(part) for part in index)
    return looked_at(index) if isinstance(index, TensorBase) else index


def _as_value(caller: str, x: Tensor, value: Any, sizes: tuple[int, ...]) -> Tensor:
    """Return the assigned value in the type of the tensor, broadcast to the selection."""
    dtype: Any = bool if x.is_boolean else x.data_type
    value = convert_float64(caller, value, x.data_type)
    if not isinstance(value, TensorBase):
        value = type(x)(value, dtype, device=x.device)
    if value.data_type.is_float and not x.data_type.is_float:
        raise InvalidArgument(
            f"{caller}: value must be of integers for {x.type_name}, got {value.type_name}; "
            f"value.astype('{x.data_type.name.lower()}') converts it"
        )
    extra = value.ndim - len(sizes)
    if extra > 0 and all(size == 1 for size in value.sizes[:extra]):
        value = value.squeeze(tuple(range(extra)))
    if layout.broadcast_strides(value.sizes, value.strides, sizes) is None:
        raise InvalidArgument(f"{caller}: value must broadcast to {list(sizes)}, got sizes {list(value.sizes)}")
    return value.astype(dtype).broadcast_to(sizes)
