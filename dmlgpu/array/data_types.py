"""Types, and the functions on them. Types are NumPy's objects."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.array.operands import KINDS, REFUSED, Dtype, Where, as_type
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.promotion import common_type
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "astype",
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
float16, float32 = np.dtype("float16"), np.dtype("float32")
float64, complex64, complex128 = (np.dtype(name) for name in REFUSED)


@dataclass(frozen=True)
class FloatingPointLimits:
    """What ``finfo`` tells.

    Attributes:
        bits: of a number.
        eps: from 1 to the next number.
        max, min: largest and smallest number.
        smallest_normal: smallest positive number of full precision.
        dtype: the type.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class IntegerLimits:
    """What ``iinfo`` tells.

    Attributes:
        bits: of a number.
        max, min: largest and smallest number.
        dtype: the type.
    """

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


@named
def astype(x: Tensor, dtype: Dtype, /, *, copy: builtins.bool = True, device: Where = None) -> Tensor:
    """Return the elements in another type, a copy unless ``copy`` is false and the type and the device are the same.

    Raises:
        InvalidArgument: no tensor or no type; NotSupported: a type that adapters cannot compute.
    """
    if not isinstance(x, Tensor):
        raise InvalidArgument(f"{caller()}: x must be a Tensor, got {shown(x, typed=True)}")
    found = x.astype(as_type(dtype))
    found = found if device is None else found.to(device)
    copy = argument(caller(), "copy", boolean, copy)
    return found.copy() if copy and found is x and x.size else found


def _dtype(name: str, value: Any) -> np.dtype[Any]:
    """Return the type of a tensor, or the type that a value stands for, those that adapters cannot compute included."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, DataType) and value.bits >= 8:
        return value.numpy
    try:
        found = np.dtype(value) if value is not None else None
    except Exception:  # whatever is no type
        found = None
    if found is None or found.name not in (*KINDS["bool"], *KINDS["numeric"], "float16", *REFUSED):
        raise InvalidArgument(f"{caller()}: {name} must be a type of the namespace or a Tensor, got {shown(value)}")
    return found


@named
def finfo(type: Dtype | Tensor, /) -> FloatingPointLimits:
    """Return the limits of a floating-point type.

    Raises:
        InvalidArgument: another type.
    """
    found = _dtype("type", type)
    if found.kind not in "fc":
        raise InvalidArgument(f"{caller()}: type must be a floating-point type, got {found.name}")
    info = np.finfo(found)
    eps, high, low, least = (float(one) for one in (info.eps, info.max, info.min, info.smallest_normal))
    return FloatingPointLimits(int(info.bits), eps, high, low, least, np.dtype(info.dtype))


@named
def iinfo(type: Dtype | Tensor, /) -> IntegerLimits:
    """Return the limits of a type of integers.

    Raises:
        InvalidArgument: another type.
    """
    found = _dtype("type", type)
    if found.kind not in "iu":
        raise InvalidArgument(f"{caller()}: type must be a type of integers, got {found.name}")
    info = np.iinfo(found)
    return IntegerLimits(int(info.bits), int(info.max), int(info.min), found)


@named
def isdtype(dtype: Dtype, kind: Dtype | str | tuple[Dtype | str, ...]) -> builtins.bool:
    """Return whether a type is of a kind, a type, or one of several.

    Raises:
        InvalidArgument: no type, or no kind of the standard.
    """
    found = _dtype("dtype", dtype)
    return any(_is_of(found, one) for one in (kind if isinstance(kind, tuple) else (kind,)))


def _is_of(dtype: np.dtype[Any], kind: Any) -> builtins.bool:
    if isinstance(kind, str):
        letters = {"real floating": "f", "complex floating": "c", "signed integer": "i", "unsigned integer": "u"}
        letters |= {"bool": "b", "integral": "iu", "numeric": "iufc"}
        if kind not in letters:
            raise InvalidArgument(f"{caller()}: kind must be one of {', '.join(letters)} or a type, got {shown(kind)}")
        return dtype.kind in letters[kind]
    return dtype == _dtype("kind", kind)


@named
def can_cast(from_: Dtype | Tensor, to: Dtype, /) -> builtins.bool:
    """Return whether a type promotes to another.

    Raises:
        InvalidArgument: no type.
    """
    first, second = _dtype("from_", from_), _dtype("to", to)
    return first == second or _common(first, second) == second


def _common(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type that two have together, or None."""
    if a == b:
        return a
    if "c" in a.kind + b.kind:
        return np.result_type(a, b) if a.kind + b.kind in ("cc", "cf", "fc") else None
    if "b" in a.kind + b.kind:
        return None
    found = common_type(DataType.from_numpy(a), DataType.from_numpy(b))
    return None if found is None else found.numpy


@named
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the type that tensors, types and numbers have together; numbers take that of what is beside them.

    Raises:
        InvalidArgument: nothing is given, there is no common type, or a number fits none.
    """
    numbers = [one for one in arrays_and_dtypes if _is_number(one)]
    types = [_dtype("arrays_and_dtypes", one) for one in arrays_and_dtypes if not _is_number(one)]
    if not types:
        raise InvalidArgument(f"{caller()}: at least one Tensor or type must be given, got {shown(arrays_and_dtypes)}")
    found: np.dtype[Any] | None = types[0]
    for one in types[1:]:
        found = None if found is None else _common(found, one)
    if found is None:
        listing = ", ".join(one.name for one in types)
        raise InvalidArgument(f"{caller()}: types must have a common one, got {listing}; astype converts")
    for number in numbers:
        if not _fits(number, found):
            raise InvalidArgument(
                f"{caller()}: numbers must fit the type {found.name}, got {shown(number, typed=True)}"
            )
    return found


def _is_number(value: Any) -> builtins.bool:
    return isinstance(value, builtins.bool | int | float | complex)


def _fits(number: Any, dtype: np.dtype[Any]) -> builtins.bool:
    if isinstance(number, builtins.bool):
        return dtype.kind == "b"
    return dtype.kind in ("iufc" if isinstance(number, int) else "fc" if isinstance(number, float) else "c")
