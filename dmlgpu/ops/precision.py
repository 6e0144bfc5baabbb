"""Operands of any dtype that are computed in float32, and results in float16 or bfloat16 for operands of it."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.tensors.array_like import convert_float64
from dmlgpu.tensors.calls import caller, tensor_of
from dmlgpu.tensors.tensor import Tensor


def in_float32(name: str, value: Any) -> Tensor:
    """Return an operand in float32: integers and booleans too, as NumPy has it."""
    x: Tensor = convert_float64(caller(), tensor_of(name, value), DataType.FLOAT32)
    return x if x.data_type is DataType.FLOAT32 else x.astype(DataType.FLOAT32)


def result_type(*operands: Any) -> DataType:
    """Return the dtype of results: float16 or bfloat16 if all operands are, else float32."""
    first: DataType | None = getattr(operands[0], "data_type", None)
    is_kept = first is not None and first.is_reduced_float
    is_kept = is_kept and all(getattr(operand, "data_type", None) is first for operand in operands)
    return first if first is not None and is_kept else DataType.FLOAT32


def result_in(data_type: DataType, result: Tensor) -> Tensor:
    """Return a float32 result in float16 or bfloat16 if that is the dtype of results."""
    return result.astype(data_type) if data_type.is_reduced_float else result
