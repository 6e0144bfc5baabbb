"""PyTorch's dtypes and DirectML's data types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from dmlgpu.catalog.enums import BFLOAT16, DataType
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.frontends.torch.complex_numbers import Complex, ComplexPairs
from dmlgpu.tensors.tensor import Tensor

DATA_TYPES: Mapping[torch.dtype, tuple[DataType, bool]] = {
    torch.float32: (DataType.FLOAT32, False),
    torch.float16: (DataType.FLOAT16, False),
    torch.bfloat16: (BFLOAT16, False),
    torch.float64: (DataType.FLOAT64, False),
    torch.bool: (DataType.UINT8, True),
    torch.uint8: (DataType.UINT8, False),
    torch.int8: (DataType.INT8, False),
    torch.int16: (DataType.INT16, False),
    torch.int32: (DataType.INT32, False),
    torch.int64: (DataType.INT64, False),
    torch.uint16: (DataType.UINT16, False),
    torch.uint32: (DataType.UINT32, False),
    torch.uint64: (DataType.UINT64, False),
}
"""Data type, and whether elements are booleans, of each dtype that the device holds."""

PARTS: Mapping[torch.dtype, torch.dtype] = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Dtype of the real and imaginary parts of each complex dtype that the device holds, as pairs."""

COMPLEX_DTYPES = {DATA_TYPES[part][0]: dtype for dtype, part in PARTS.items()}

TORCH_DTYPES: Mapping[tuple[DataType, bool], torch.dtype] = {value: key for key, value in DATA_TYPES.items()}


def reject_dtype(dtype: Any) -> NoReturn:
    """Raise a TypeError that names a dtype that the device does not hold."""
    raise TypeError(
        f"the dml device does not support {dtype}: it holds float32, float16, bfloat16, float64, complex64, "
        "complex128, bool, uint8 and int8 to int64; x.to(torch.float32) converts"
    )


def data_type_of(dtype: torch.dtype) -> tuple[DataType, bool]:
    """Return the data type of a dtype, and whether it is bool; for complex numbers, that of their parts.

    Raises:
        TypeError: If the device does not hold the dtype.
    """
    entry = DATA_TYPES.get(PARTS.get(dtype, dtype))
    return reject_dtype(dtype) if entry is None else entry


def dtype_of(x: Tensor | Complex) -> torch.dtype:
    """Return the torch dtype of a tensor."""
    if isinstance(x, Complex | ComplexPairs):
        return COMPLEX_DTYPES[x.data_type]
    return TORCH_DTYPES[x.data_type, x.is_boolean]


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Return a tensor converted to a dtype as PyTorch does it; the tensor itself if it has the dtype.

    Complex numbers become real ones without their imaginary parts.
    """
    if dtype.is_complex:
        part = PARTS.get(dtype) or reject_dtype(dtype)
        return x.each(lambda value: cast(value, part)) if isinstance(x, Complex) else Complex.of_real(cast(x, part))
    if isinstance(x, Complex):
        if dtype is torch.bool:
            return (x.real != 0) | (x.imag != 0)
        x = x.real
    data_type, is_boolean = data_type_of(dtype)
    if x.data_type is data_type and x.is_boolean is is_boolean:
        return x
    return x.astype(bool if is_boolean else data_type)


def torch_of_array(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor of the CPU over an array's memory, as `torch.from_numpy`, which does not know bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of_torch(host: torch.Tensor) -> NDArray[Any]:
    """Return an array over the memory of a tensor of the CPU, as `Tensor.numpy`, which does not know bfloat16."""
    if host.dtype is torch.bfloat16:
        return host.view(torch.uint16).numpy().view(BFLOAT16.numpy)
    return host.numpy()


def number_as(value: Any, dtype: torch.dtype) -> Any:
    """Convert a Python number to an element of a dtype: integers wrap around, floats are truncated for integers."""
    if dtype is torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        return value if is_symbolic(value) else float(value)
    info = torch.iinfo(dtype)
    number = math.trunc(value)
    return number if info.min <= number <= info.max else (number - info.min) % (1 << info.bits) + info.min


def bound_as(value: Any, dtype: torch.dtype) -> Any:
    """Convert a Python number that limits elements of a dtype: integers are limited to its range themselves."""
    if not is_representable(value, dtype) and not (dtype.is_floating_point or dtype.is_complex):
        info = torch.iinfo(dtype)
        return info.min if value < info.min else info.max
    return number_as(value, dtype)


def is_representable(value: Any, dtype: torch.dtype) -> bool:
    """Return whether a Python number is in the range of a dtype, to which infinity and NaN belong for floats."""
    if dtype is torch.bool:
        return True
    if isinstance(value, complex):
        return dtype.is_complex and is_representable(value.real, dtype) and is_representable(value.imag, dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return abs(value) <= torch.finfo(dtype).max or not math.isfinite(value)
    info = torch.iinfo(dtype)
    return bool(info.min <= value <= info.max)
