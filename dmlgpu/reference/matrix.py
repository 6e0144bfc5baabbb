"""Matrix products: floats in float64, integers exactly.

Quantized results are computed in float32 after the exact sum, operation by operation, since float64 could round a
quotient to the other side of a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import MatrixTransform
from dmlgpu.reference.elementwise import attribute
from dmlgpu.reference.quantization import quantized
from dmlgpu.reference.registry import Array, activated, reference

Optional = Array | None


def _transformed(matrix: Array, transform: MatrixTransform) -> Array:
    return matrix.swapaxes(-1, -2) if transform is MatrixTransform.TRANSPOSE else matrix


@reference(descs.Gemm)
def gemm(desc: descs.Gemm, a_tensor: Array, b_tensor: Array, c_tensor: Optional) -> Array:
    """``activation(alpha * A' @ B' + beta * C)``, rounded before the activation; a beta of 0, as float32, drops C."""
    a = _transformed(a_tensor.astype(np.float64), desc.trans_a)
    b = _transformed(b_tensor.astype(np.float64), desc.trans_b)
    total = attribute(desc.alpha) * (a @ b)
    if c_tensor is not None and attribute(desc.beta) != 0:
        total = total + attribute(desc.beta) * c_tensor.astype(np.float64)
    rounded = total.astype(desc.output_tensor.data_type.numpy)
    return activated(rounded, desc.fused_activation, desc.output_tensor)


def _rows(parameter: Array) -> Array:
    """Reshape a scale or zero point of rows: {.., M, 1}, or {M}."""
    return parameter.reshape(-1, 1)


def _columns(parameter: Array) -> Array:
    """Reshape a scale or zero point of columns: {.., 1, N}, or {N}."""
    return parameter.reshape(1, -1)


def _less_zero(values: Array, zero_point: Optional, shape: Any) -> Array:
    """Subtract zero points, in integers wide enough for the differences."""
    wide = values.astype(np.int64)
    return wide if zero_point is None else wide - shape(zero_point).astype(np.int64)


def _sums(a: Array, a_zero: Optional, b: Array, b_zero: Optional) -> Array:
    """Return the integer product in int64, which holds sums of 8-bit products of any length."""
    return _less_zero(a, a_zero, _rows) @ _less_zero(b, b_zero, _columns)


@reference(descs.MatrixMultiplyInteger)
def matrix_multiply_integer(
    desc: descs.MatrixMultiplyInteger, a_tensor: Array, a_zero: Optional, b_tensor: Array, b_zero: Optional
) -> Array:
    """``(A - zero) @ (B - zero)``, modulo 2**32."""
    return _sums(a_tensor, a_zero, b_tensor, b_zero).astype(np.int32)


@reference(descs.MatrixMultiplyIntegerToFloat)
def matrix_multiply_integer_to_float(desc: descs.MatrixMultiplyIntegerToFloat, *tensors: Any) -> Array:
    """``((A - zero) @ (B - zero)) * (scale * scale) + bias``; 8-bit sums modulo 2**32, wider ones in float64.

    The product of the scales is rounded to float32.
    """
    a, a_scale, a_zero, b, b_scale, b_zero, bias = tensors
    if desc.a_tensor.data_type.bits == 8:
        total = _sums(a, a_zero, b, b_zero).astype(np.int32).astype(np.float64)
    else:
        total = _less_zero(a, a_zero, _rows).astype(np.float64) @ _less_zero(b, b_zero, _columns).astype(np.float64)
    total = total * (_rows(a_scale).astype(np.float32) * _columns(b_scale).astype(np.float32)).astype(np.float64)
    if bias is not None:
        total = total + bias
    return total.astype(desc.output_tensor.data_type.numpy)


@reference(descs.QuantizedLinearMatrixMultiply)
def quantized_linear_matrix_multiply(desc: descs.QuantizedLinearMatrixMultiply, *tensors: Any) -> Array:
    """``clamp(round((A - zero) @ (B - zero) * (scale * scale) / scale) + zero)``, ties to even; NaN counts
    as 0."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = tensors
    total = _sums(a, a_zero, b, b_zero).astype(np.int32).astype(np.float32)
    real = total * (_rows(a_scale) * _columns(b_scale)) / _rows(scale)
    return quantized(real, 0 if zero is None else _rows(zero), desc.output_tensor.data_type)
