"""Create arrays from numbers, from other arrays, and by rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.array.operands import Dtype, optional, tensor
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.ops.creation import arange, empty, eye, full, linspace, ones, zeros
from dmlgpu.tensors.array_like import convert_float64
from dmlgpu.tensors.calls import Where, as_type, caller, named
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import unreadable

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


@named
def asarray(obj: Any, /, *, dtype: Dtype = None, device: Where = None, copy: bool | None = None) -> Tensor:
    """Convert an object to a Tensor.

    Args:
        obj: Tensor, number, nested lists of numbers, or array of NumPy or another library. Python integers become
            int64, floats and arrays of float64 become float32; see `dmlgpu.set_float64`.
        dtype: Dtype of the namespace or its name; defaults to None, that of `obj`.
        device: Device or adapter name; defaults to None, that of a Tensor, else `dmlgpu.default_device()`.
        copy: None, the default, copies if `obj` is not a Tensor, or dtype or device change; True always copies, False
            never.

    Returns:
        Tensor of the shape of `obj`.

    Raises:
        InvalidArgument: If `obj` does not hold real numbers, the dtype cannot hold them, or a forbidden copy is needed.
        NotSupported: If `dtype` is float64 or complex, which adapters cannot compute.

    Examples:
        >>> xp.asarray([1, 2]).type_name
        'INT64'

    See also:
        `dmlgpu.Tensor`, `from_dlpack`.
    """
    requested, copy = None if dtype is None else as_type(dtype), optional("copy", copy)
    if isinstance(obj, Tensor):
        result = obj if requested is None else obj.astype(requested)
        result = result if device is None else result.to(device)
        if copy is False and result is not obj:
            raise InvalidArgument(f"{caller()}: copy must not be False where type or device change")
        return obj._nothing(obj.sizes) if copy and not obj.size else obj.copy() if copy and result is obj else result
    if copy is False:
        raise InvalidArgument(f"{caller()}: copy must not be False: {type(obj).__name__} is copied to the device")
    array, has_dtype = _on_host(obj), hasattr(obj, "dtype") or hasattr(obj, "__array__")
    if requested is None and not has_dtype:
        requested = {"f": DataType.FLOAT32, "i": DataType.INT64, "u": DataType.INT64}.get(array.dtype.kind)
    if requested is None:
        if isinstance(obj, float):
            requested = DataType.FLOAT32  # a NumPy float64 scalar is a Python float
        else:
            array = convert_float64(caller(), array, DataType.FLOAT32)
            as_type(array.dtype)
    if requested is not None and requested is not bool and has_dtype:
        array = array.astype(requested.numpy)
    return Tensor(array, requested, device=device)


def _on_host(obj: Any) -> np.ndarray[Any, Any]:
    """Return an object as a NumPy array."""
    try:
        array = np.from_dlpack(obj) if hasattr(obj, "__dlpack__") else np.asarray(obj)
    except Exception:  # no array, one on another device, or ragged lists
        try:
            array = np.asarray(obj)
        except Exception as error:  # ragged lists, and whatever a foreign __array__ raises
            if hasattr(obj, "__array__"):
                raise unreadable(f"{caller()}: obj must be of real numbers", obj, error) from None
            array = np.empty(1, object)
    if array.dtype.kind == "c":
        raise NotSupported(f"{caller()}: obj must not be of complex numbers, which adapters cannot compute")
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{caller()}: obj must be of real numbers, got {shown(obj, typed=True)}")
    return array


@named
def from_dlpack(x: Any, /, *, device: Where = None, copy: bool | None = None) -> Tensor:
    """Convert an object that supports DLPack to a Tensor.

    Elements pass through the host.

    Args:
        x: Tensor, or object with `__dlpack__`.
        device: Device or adapter name; defaults to None, that of `x`.
        copy: None, the default, copies if `x` is not a Tensor on the device; True always copies, False never.

    Returns:
        Tensor of the shape and dtype of `x`; `x` itself if it is a Tensor.

    Raises:
        InvalidArgument: If `x` does not support DLPack, or a forbidden copy is needed.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.from_dlpack(np.array([1.0, 2.0], np.float32)).tolist()
        [1.0, 2.0]

    See also:
        `asarray`.
    """
    copy = optional("copy", copy)
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise InvalidArgument(f"{caller()}: copy must not be False: memory is copied to the device")
    if not hasattr(x, "__dlpack__"):
        raise InvalidArgument(f"{caller()}: x must export itself by __dlpack__, got {shown(x, typed=True)}")
    return asarray(_on_host(x), device=device)


# ---- as dmlgpu.ops creates them, of tensors alone --------------------------------------------------------------------


@named
def zeros_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a tensor of zeros with the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype of the namespace or its name; defaults to None, that of `x`.
        device: Device or adapter name; defaults to None, that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        InvalidArgument: If `x` is not a Tensor, or `dtype` not a dtype.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.zeros_like(xp.asarray([1, 2])).tolist()
        [0, 0]

    See also:
        `zeros`.
    """
    return ops.zeros_like(tensor("x", x), dtype, device=device)


@named
def ones_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a tensor of ones with the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype of the namespace or its name; defaults to None, that of `x`.
        device: Device or adapter name; defaults to None, that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        InvalidArgument: If `x` is not a Tensor, or `dtype` not a dtype.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.ones_like(xp.asarray([1, 2])).tolist()
        [1, 1]

    See also:
        `ones`.
    """
    return ops.ones_like(tensor("x", x), dtype, device=device)


@named
def empty_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a tensor of unspecified values, which are zeros, with the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype of the namespace or its name; defaults to None, that of `x`.
        device: Device or adapter name; defaults to None, that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        InvalidArgument: If `x` is not a Tensor, or `dtype` not a dtype.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.empty_like(xp.asarray([1, 2])).shape
        (2,)

    See also:
        `empty`.
    """
    return ops.empty_like(tensor("x", x), dtype, device=device)


@named
def full_like(x: Tensor, /, fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a tensor filled with one number, with the shape of another.

    Args:
        x: Tensor.
        fill_value: The number.
        dtype: Dtype of the namespace or its name; defaults to None, that of `x`.
        device: Device or adapter name; defaults to None, that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        InvalidArgument: If `x` is not a Tensor, or the dtype cannot hold the number.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.full_like(xp.asarray([1, 2]), 7).tolist()
        [7, 7]

    See also:
        `full`.
    """
    return ops.full_like(tensor("x", x), fill_value, dtype, device=device)


@named
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above a diagonal.

    Args:
        x: Tensor {..., M, N}.
        k: Number of the diagonal, above the main one; defaults to 0.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        InvalidArgument: If `x` has fewer than 2 axes, or `k` is not an integer.

    Examples:
        >>> xp.tril(xp.ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]

    See also:
        `eye`, `triu`.
    """
    return ops.tril(tensor("x", x), k)


@named
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below a diagonal.

    Args:
        x: Tensor {..., M, N}.
        k: Number of the diagonal, above the main one; defaults to 0.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        InvalidArgument: If `x` has fewer than 2 axes, or `k` is not an integer.

    Examples:
        >>> xp.triu(xp.ones((2, 2))).tolist()
        [[1.0, 1.0], [0.0, 1.0]]

    See also:
        `eye`, `tril`.
    """
    return ops.triu(tensor("x", x), k)


@named
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid.

    Args:
        arrays: Coordinates along each axis: Tensors of rank 0 or 1 and of one dtype.
        indexing: `"xy"`, the default, exchanges the first two axes; `"ij"` does not.

    Returns:
        List of views of the shape of the grid, one per tensor.

    Raises:
        InvalidArgument: If tensors have several axes or different dtypes, or `indexing` is another word.

    Examples:
        >>> [x.tolist() for x in xp.meshgrid(xp.arange(2), xp.arange(2))]
        [[[0, 1], [0, 1]], [[0, 0], [1, 1]]]

    See also:
        `broadcast_arrays`.
    """
    return ops.meshgrid(*(tensor(f"arrays[{index}]", array) for index, array in enumerate(arrays)), indexing=indexing)
