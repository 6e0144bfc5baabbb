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

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


@named
def asarray(obj: Any, /, *, dtype: Dtype = None, device: Where = None, copy: bool | None = None) -> Tensor:
    """Convert an object to an array.

    Args:
        obj: Tensor, number, nested lists of numbers, or array of NumPy or another library. Python integers become
            int64, floats float32. Arrays of float64 become float32, see ``dmlgpu.set_float64``.
        dtype: Dtype; None means that of ``obj``.
        device: Device or adapter name; None means that of a Tensor, else ``default_device()``.
        copy: None copies if ``obj`` is no Tensor, or dtype or device change; True always copies, False never.

    Raises:
        InvalidArgument: If there are no real numbers, the dtype cannot hold them, or a forbidden copy is needed; if
            ``obj`` is of float64 and ``set_float64("refuse")`` is in effect.
        NotSupported: If the dtype is float64 or complex, which adapters cannot compute.
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
    except Exception:  # what is no array, from another device, or ragged
        try:
            array = np.asarray(obj)
        except Exception:  # ragged lists
            array = np.empty(1, object)
    if array.dtype.kind == "c":
        raise NotSupported(f"{caller()}: obj must not be of complex numbers, which adapters cannot compute")
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{caller()}: obj must be of real numbers, got {shown(obj, typed=True)}")
    return array


@named
def from_dlpack(x: Any, /, *, device: Where = None, copy: bool | None = None) -> Tensor:
    """Convert an object that supports DLPack to an array, through the host; a Tensor is returned as it is.

    Raises:
        InvalidArgument: If `x` does not support DLPack, or a forbidden copy is needed.
        NotSupported: If adapters cannot compute the dtype.
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
    """Return zeros of the shape, dtype and device of an array, unless others are requested; see ``zeros``."""
    result: Tensor = ops.zeros_like(tensor("x", x), dtype, device=device)
    return result


@named
def ones_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return ones of the shape, dtype and device of an array, unless others are requested; see ``ones``."""
    result: Tensor = ops.ones_like(tensor("x", x), dtype, device=device)
    return result


@named
def empty_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return zeros of the shape, dtype and device of an array, unless others are requested; see ``empty``."""
    result: Tensor = ops.empty_like(tensor("x", x), dtype, device=device)
    return result


@named
def full_like(x: Tensor, /, fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return one number in the shape, dtype and device of an array, unless others are requested; see ``full``."""
    result: Tensor = ops.full_like(tensor("x", x), fill_value, dtype, device=device)
    return result


@named
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above a diagonal, k above the main one.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.
    """
    result: Tensor = ops.tril(tensor("x", x), k)
    return result


@named
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below a diagonal, k above the main one.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.
    """
    result: Tensor = ops.triu(tensor("x", x), k)
    return result


@named
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, views of one array per dimension.

    Args:
        arrays: Coordinates along each dimension, of one dtype.
        indexing: ``"xy"`` exchanges the first two dimensions, ``"ij"`` does not.

    Raises:
        InvalidArgument: If arrays have several dimensions or different dtypes, or ``indexing`` is another word.
    """
    return ops.meshgrid(*(tensor(f"arrays[{number}]", array) for number, array in enumerate(arrays)), indexing=indexing)
