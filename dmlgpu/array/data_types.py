"""Dtypes, which are NumPy's, functions on them, and the facts of the namespace."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.array.operands import KINDS, Dtype
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.runtime.device import Device, as_device, default_device, shared_devices
from dmlgpu.tensors.calls import UNSUPPORTED, Where, as_type, caller, named
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import common_type, type_beside

__all__ = [
    "__array_namespace_info__", "astype", "bool", "can_cast", "complex64", "complex128", "finfo", "float16",
    "float32", "float64", "iinfo", "int8", "int16", "int32", "int64", "isdtype", "result_type", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip

bool = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
float16, float32 = np.dtype("float16"), np.dtype("float32")
float64, complex64, complex128 = (np.dtype(name) for name in UNSUPPORTED)


@dataclass(frozen=True)
class FloatingPointLimits:
    """Result of ``finfo``.

    Attributes:
        bits: Bits of a number.
        eps: Distance from 1 to the next number.
        max, min: Largest and smallest number.
        smallest_normal: Smallest positive number of full precision.
        dtype: The dtype.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class IntegerLimits:
    """Result of ``iinfo``.

    Attributes:
        bits: Bits of a number.
        max, min: Largest and smallest number.
        dtype: The dtype.
    """

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


@named
def astype(x: Tensor, dtype: Dtype, /, *, copy: builtins.bool = True, device: Where = None) -> Tensor:
    """Return the elements in another dtype.

    Args:
        x: Tensor of any dtype.
        dtype: Dtype of the namespace or its name.
        copy: Whether to copy even if dtype and device stay the same; defaults to True.
        device: Device or adapter name; defaults to None, that of `x`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        InvalidArgument: If `x` is not a Tensor, or `dtype` not a dtype.
        NotSupported: If adapters cannot compute the dtype.

    Examples:
        >>> xp.astype(xp.asarray([1.7, -1.7]), "int32").tolist()
        [1, -1]

    See also:
        `dmlgpu.ops.astype`.
    """
    if not isinstance(x, Tensor):
        raise InvalidArgument(f"{caller()}: x must be a Tensor, got {shown(x, typed=True)}")
    result = x.astype(as_type(dtype))
    result = result if device is None else result.to(device)
    copy = argument(caller(), "copy", boolean, copy)
    return result.copy() if copy and result is x and x.size else result


def _dtype(name: str, value: Any) -> np.dtype[Any]:
    """Return the dtype of a tensor, or the dtype that a value names, also one that adapters cannot compute."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, DataType) and value.bits >= 8:
        return value.numpy
    try:
        dtype = np.dtype(value) if value is not None else None
    except Exception:  # whatever NumPy does not take for a dtype
        dtype = None
    if dtype is None or dtype.name not in (*KINDS["bool"], *KINDS["numeric"], "float16", *UNSUPPORTED):
        raise InvalidArgument(f"{caller()}: {name} must be a type of the namespace or a Tensor, got {shown(value)}")
    return dtype


@named
def finfo(type: Dtype | Tensor, /) -> FloatingPointLimits:
    """Return the limits of a floating-point dtype.

    Args:
        type: Dtype, its name, or a Tensor.

    Returns:
        `FloatingPointLimits`.

    Raises:
        InvalidArgument: If the dtype is not floating-point.

    Examples:
        >>> xp.finfo(xp.float32).bits
        32
    """
    dtype = _dtype("type", type)
    if dtype.kind not in "fc":
        raise InvalidArgument(f"{caller()}: type must be a floating-point type, got {dtype.name}")
    info = np.finfo(dtype)
    eps, high, low, smallest = (float(number) for number in (info.eps, info.max, info.min, info.smallest_normal))
    return FloatingPointLimits(int(info.bits), eps, high, low, smallest, np.dtype(info.dtype))


@named
def iinfo(type: Dtype | Tensor, /) -> IntegerLimits:
    """Return the limits of an integer dtype.

    Args:
        type: Dtype, its name, or a Tensor.

    Returns:
        `IntegerLimits`.

    Raises:
        InvalidArgument: If the dtype is not an integer dtype.

    Examples:
        >>> xp.iinfo(xp.int8).max
        127
    """
    dtype = _dtype("type", type)
    if dtype.kind not in "iu":
        raise InvalidArgument(f"{caller()}: type must be a type of integers, got {dtype.name}")
    info = np.iinfo(dtype)
    return IntegerLimits(int(info.bits), int(info.max), int(info.min), dtype)


@named
def isdtype(dtype: Dtype, kind: Dtype | str | tuple[Dtype | str, ...]) -> builtins.bool:
    """Return whether a dtype is of a kind.

    Args:
        dtype: Dtype or its name.
        kind: `"bool"`, `"signed integer"`, `"unsigned integer"`, `"integral"`, `"real floating"`, `"complex floating"`,
            `"numeric"`, a dtype, or a tuple of those.

    Returns:
        True if the dtype is of one of the kinds.

    Raises:
        InvalidArgument: If `dtype` is not a dtype, or `kind` is unknown.

    Examples:
        >>> xp.isdtype(xp.int8, "integral")
        True
    """
    numpy_dtype = _dtype("dtype", dtype)
    return any(_is_of(numpy_dtype, entry) for entry in (kind if isinstance(kind, tuple) else (kind,)))


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
    """Return whether a dtype promotes to another.

    Args:
        from_: Dtype, its name, or a Tensor.
        to: Dtype or its name.

    Returns:
        True if `to` is the common dtype of both.

    Raises:
        InvalidArgument: If either is not a dtype.

    Examples:
        >>> xp.can_cast(xp.int8, xp.int16)
        True
    """
    first, second = _dtype("from_", from_), _dtype("to", to)
    return first == second or _common(first, second) == second


def _common(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the common dtype of two, or None."""
    if a == b:
        return a
    if "c" in a.kind + b.kind:
        return np.result_type(a, b) if a.kind + b.kind in ("cc", "cf", "fc") else None
    if "b" in a.kind + b.kind:
        return b if a.kind == "b" else a
    common = common_type(DataType.from_numpy(a), DataType.from_numpy(b))
    return None if common is None else common.numpy


@named
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the common dtype of tensors, dtypes and numbers.

    Args:
        arrays_and_dtypes: Tensors, dtypes and Python numbers. A number takes the dtype of the others, but a float makes
            float32 of integers and booleans, and an int makes int64 of booleans.

    Returns:
        The common dtype.

    Raises:
        InvalidArgument: If there is no tensor or dtype, no common dtype, or a complex number does not fit it.

    Examples:
        >>> xp.result_type(xp.int8, xp.uint8)
        dtype('int16')
    """
    numbers = [operand for operand in arrays_and_dtypes if isinstance(operand, _PYTHON)]
    types = [_dtype("arrays_and_dtypes", operand) for operand in arrays_and_dtypes if not isinstance(operand, _PYTHON)]
    if not types:
        raise InvalidArgument(f"{caller()}: at least one Tensor or type must be given, got {shown(arrays_and_dtypes)}")
    common: np.dtype[Any] | None = types[0]
    for dtype in types[1:]:
        common = None if common is None else _common(common, dtype)
    if common is None:
        listing = ", ".join(dtype.name for dtype in types)
        raise InvalidArgument(f"{caller()}: types must have a common one, got {listing}; astype converts")
    if common.kind == "c":
        return common
    element_type: Any = builtins.bool if common.kind == "b" else DataType.from_numpy(common)
    for number in numbers:
        if isinstance(number, complex):
            raise InvalidArgument(
                f"{caller()}: numbers must fit the type {common.name}, got {shown(number, typed=True)}"
            )
        element_type = type_beside(element_type, number)
    return np.dtype(element_type) if element_type is builtins.bool else element_type.numpy


_PYTHON = (builtins.bool, int, float, complex)


class NamespaceInfo:
    """Result of ``__array_namespace_info__``."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities: boolean indexing, data-dependent shapes, and the number of dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMENSIONS}

    def default_device(self) -> Device:
        """Return the device on which arrays are created by default."""
        return default_device()

    def default_dtypes(self, *, device: Where = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of Python numbers; there is none for complex ones.

        Raises:
            InvalidArgument: If ``device`` is neither a device nor a name.
            AdapterNotFound: If there is no adapter of that name.
        """
        as_device("default_dtypes", device)
        return {
            "real floating": np.dtype("float32"),
            "integral": np.dtype("int64"),
            "indexing": np.dtype("int64"),
        }

    def dtypes(self, *, device: Where = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of the standard that a device computes, by name.

        Args:
            device: Device or adapter name; all compute the same dtypes.
            kind: Kind of dtypes, or several; None means all.

        Raises:
            InvalidArgument: If ``device`` is neither a device nor a name, or ``kind`` is unknown.
            AdapterNotFound: If there is no adapter of that name.
        """
        as_device("dtypes", device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for entry in kinds:
            if not isinstance(entry, str) or entry not in KINDS:
                raise InvalidArgument(f"dtypes: kind must be one of {', '.join(KINDS)}, or several, got {shown(entry)}")
        names = dict.fromkeys(name for entry in kinds for name in KINDS[entry])
        return {name: np.dtype(name) for name in names}

    def devices(self) -> list[Device]:
        """Return the default device, and the others that this process has opened by adapter name.

        Names of further adapters are devices as well; see ``dmlgpu.adapters``.
        """
        return [default_device(), *(device for device in shared_devices() if device is not default_device())]


def __array_namespace_info__() -> NamespaceInfo:
    """Return the capabilities, devices and dtypes of the namespace.

    Returns:
        `NamespaceInfo`.

    Examples:
        >>> xp.__array_namespace_info__().capabilities()["max dimensions"]
        8
    """
    return NamespaceInfo()
