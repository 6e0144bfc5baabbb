"""Create arrays from numbers, from other arrays, and by rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.array.operands import Dtype, as_type, numeric_type, optional, tensor, word
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, as_index, integer
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.runtime.device import as_device
from dmlgpu.tensors.calls import Where, caller, named
from dmlgpu.tensors.layout import broadcast_sizes, checked_sizes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_number

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


@named
def asarray(obj: Any, /, *, dtype: Dtype = None, device: Where = None, copy: bool | None = None) -> Tensor:
    """Convert an object to an array.

    Args:
        obj: Tensor, number, nested lists of numbers, or array of NumPy or another library. Python integers become
            int64, floats float32.
        dtype: Dtype; None means that of ``obj``.
        device: Device or adapter name; None means that of a Tensor, else ``default_device()``.
        copy: None copies if ``obj`` is no Tensor, or dtype or device change; True always copies, False never.

    Raises:
        InvalidArgument: If there are no real numbers, the dtype cannot hold them, or a forbidden copy is needed.
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


def _shape(shape: Any) -> tuple[int, ...]:
    return checked_sizes(caller(), "shape", shape)


def _filled(shape: Any, value: int, dtype: Dtype, device: Where) -> Tensor:
    """Return an array filled with 0 or 1, float32 by default."""
    sizes, target = _shape(shape), as_device(caller(), device)
    kind = as_type("float32" if dtype is None else dtype)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), kind, device=target)
    data_type = DataType.UINT8 if kind is bool else kind
    result: Tensor = ops.directml.fill_value_constant(
        value_data_type=data_type,
        value=float(value) if data_type.is_float else value,
        output_sizes=sizes or (1,),
        device=target,
    )._renamed(sizes)
    return result._same(boolean=True) if kind is bool else result


@named
def zeros(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of zeros, float32 by default.

    Raises:
        InvalidArgument: If no tensor has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype.
    """
    return _filled(shape, 0, dtype, device)


@named
def ones(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of ones, float32 by default; see ``zeros``."""
    return _filled(shape, 1, dtype, device)


@named
def empty(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of unspecified values, which are zeros; see ``zeros``."""
    return zeros(shape, dtype=dtype, device=device)


@named
def full(shape: int | tuple[int, ...], fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array filled with one number, of the number's dtype by default.

    Raises:
        InvalidArgument: If no tensor has such a shape, or the dtype cannot hold the number.
        NotSupported: If adapters cannot compute the dtype.
    """
    sizes, target = _shape(shape), as_device(caller(), device)
    if isinstance(fill_value, Tensor) and fill_value.size == 1:
        fill_value = fill_value.item()
    if isinstance(fill_value, complex):
        raise NotSupported(f"{caller()}: fill_value must not be a complex number, which adapters cannot compute")
    if dtype is None:
        is_bool = isinstance(fill_value, bool | np.bool_)
        dtype = "bool" if is_bool else "float32" if as_index(fill_value) is None else "int64"
    kind = as_type(dtype)
    number = as_number(f"{caller()}: fill_value", fill_value, DataType.UINT8 if kind is bool else kind)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), kind, device=target)
    return Tensor(number, kind, device=target).broadcast_to(sizes).copy()


def _like(x: Any, value: Any, dtype: Dtype, device: Where) -> tuple[tuple[int, ...], Any, Dtype, Any]:
    """Return shape, value, dtype and device of a new array, the missing ones those of `x`."""
    like = tensor("x", x)
    return like.sizes, value, like.dtype if dtype is None else dtype, like.device if device is None else device


@named
def zeros_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return zeros of the shape, dtype and device of an array, unless others are requested; see ``zeros``."""
    return _filled(*_like(x, 0, dtype, device))


@named
def ones_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return ones of the shape, dtype and device of an array, unless others are requested; see ``ones``."""
    return _filled(*_like(x, 1, dtype, device))


@named
def empty_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return zeros of the shape, dtype and device of an array, unless others are requested; see ``empty``."""
    return _filled(*_like(x, 0, dtype, device))


@named
def full_like(x: Tensor, /, fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return one number in the shape, dtype and device of an array, unless others are requested; see ``full``."""
    shape, value, dtype, device = _like(x, fill_value, dtype, device)
    return full(shape, value, dtype=dtype, device=device)


def counted(count: int, start: float, step: float, data_type: DataType, device: Where) -> Tensor:
    """Return evenly spaced numbers, at least one."""
    result: Tensor = ops.directml.fill_value_sequence(
        value_data_type=data_type,
        value_start=start,
        value_delta=step,
        output_sizes=checked_sizes(caller(), "the number of elements", count),
        device=as_device(caller(), device),
    )
    return result


def _real(name: str, value: Any) -> float:
    """Return a finite Python number, integers as such."""
    if isinstance(value, Tensor) and value.size == 1:
        value = value.item()
    whole = as_index(value)
    if whole is not None:
        return whole
    number = as_number(f"{caller()}: {name}", value, DataType.FLOAT32)
    if not math.isfinite(number) or isinstance(value, bool):
        raise InvalidArgument(f"{caller()}: {name} must be a finite number, got {shown(value)}")
    return number


@named
def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Dtype = None, device: Where = None
) -> Tensor:
    """Return evenly spaced numbers from ``start`` up to ``stop``, which is excluded.

    Raises:
        InvalidArgument: If the step is 0, there are too many elements, or the dtype cannot hold them.
        NotSupported: If adapters cannot compute the dtype.
    """
    first, last = (0.0, start) if stop is None else (start, stop)
    begin, end, delta = _real("start", first), _real("stop", last), _real("step", step)
    if stop is None and isinstance(end, int):
        begin = 0
    if not delta:
        raise InvalidArgument(f"{caller()}: step must not be 0")
    whole = all(isinstance(number, int) for number in (begin, end, delta))
    data_type = numeric_type(("int64" if whole else "float32") if dtype is None else dtype)
    if not data_type.is_float and not whole:
        raise InvalidArgument(f"{caller()}: start, stop and step must be integers for {data_type.name}")
    count = int(-((begin - end) // delta)) if whole else math.ceil((end - begin) / delta)
    if count <= 0:
        return Tensor(np.empty(0, data_type.numpy), device=device)
    if data_type.is_float or as_index(delta) is None:
        return counted(count, float(begin), float(delta), data_type, device)
    as_number(f"{caller()}: stop", begin + (count - 1) * delta, data_type)
    start_of_type = as_number(f"{caller()}: start", begin, data_type)
    if delta < 0 and not data_type.is_signed:
        return counted(count, int(begin + (count - 1) * delta), int(-delta), data_type, device).flip()
    delta = delta if count > 1 else 1
    return counted(count, start_of_type, as_number(f"{caller()}: step", delta, data_type), data_type, device)


@named
def linspace(
    start: float, stop: float, /, num: int, *, dtype: Dtype = None, device: Where = None, endpoint: bool = True
) -> Tensor:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``, which is included if ``endpoint``.

    Raises:
        InvalidArgument: If ``start`` or ``stop`` is not finite, or the dtype is not numeric.
        NotSupported: If adapters cannot compute the dtype.
    """
    begin, end = float(_real("start", start)), float(_real("stop", stop))
    count = argument(caller(), "num", integer, num)
    data_type = numeric_type("float32" if dtype is None else dtype)
    if count < 0:
        raise InvalidArgument(f"{caller()}: num must be at least 0, got {count}")
    if not count:
        return Tensor(np.empty(0, data_type.numpy), device=device)
    parts = max(count - 1 if endpoint else count, 1)
    places = counted(count, 0.0, 1.0, DataType.FLOAT32, device)
    numbers: Tensor = places * (end / parts - begin / parts) + begin
    if endpoint and count > 1:
        numbers = numbers._chosen(places != float(count - 1), Tensor(np.float32(end), device=numbers.device))
    return numbers if data_type is DataType.FLOAT32 else numbers.astype(data_type)


@named
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a matrix with ones on a diagonal, k above the main one.

    Raises:
        InvalidArgument: If no matrix has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype.
    """
    rows, columns = _shape((n_rows, n_rows if n_cols is None else n_cols))
    kind = as_type("float32" if dtype is None else dtype)
    if not rows * columns:
        return Tensor(np.empty((rows, columns), np.uint8), kind, device=device)
    return (_distances((rows, columns), as_device(caller(), device)) == _diagonal(k)).astype(kind)


def _diagonal(k: Any) -> int:
    return max(-(2**31), min(2**31 - 1, argument(caller(), "k", integer, k)))


def _distances(sizes: tuple[int, ...], device: Where) -> Tensor:
    """Return the distance of each element of a matrix above the main diagonal, int32."""
    rows, columns = sizes
    across = counted(columns, 0, 1, DataType.INT32, device)
    return across - counted(rows, 0, 1, DataType.INT32, device).expand_dims(1)


def _triangle(x: Any, k: Any, lower: bool) -> Tensor:
    matrices, diagonal = tensor("x", x), _diagonal(k)
    if matrices.ndim < 2:
        raise InvalidArgument(f"{caller()}: x must have at least 2 dimensions, got {matrices.ndim}")
    if not matrices.size:
        return matrices._same()
    distances = _distances(matrices.sizes[-2:], matrices.device)
    mask = (distances <= diagonal) if lower else (distances >= diagonal)
    result: Tensor = ops.where(mask, matrices, Tensor(0, matrices._type, device=matrices.device))
    return result


@named
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above a diagonal, k above the main one.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.
    """
    return _triangle(x, k, True)


@named
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below a diagonal, k above the main one.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.
    """
    return _triangle(x, k, False)


@named
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, views of one array per dimension.

    Args:
        arrays: Coordinates along each dimension, of one dtype.
        indexing: ``"xy"`` exchanges the first two dimensions, ``"ij"`` does not.

    Raises:
        InvalidArgument: If arrays have several dimensions or different dtypes, or ``indexing`` is another word.
    """
    indexing = word("indexing", indexing, ("xy", "ij"))
    axes = [tensor(f"arrays[{number}]", array) for number, array in enumerate(arrays)]
    if any(axis.ndim > 1 for axis in axes):
        raise InvalidArgument(f"{caller()}: arrays must have at most 1 dimension each")
    if len({axis.dtype for axis in axes}) > 1:
        raise InvalidArgument(
            f"{caller()}: arrays must be of one type, got {', '.join(axis.type_name for axis in axes)}"
        )
    rank = len(axes)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = 1, 0
    shaped = [
        axis.reshape(*(axis.size if number == place else 1 for number in range(rank)))
        for axis, place in zip(axes, places, strict=True)
    ]
    sizes = broadcast_sizes(caller(), [("arrays", axis.sizes) for axis in shaped]) if shaped else ()
    return [axis.broadcast_to(sizes) for axis in shaped]
