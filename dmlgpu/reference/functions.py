"""Functions of analysis, element by element: computed by NumPy in float64, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.elementwise import convert, scaled
from dmlgpu.reference.registry import Array, reference

Wide = NDArray[np.float64]

erf: Callable[[Any], Wide] = np.vectorize(math.erf, otypes=[np.float64])
"""The error function of each element."""


def _function(desc_class: Any, function: Callable[[Wide], Wide]) -> Callable[[Any, Array], Array]:
    """Register a function of one number for an operator."""

    @reference(desc_class)
    def evaluate(desc: Any, input_tensor: Array) -> Array:
        return function(scaled(input_tensor, desc.scale_bias)).astype(input_tensor.dtype)

    evaluate.__name__ = desc_class.operator.lower()
    return evaluate


element_wise_acos = _function(descs.ElementWiseAcos, np.arccos)
element_wise_asin = _function(descs.ElementWiseAsin, np.arcsin)
element_wise_atan = _function(descs.ElementWiseAtan, np.arctan)
element_wise_cos = _function(descs.ElementWiseCos, np.cos)
element_wise_sin = _function(descs.ElementWiseSin, np.sin)
element_wise_tan = _function(descs.ElementWiseTan, np.tan)
element_wise_exp = _function(descs.ElementWiseExp, np.exp)
element_wise_log = _function(descs.ElementWiseLog, np.log)
element_wise_erf = _function(descs.ElementWiseErf, erf)
element_wise_sinh = _function(descs.ElementWiseSinh, np.sinh)
element_wise_cosh = _function(descs.ElementWiseCosh, np.cosh)
element_wise_tanh = _function(descs.ElementWiseTanh, np.tanh)
element_wise_asinh = _function(descs.ElementWiseAsinh, np.arcsinh)
element_wise_acosh = _function(descs.ElementWiseAcosh, np.arccosh)
element_wise_atanh = _function(descs.ElementWiseAtanh, np.arctanh)


@reference(descs.ElementWiseAtanYx)
def element_wise_atan_yx(desc: descs.ElementWiseAtanYx, a_tensor: Array, b_tensor: Array) -> Array:
    """The angle of the point (b, a); where both are zeros, by their signs."""
    return np.arctan2(a_tensor.astype(np.float64), b_tensor.astype(np.float64)).astype(a_tensor.dtype)


@reference(descs.ElementWiseConstantPow)
def element_wise_constant_pow(desc: descs.ElementWiseConstantPow, input_tensor: Array) -> Array:
    """``x ** exponent``. NumPy gets an array, since it takes roots for a scalar 0.5, whose zeros have other signs."""
    base = scaled(input_tensor, desc.scale_bias)
    exponent = np.full(base.shape, np.float32(desc.exponent), np.float64)
    return np.power(base, exponent).astype(input_tensor.dtype)


@reference(descs.ElementWisePow)
def element_wise_pow(desc: descs.ElementWisePow, input_tensor: Array, exponent_tensor: Array) -> Array:
    """``x ** exponent``; exact modulo 2**width where both are integers, else in float64.

    An integer's power to a float exponent is that of its float32 value, rounded to float32, converted as CAST does.
    """
    base, dtype = scaled(input_tensor, desc.scale_bias), input_tensor.dtype
    exponent = exponent_tensor.astype(np.float64)
    if dtype.kind == "f":
        return np.power(base, exponent).astype(dtype)
    if exponent_tensor.dtype.kind == "f":
        power = np.power(base.astype(np.float32).astype(np.float64), exponent)
        return convert(power.astype(np.float32), dtype)
    return _integer_power(base.astype(np.int64), exponent_tensor.astype(np.int64)).astype(dtype)


def _integer_power(base: NDArray[np.int64], exponent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Powers modulo 2**64; negative exponents give the integer part of the reciprocal, for 0 all ones."""
    power = np.power(base, np.abs(exponent))
    reciprocal = np.select([base == 0, np.abs(base) == 1], [np.full_like(base, -1), power], 0)
    return np.where(exponent < 0, reciprocal, power)
