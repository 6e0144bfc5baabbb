"""Arrays from numbers, from other arrays, and by rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu.array.operands import Dtype, Where, as_type, optional, run, tensor, word
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, as_index, integer
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.runtime.shared import as_device
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.layout import broadcast_sizes, checked_sizes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_number

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


@named
def asarray(obj: Any, /, *, dtype: Dtype = None, device: Where = None, copy: bool | None = None) -> Tensor:
    """Return an array of what is given.

    Args:
        obj: a Tensor, a number, numbers in lists, or an array of NumPy's or of another library. Python's integers
            become int64, its floats float32.
        dtype: the type; None takes that of ``obj``.
        device: None is that of a Tensor, else ``default_device()``.
        copy: None copies where no Tensor is given or another type or device asked for, True always, False never.

    Raises:
        InvalidArgument: no real numbers, some that the type does not hold, or a copy is needed that must not be.
        NotSupported: float64 or complex numbers, which adapters cannot compute.
    """
    wanted, copy = None if dtype is None else as_type(dtype), optional("copy", copy)
    if isinstance(obj, Tensor):
        found = obj if wanted is None else obj.astype(wanted)
        found = found if device is None else found.to(device)
        if copy is False and found is not obj:
            raise InvalidArgument(f"{caller()}: copy must not be False where type or device change")
        return obj._nothing(obj.sizes) if copy and not obj.size else obj.copy() if copy and found is obj else found
    if copy is False:
        raise InvalidArgument(f"{caller()}: copy must not be False: {type(obj).__name__} is copied to the device")
    array, given = _on_host(obj), hasattr(obj, "dtype") or hasattr(obj, "__array__")
    if wanted is None and array.dtype.kind == "f" and not given:
        wanted = DataType.FLOAT32
    if wanted is None and array.dtype.kind in "iu" and not given:
        wanted = DataType.INT64
    if wanted is None:
        if isinstance(obj, float):
            wanted = DataType.FLOAT32  # NumPy's float64 as a single number is one of Python's floats
        else:
            as_type(array.dtype)
    if wanted is not None and wanted is not bool and given:
        array = array.astype(wanted.numpy)
    return Tensor(array, wanted, device=device)


def _on_host(obj: Any) -> np.ndarray[Any, Any]:
    """Return what is given as an array of the host."""
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
    """Return an array of what exports itself by DLPack, by way of the host; a Tensor as itself.

    Raises:
        InvalidArgument: it exports nothing, nothing of the types, or a copy is needed that must not be.
        NotSupported: a type that adapters cannot compute.
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


def _filled(sizes: tuple[int, ...], value: float, wanted: Any, device: Where) -> Tensor:
    """Return an array of one of 0 and 1."""
    data_type = DataType.UINT8 if wanted is bool else wanted
    target = as_device(caller(), device)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), wanted, device=target)
    values = {"value_data_type": data_type, "value": float(value) if data_type.is_float else int(value)}
    found: Tensor = call_op(descs.FillValueConstant, values, device=target, sizes={"output_tensor": sizes or (1,)})[
        0
    ]._renamed(sizes)
    return found._same(boolean=True) if wanted is bool else found


@named
def zeros(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of zeros, float32 unless another type is asked for.

    Raises:
        InvalidArgument: sizes that no tensor has, or no type; NotSupported: a type that adapters cannot compute.
    """
    return _filled(_shape(shape), 0, as_type("float32" if dtype is None else dtype), device)


@named
def ones(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of ones, float32 unless another type is asked for.

    Raises:
        InvalidArgument: sizes that no tensor has, or no type; NotSupported: a type that adapters cannot compute.
    """
    return _filled(_shape(shape), 1, as_type("float32" if dtype is None else dtype), device)


@named
def empty(shape: int | tuple[int, ...], *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of whatever numbers, which are zeros; see ``zeros``."""
    return zeros(shape, dtype=dtype, device=device)


@named
def full(shape: int | tuple[int, ...], fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return an array of one number, in the type that it is of, or another.

    Raises:
        InvalidArgument: sizes that no tensor has, no number, or one that the type does not hold.
        NotSupported: a type that adapters cannot compute.
    """
    sizes, target = _shape(shape), as_device(caller(), device)
    if isinstance(fill_value, Tensor) and fill_value.size == 1:
        fill_value = fill_value.item()
    if isinstance(fill_value, complex):
        raise NotSupported(f"{caller()}: fill_value must not be a complex number, which adapters cannot compute")
    usual = (
        "bool"
        if isinstance(fill_value, bool | np.bool_)
        else "int64"
        if as_index(fill_value) is not None
        else "float32"
    )
    wanted = as_type(usual if dtype is None else dtype)
    number = as_number(f"{caller()}: fill_value", fill_value, DataType.UINT8 if wanted is bool else wanted)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), wanted, device=target)
    return Tensor(number, wanted, device=target).broadcast_to(sizes).copy()


def _like(x: Any, dtype: Dtype, device: Where) -> tuple[tuple[int, ...], Dtype, Any]:
    given = tensor("x", x)
    return given.sizes, given.dtype if dtype is None else dtype, given.device if device is None else device


@named
def zeros_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return zeros of an array's sizes, type and device, unless others are asked for; see ``zeros``."""
    sizes, found, target = _like(x, dtype, device)
    return zeros(sizes, dtype=found, device=target)


@named
def ones_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return ones of an array's sizes, type and device, unless others are asked for; see ``ones``."""
    sizes, found, target = _like(x, dtype, device)
    return ones(sizes, dtype=found, device=target)


@named
def empty_like(x: Tensor, /, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return whatever numbers of an array's sizes, type and device, unless others are asked for; see ``empty``."""
    sizes, found, target = _like(x, dtype, device)
    return zeros(sizes, dtype=found, device=target)


@named
def full_like(x: Tensor, /, fill_value: float, *, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return one number in an array's sizes, type and device, unless others are asked for; see ``full``."""
    sizes, found, target = _like(x, dtype, device)
    return full(sizes, fill_value, dtype=found, device=target)


def counted(count: int, start: float, step: float, data_type: DataType, device: Where) -> Tensor:
    """Return numbers in equal steps, at least one."""
    values = {"value_data_type": data_type, "value_start": start, "value_delta": step}
    sizes = checked_sizes(caller(), "the number of elements", count)
    found: Tensor = call_op(
        descs.FillValueSequence, values, device=as_device(caller(), device), sizes={"output_tensor": sizes}
    )[0]
    return found


def _real(name: str, value: Any) -> float:
    """Return a number of Python's, integers as such.

    Raises:
        InvalidArgument: no finite real number.
    """
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
    """Return numbers from one, or 0, up to another that is left out, in equal steps.

    Raises:
        InvalidArgument: no numbers, a step of 0, too many elements, or numbers that the type does not hold.
        NotSupported: a type that adapters cannot compute.
    """
    first, last = (0.0, start) if stop is None else (start, stop)
    begin, end, delta = _real("start", first), _real("stop", last), _real("step", step)
    if stop is None and isinstance(end, int):
        begin = 0
    if not delta:
        raise InvalidArgument(f"{caller()}: step must not be 0")
    whole = all(isinstance(one, int) for one in (begin, end, delta))
    wanted = as_type(("int64" if whole else "float32") if dtype is None else dtype)
    if wanted is bool:
        raise InvalidArgument(f"{caller()}: dtype must be a type of numbers, got bool")
    if not wanted.is_float and not whole:
        raise InvalidArgument(f"{caller()}: start, stop and step must be integers for {wanted.name}")
    count = int(-((begin - end) // delta)) if whole else math.ceil((end - begin) / delta)
    if count <= 0:
        return Tensor(np.empty(0, wanted.numpy), device=device)
    if wanted.is_float or as_index(delta) is None:
        return counted(count, float(begin), float(delta), wanted, device)
    as_number(f"{caller()}: stop", begin + (count - 1) * delta, wanted)
    start_of_type = as_number(f"{caller()}: start", begin, wanted)
    if delta < 0 and not wanted.is_signed:
        return counted(count, int(begin + (count - 1) * delta), int(-delta), wanted, device).flip()
    delta = delta if count > 1 else 1
    return counted(count, start_of_type, as_number(f"{caller()}: step", delta, wanted), wanted, device)


@named
def linspace(
    start: float, stop: float, /, num: int, *, dtype: Dtype = None, device: Where = None, endpoint: bool = True
) -> Tensor:
    """Return a number of numbers in equal steps from one to another, which is among them where ``endpoint``.

    Raises:
        InvalidArgument: no finite numbers, or no type of numbers; NotSupported: a type that adapters cannot compute.
    """
    begin, end = float(_real("start", start)), float(_real("stop", stop))
    count = argument(caller(), "num", integer, num)
    wanted = as_type("float32" if dtype is None else dtype)
    if wanted is bool:
        raise InvalidArgument(f"{caller()}: dtype must be a type of numbers, got bool")
    if count < 0:
        raise InvalidArgument(f"{caller()}: num must be at least 0, got {count}")
    if not count:
        return Tensor(np.empty(0, wanted.numpy), device=device)
    parts = max(count - 1 if endpoint else count, 1)
    places = counted(count, 0.0, 1.0, DataType.FLOAT32, device)
    found = places * (end / parts - begin / parts) + begin
    if endpoint and count > 1:
        found = found._chosen(places != float(count - 1), Tensor(np.float32(end), device=found.device))
    return found if wanted is DataType.FLOAT32 else found.astype(wanted)


@named
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Dtype = None, device: Where = None) -> Tensor:
    """Return a matrix with ones on a diagonal, k above the main one.

    Raises:
        InvalidArgument: no sizes, no integer, or no type; NotSupported: a type that adapters cannot compute.
    """
    rows, columns = _shape((n_rows, n_rows if n_cols is None else n_cols))
    wanted = as_type("float32" if dtype is None else dtype)
    if not rows * columns:
        return Tensor(np.empty((rows, columns), np.uint8), wanted, device=device)
    return (_distances((rows, columns), as_device(caller(), device)) == _diagonal(k)).astype(wanted)


def _diagonal(k: Any) -> int:
    return max(-(2**31), min(2**31 - 1, argument(caller(), "k", integer, k)))


def _distances(sizes: tuple[int, ...], device: Where) -> Tensor:
    """Return how far each element of a matrix is above the main diagonal, INT32."""
    rows, columns = sizes
    across = counted(columns, 0, 1, DataType.INT32, device)
    return across - counted(rows, 0, 1, DataType.INT32, device).expand_dims(1)


def _triangle(x: Any, k: Any, lower: bool) -> Tensor:
    given, diagonal = tensor("x", x), _diagonal(k)
    if given.ndim < 2:
        raise InvalidArgument(f"{caller()}: x must have at least 2 dimensions, got {given.ndim}")
    if not given.size:
        return given._same()
    distances = _distances(given.sizes[-2:], given.device)
    kept = (distances <= diagonal) if lower else (distances >= diagonal)
    nothing = Tensor(0, given._type, device=given.device)
    return run(descs.ElementWiseIf, condition_tensor=kept, a_tensor=given, b_tensor=nothing)


@named
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above a diagonal, k above the main one.

    Raises:
        InvalidArgument: fewer than 2 dimensions, or no integer.
    """
    return _triangle(x, k, True)


@named
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below a diagonal, k above the main one.

    Raises:
        InvalidArgument: fewer than 2 dimensions, or no integer.
    """
    return _triangle(x, k, False)


@named
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, views of one array per dimension.

    Args:
        arrays: coordinates along each dimension, of one type.
        indexing: ``"xy"`` exchanges the first two dimensions, ``"ij"`` does not.

    Raises:
        InvalidArgument: arrays of more than one dimension or of several types, or another indexing.
    """
    indexing = word("indexing", indexing, ("xy", "ij"))
    given = [tensor(f"arrays[{number}]", one) for number, one in enumerate(arrays)]
    if any(one.ndim > 1 for one in given):
        raise InvalidArgument(f"{caller()}: arrays must have at most 1 dimension each")
    if len({one.dtype for one in given}) > 1:
        raise InvalidArgument(
            f"{caller()}: arrays must be of one type, got {', '.join(one.type_name for one in given)}"
        )
    rank = len(given)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = 1, 0
    shaped = [
        one.reshape(*(one.size if number == place else 1 for number in range(rank)))
        for one, place in zip(given, places, strict=True)
    ]
    sizes = broadcast_sizes(caller(), [("arrays", one.sizes) for one in shaped]) if shaped else ()
    return [one.broadcast_to(sizes) for one in shaped]
