"""Arithmetic, extremes, interpolation, rounding and integer functions of each element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dmlgpu.catalog.enums import BFLOAT16, DataType, RoundingMode
from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.registry import (
    Promotion,
    Unsupported,
    aten,
    check_numbers,
    common_dtype,
    computation_dtype,
)
from dmlgpu.ops import directml
from dmlgpu.tensors.arithmetic import floor_quotient, power
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.tensor import Tensor

# ---- sums, products, quotients ---------------------------------------------------------------------------------------


def scaled(x: Any, factor: Any) -> Any:
    """Return a tensor or a number times a number."""
    if factor == 1:
        return x
    return directml.element_wise_multiply(x, factor) if isinstance(x, Tensor) else x * factor


@aten("add.Tensor", "add.Scalar", promotes=Promotion.DEFAULT)
def add(x: Any, other: Any, alpha: Any = 1) -> Any:
    return directml.element_wise_add(x, scaled(other, alpha))


@aten("sub.Tensor", "sub.Scalar", promotes=Promotion.DEFAULT)
def sub(x: Any, other: Any, alpha: Any = 1) -> Any:
    return directml.element_wise_subtract(x, scaled(other, alpha))


@aten("rsub.Tensor", "rsub.Scalar", promotes=Promotion.DEFAULT)
def rsub(x: Any, other: Any, alpha: Any = 1) -> Any:
    return directml.element_wise_subtract(other, scaled(x, alpha))


aten("mul.Tensor", "mul.Scalar", promotes=Promotion.DEFAULT)(directml.element_wise_multiply)
aten("div.Tensor", "div.Scalar", promotes=Promotion.INT_TO_FLOAT)(directml.element_wise_divide)


@aten("floor_divide", "floor_divide.Scalar", promotes=Promotion.DEFAULT)
def floor_divide(x: Any, other: Any) -> Any:
    return floor_quotient("floor_divide", x, other)


def trunc_divide(x: Any, other: Any) -> Any:
    """Divide and round towards zero."""
    quotient = directml.element_wise_divide(x, other)
    if not quotient.data_type.is_float:
        return quotient
    return directml.element_wise_round(quotient, rounding_mode=RoundingMode.TOWARD_ZERO)


def _stand_in(operand: Any) -> Any:
    """Return a meta tensor that promotes like a tensor; return a number unchanged."""
    if not isinstance(operand, Tensor):
        return operand
    return torch.empty((1,) * operand.ndim, dtype=dtype_of(operand), device="meta")


_DIVISIONS: Mapping[str | None, Callable[..., Any]] = {
    None: directml.element_wise_divide,
    "floor": floor_divide,
    "trunc": trunc_divide,
}


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Divide; only a division without rounding turns integers into floats."""
    rule = Promotion.DEFAULT if rounding_mode else Promotion.INT_TO_FLOAT
    dtype = computation_dtype(rule, common_dtype([_stand_in(x), _stand_in(other)]))
    x, other = (cast(operand, dtype) if isinstance(operand, Tensor) else operand for operand in (x, other))
    return _DIVISIONS[rounding_mode](x, other)


aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", promotes=Promotion.DEFAULT)(
    directml.element_wise_modulus_floor
)


aten("fmod.Tensor", "fmod.Scalar", promotes=Promotion.DEFAULT)(directml.element_wise_modulus_truncate)


@aten("addcmul", promotes=Promotion.DEFAULT, wide=True)
def addcmul(x: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return directml.element_wise_add(x, directml.element_wise_multiply(scaled(tensor1, value), tensor2))


@aten("addcdiv", promotes=Promotion.DEFAULT, wide=True)
def addcdiv(x: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    if not x.data_type.is_float:
        raise Unsupported("integers are not divided")
    return directml.element_wise_add(x, directml.element_wise_divide(scaled(tensor1, value), tensor2))


@aten("lerp.Scalar", "lerp.Tensor", wide=True)
def lerp(x: Any, end: Any, weight: Any) -> Any:
    """Interpolate from the nearer end; weights 0 and 1 give the ends exactly."""
    if isinstance(weight, Tensor) and not weight.ndim and weight.data_type is not x.data_type:
        # as a number, a scalar tensor of any dtype
        return lerp(widened(x), widened(end), weight.astype(DataType.FLOAT32)).astype(x.data_type)
    span = directml.element_wise_subtract(end, x)
    if not isinstance(weight, Tensor):
        if abs(weight) < 0.5:
            return x + span * weight
        return end - span * (1 - weight)
    near = directml.element_wise_add(x, span * weight)
    far = directml.element_wise_subtract(end, span * (1 - weight))
    return directml.element_wise_if(directml.element_wise_abs(weight) < 0.5, near, far)


# ---- powers ----------------------------------------------------------------------------------------------------------


@aten("pow.Tensor_Scalar", promotes=Promotion.DEFAULT)
def pow_by_number(x: Any, exponent: Any) -> Any:
    """Raise to a number; small integers by multiplication, as PyTorch does."""
    if exponent in {1, 2, 3}:
        return math.prod([x] * int(exponent - 1), start=x)
    if x.data_type.is_float:
        direct = {0.5: directml.element_wise_sqrt, -1: directml.element_wise_recip}.get(exponent)
        return direct(x) if direct else directml.element_wise_constant_pow(x, exponent=float(exponent))
    if exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return power("pow", x, exponent)


@aten("pow.Scalar", "pow.Tensor_Tensor", promotes=Promotion.DEFAULT)
def pow_of_tensors(x: Any, exponent: Any) -> Any:
    tensor = x if isinstance(x, Tensor) else exponent
    if tensor.data_type.is_float or tensor.is_boolean:
        return directml.element_wise_pow(x, exponent)
    return power("pow", x, exponent)


# ---- signs, extremes -------------------------------------------------------------------------------------------------


@aten("neg")
def neg(x: Any) -> Any:
    return -x


@aten("abs")
def absolute(x: Any) -> Any:
    check_numbers(x)
    return abs(x)


aten("sign", "sgn", promotes=Promotion.DEFAULT)(directml.element_wise_sign)
aten("reciprocal", promotes=Promotion.INT_TO_FLOAT)(directml.element_wise_recip)
aten("maximum", promotes=Promotion.DEFAULT)(directml.element_wise_max)
aten("minimum", promotes=Promotion.DEFAULT)(directml.element_wise_min)


def _beside_nan(function: Any, x: Any, other: Any) -> Any:
    """Return the extreme of two elements; if one is NaN, the other."""
    extreme = function(x, other)
    if not extreme.data_type.is_float:
        return extreme
    extreme = directml.element_wise_if(directml.element_wise_is_nan(x), other, extreme)
    return directml.element_wise_if(directml.element_wise_is_nan(other), x, extreme)


@aten("fmax", promotes=Promotion.DEFAULT, fused=True)
def fmax(x: Any, other: Any) -> Any:
    return _beside_nan(directml.element_wise_max, x, other)


@aten("fmin", promotes=Promotion.DEFAULT, fused=True)
def fmin(x: Any, other: Any) -> Any:
    return _beside_nan(directml.element_wise_min, x, other)


_BOUNDED = ("self", "min", "max")


@aten("clamp", "clamp.Tensor", promotes=Promotion.DEFAULT, operands=_BOUNDED)
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """Limit elements; the upper bound wins over the lower one."""
    if min is not None:
        x = directml.element_wise_max(x, min)
    return x if max is None else directml.element_wise_min(x, max)


@aten("clamp_min", "clamp_min.Tensor", promotes=Promotion.DEFAULT, operands=_BOUNDED)
def clamp_min(x: Any, min: Any) -> Any:
    return directml.element_wise_max(x, min)


@aten("clamp_max", "clamp_max.Tensor", promotes=Promotion.DEFAULT, operands=_BOUNDED)
def clamp_max(x: Any, max: Any) -> Any:
    return directml.element_wise_min(x, max)


# ---- bits of floats --------------------------------------------------------------------------------------------------

_BITS = {
    DataType.FLOAT32: (DataType.INT32, 23, 127),
    DataType.FLOAT16: (DataType.INT16, 10, 15),
    BFLOAT16: (DataType.INT16, 7, 127),
}
"""Integer type, bits of the significand and exponent bias of floats."""


def bits_of(x: Any) -> Any:
    """Return floats read as signed integers."""
    return x._same(_BITS[x.data_type][0])


@aten("signbit")
def signbit(x: Any) -> Any:
    return (bits_of(x) if x.data_type.is_float else x) < 0


@aten("copysign.Tensor", "copysign.Scalar", promotes=Promotion.INT_TO_FLOAT)
def copysign(x: Any, other: Any) -> Any:
    if not isinstance(other, Tensor):
        magnitude = directml.element_wise_abs(x)
        return -magnitude if math.copysign(1, other) < 0 else magnitude
    magnitude = directml.element_wise_abs(x) if isinstance(x, Tensor) else abs(x)
    negative = -magnitude
    return directml.element_wise_if(bits_of(other) < 0, negative, magnitude)


@aten("nextafter", promotes=Promotion.DEFAULT, fused=True)
def nextafter(x: Any, other: Any) -> Any:
    """Return the next float towards another: one step of its bits."""
    kind = x.data_type
    integers = _BITS[kind][0]
    bits = bits_of(x)
    away = ((other > x) == (x > 0)).astype(integers) * 2 - 1
    smallest = directml.element_wise_if(other > 0, bits * 0 + 1, bits * 0 + _lowest_with_one(integers))
    stepped = directml.element_wise_if(x == 0, smallest, bits + away)._same(kind)
    result = directml.element_wise_if(x == other, other, stepped)
    return directml.element_wise_if(
        directml.element_wise_is_nan(x) | directml.element_wise_is_nan(other), x + other, result
    )


def _lowest_with_one(integers: DataType) -> int:
    """Return the bits of the negative float next to 0."""
    return -(1 << (integers.bits - 1)) + 1


@aten("frexp.Tensor")
def frexp(x: Any) -> tuple[Any, Any]:
    """Split floats into significands of magnitude 0.5 to 1 and exponents; denormal ones are scaled first."""
    kind = x.data_type
    integers, width, bias = _BITS[kind]
    mask = (1 << (integers.bits - 1 - width)) - 1
    tiny = directml.element_wise_abs(x) < 2.0 ** (1 - bias)
    normal = directml.element_wise_if(tiny, x * 2.0 ** (width + 1), x)
    bits = bits_of(normal)
    field = (bits >> width) & mask
    is_plain = (normal != 0) & (field != mask)
    exponent = field - (bias - 1) - tiny.astype(integers) * (width + 1)
    significand = ((bits & ~(mask << width)) | ((bias - 1) << width))._same(kind)
    return (
        directml.element_wise_if(is_plain, significand, x),
        directml.element_wise_if(is_plain, exponent, 0).astype(DataType.INT32),
    )


# ---- rounding --------------------------------------------------------------------------------------------------------


def rounded(x: Any, mode: RoundingMode) -> Any:
    return directml.element_wise_round(x, rounding_mode=mode) if x.data_type.is_float else x


@aten("floor")
def floor(x: Any) -> Any:
    return directml.element_wise_floor(x) if x.data_type.is_float else x


@aten("ceil")
def ceil(x: Any) -> Any:
    return directml.element_wise_ceil(x) if x.data_type.is_float else x


@aten("trunc")
def trunc(x: Any) -> Any:
    return rounded(x, RoundingMode.TOWARD_ZERO)


@aten("round")
def nearest(x: Any) -> Any:
    return rounded(x, RoundingMode.HALVES_TO_NEAREST_EVEN)


@aten("round.decimals")
def nearest_decimals(x: Any, *, decimals: int = 0) -> Any:
    if not x.data_type.is_float or not decimals:
        return nearest(x)
    factor = 10.0 ** abs(decimals)
    if decimals > 0:
        return nearest(x * factor) / factor
    return nearest(x / factor) * factor


@aten("frac")
def frac(x: Any) -> Any:
    return x - trunc(x)


# ---- other functions of two numbers ----------------------------------------------------------------------------------


@aten("heaviside", promotes=Promotion.DEFAULT, fused=True)
def heaviside(x: Any, values: Any) -> Any:
    return directml.element_wise_if(x == 0, values, (x > 0).astype(x.data_type))


@aten("hypot", promotes=Promotion.DEFAULT, wide=True, fused=True)
def hypot(x: Any, other: Any) -> Any:
    """Return the length of a vector without overflow; infinite if a component is infinite, even with NaN."""
    first, second = directml.element_wise_abs(x), directml.element_wise_abs(other)
    long, short = directml.element_wise_max(first, second), directml.element_wise_min(first, second)
    ratio = directml.element_wise_if(long == 0, 0.0, short / long)
    length = long * directml.element_wise_sqrt(ratio * ratio + 1)
    return directml.element_wise_if((first == math.inf) | (second == math.inf), math.inf, length)


@aten("gcd", promotes=Promotion.DEFAULT, fused=True)
def gcd(x: Any, other: Any) -> Any:
    """Return the greatest common divisor by Euclid's algorithm, in as many steps as the integer type may need."""
    a, b = abs(x), abs(other)
    for _ in range(math.ceil(a.data_type.bits * math.log(2) / math.log((1 + math.sqrt(5)) / 2))):
        is_done = b == 0
        rest = directml.element_wise_modulus_truncate(a, b)
        a, b = directml.element_wise_if(is_done, a, b), directml.element_wise_if(is_done, 0, rest)
    return abs(a)


@aten("lcm", promotes=Promotion.DEFAULT, fused=True)
def lcm(x: Any, other: Any) -> Any:
    """Return the least common multiple; that of narrow integers in int32, of which the low bits stay."""
    if x.data_type.bits < 32:
        return lcm(x.astype(DataType.INT32), other.astype(DataType.INT32))
    divisor = gcd(x, other)
    safe = directml.element_wise_if(divisor == 0, 1, divisor)
    return abs((x // safe) * other)
