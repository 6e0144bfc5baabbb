"""Quantization to small integers with a scale and a zero point, and dequantization.

Integer results are computed in float32, operation by operation, since float64 could round a quotient to the other side
of a tie. Float results are computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.reference.registry import Array, reference

F32 = np.float32


def _limits(data_type: DataType) -> tuple[int, int]:
    low = -(2 ** (data_type.bits - 1)) if data_type.is_signed else 0
    return low, low + 2**data_type.bits - 1


def quantized(quotient: Array, zero_point: Array | int, data_type: DataType) -> Array:
    """Round (ties to even), add the zero point, saturate; NaN counts as 0."""
    whole = np.clip(np.nan_to_num(np.rint(quotient), nan=0.0), -(2.0**20), 2.0**20).astype(np.int64)
    return np.clip(whole + np.int64(zero_point), *_limits(data_type)).astype(data_type.numpy)


def _dequantize(values: Array, scale: Array, zero_point: Array | int, data_type: DataType) -> Array:
    difference = values.astype(np.int64) - np.int64(zero_point)
    return (difference.astype(np.float64) * scale.astype(np.float64)).astype(data_type.numpy)


def _or_zero(zero_point: Array | None) -> Array | int:
    return 0 if zero_point is None else zero_point


@reference(descs.ElementWiseQuantizeLinear)
def element_wise_quantize_linear(
    desc: descs.ElementWiseQuantizeLinear, input_tensor: Array, scale_tensor: Array, zero_point_tensor: Array | None
) -> Array:
    """``clamp(round(x / scale) + zero_point)``."""
    quotient = input_tensor.astype(F32) / scale_tensor.astype(F32)
    return quantized(quotient, _or_zero(zero_point_tensor), desc.output_tensor.data_type)


@reference(descs.ElementWiseDequantizeLinear)
def element_wise_dequantize_linear(
    desc: descs.ElementWiseDequantizeLinear, input_tensor: Array, scale_tensor: Array, zero_point_tensor: Array | None
) -> Array:
    """``(x - zero_point) * scale``."""
    return _dequantize(input_tensor, scale_tensor, _or_zero(zero_point_tensor), desc.output_tensor.data_type)


def _enlarged(per_block: Array, sizes: tuple[int, ...]) -> Array:
    """Repeat the entries of each dimension: element i is entry i div (size / entries)."""
    for axis, size in enumerate(sizes):
        per_block = np.repeat(per_block, size // per_block.shape[axis], axis)
    return per_block


@reference(descs.Quantize)
def quantize(desc: descs.Quantize, input_tensor: Array, quantization_tensors: tuple[Array, ...]) -> Array:
    """``clamp(round(x / scale) + zero_point)``, scale and zero point by blocks."""
    scale, *zero = (_enlarged(tensor, input_tensor.shape) for tensor in quantization_tensors)
    quotient = input_tensor.astype(F32) / scale.astype(F32)
    return quantized(quotient, zero[0] if zero else 0, desc.output_tensor.data_type)


@reference(descs.Dequantize)
def dequantize(desc: descs.Dequantize, input_tensor: Array, quantization_tensors: tuple[Array, ...]) -> Array:
    """``(q - zero_point) * scale``, scale and zero point by blocks."""
    scale, *zero = (_enlarged(tensor, input_tensor.shape) for tensor in quantization_tensors)
    return _dequantize(input_tensor, scale, zero[0] if zero else 0, desc.output_tensor.data_type)


@reference(descs.ElementWiseQuantizedLinearAdd)
def element_wise_quantized_linear_add(desc: descs.ElementWiseQuantizedLinearAdd, *tensors: Any) -> Array:
    """``clamp(round(((a - za) * sa + (b - zb) * sb) / s) + z)``; scale and zero point follow each tensor."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = tensors
    first = (a.astype(np.int64) - _or_zero(a_zero)).astype(F32) * a_scale
    second = (b.astype(np.int64) - _or_zero(b_zero)).astype(F32) * b_scale
    return quantized((first + second) / scale, _or_zero(zero), desc.output_tensor.data_type)


@reference(descs.DynamicQuantizeLinear)
def dynamic_quantize_linear(desc: descs.DynamicQuantizeLinear, input_tensor: Array) -> tuple[Array, Array, Array]:
    """The scale that spreads the range, widened to contain 0, over the type; the zero point; the quantized elements."""
    data_type = desc.output_tensor.data_type
    low, high = _limits(data_type)
    values = input_tensor.astype(F32)
    numbers = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
    smallest, largest = min(numbers.min(), F32(0)), max(numbers.max(), F32(0))
    scale = F32(1) if smallest == largest else (largest - smallest) / F32(high - low)
    zero_point = quantized(np.asarray(F32(low) - smallest / scale), 0, data_type)
    scalar_sizes = desc.output_scale_tensor.sizes
    elements = quantized(values / scale, zero_point, data_type)
    return elements, np.full(scalar_sizes, scale, F32), zero_point.reshape(scalar_sizes)
