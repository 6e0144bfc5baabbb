"""ONNX's element types and DirectML's: which stands for which, and arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported

Array = NDArray[Any]

DATA_TYPES: Mapping[int, DataType] = {
    TensorProto.FLOAT: DataType.FLOAT32,
    TensorProto.FLOAT16: DataType.FLOAT16,
    TensorProto.DOUBLE: DataType.FLOAT64,
    TensorProto.INT64: DataType.INT64,
    TensorProto.INT32: DataType.INT32,
    TensorProto.INT16: DataType.INT16,
    TensorProto.INT8: DataType.INT8,
    TensorProto.UINT64: DataType.UINT64,
    TensorProto.UINT32: DataType.UINT32,
    TensorProto.UINT16: DataType.UINT16,
    TensorProto.UINT8: DataType.UINT8,
    TensorProto.BOOL: DataType.UINT8,
    TensorProto.INT4: DataType.INT4,
    TensorProto.UINT4: DataType.UINT4,
}
"""DirectML's types by ONNX's numbers; truth values are 0 and 1 of UINT8."""

ELEMENT_TYPES: Mapping[DataType, int] = {
    data_type: element for element, data_type in DATA_TYPES.items() if element != TensorProto.BOOL
}
"""ONNX's numbers by DirectML's types."""


def type_name(element: int) -> str:
    """Return the name of an ONNX element type as ONNX writes it in lower case: ``float``, ``bfloat16``."""
    known = element in TensorProto.DataType.values()
    return TensorProto.DataType.Name(element).lower() if known else f"type {element}"


def data_type_of(element: int, what: str) -> DataType:
    """Return the type that holds ONNX's elements.

    Args:
        element: ONNX's number of the type.
        what: what has it, for messages.

    Raises:
        NotSupported: DirectML computes with no such type.
    """
    if element not in DATA_TYPES:
        raise NotSupported(f"{what}: elements of type {type_name(element)} are not supported")
    return DATA_TYPES[element]


def as_held(array: Array, data_type: DataType) -> Array:
    """Return an array in the NumPy type that holds a data type: truth values as UINT8, 4 bits one to a byte."""
    return np.ascontiguousarray(array).astype(data_type.numpy, copy=False).reshape(array.shape)
