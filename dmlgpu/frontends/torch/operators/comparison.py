"""Comparisons, logic, bits, and selection by masks of the same shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dmlgpu import ops
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.frontends.torch.dtypes import cast, dtype_of, number_as
from dmlgpu.frontends.torch.operators.registry import Promotion, aten, check_integers
from dmlgpu.ops import directml
from dmlgpu.tensors.tensor import Tensor


def as_mask(x: Any) -> Any:
    """Return a bool tensor of nonzero elements; convert a number to a boolean."""
    return cast(x, torch.bool) if isinstance(x, Tensor) else bool(x)


# ---- comparisons -----------------------------------------------------------------------------------------------------

_COMPARISONS = {
    "eq": directml.element_wise_logical_equals,
    "gt": directml.element_wise_logical_greater_than,
    "ge": directml.element_wise_logical_greater_than_or_equal,
    "lt": directml.element_wise_logical_less_than,
    "le": directml.element_wise_logical_less_than_or_equal,
}
for _name, _function in _COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar", promotes=Promotion.ALWAYS_BOOL)(_function)


@aten("ne.Tensor", "ne.Scalar", promotes=Promotion.ALWAYS_BOOL)
def ne(x: Any, other: Any) -> Any:
    return directml.element_wise_logical_not(directml.element_wise_logical_equals(x, other))


@aten("isnan")
def isnan(x: Any) -> Any:
    return ops.isnan(x)


@aten("isinf")
def isinf(x: Any) -> Any:
    return ops.isinf(x)


def _is_infinity(x: Any, mode: IsInfinityMode) -> Any:
    return directml.element_wise_is_infinity(x, infinity_mode=mode) if x.data_type.is_float else ops.isinf(x)


@aten("isposinf")
def isposinf(x: Any) -> Any:
    return _is_infinity(x, IsInfinityMode.POSITIVE)


@aten("isneginf")
def isneginf(x: Any) -> Any:
    return _is_infinity(x, IsInfinityMode.NEGATIVE)


@aten("isfinite", fused=True)
def isfinite(x: Any) -> Any:
    return ops.isfinite(x)


@aten("isclose", promotes=Promotion.ALWAYS_BOOL)
def isclose(x: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether elements are equal, or finite and within both tolerances."""
    like = x if isinstance(x, Tensor) else other
    x, other = (like._beside(value, like._type) for value in (x, other))
    equal = x == other
    if not x.data_type.is_float:
        if not rtol and not atol:
            return equal
        x, other = x.astype("float32"), other.astype("float32")
    allowed = directml.element_wise_abs(other) * rtol + atol
    error = directml.element_wise_abs(x - other)
    close = equal | (ops.isfinite(error) & (error <= allowed))
    return close | (ops.isnan(x) & ops.isnan(other)) if equal_nan else close


# ---- logic -----------------------------------------------------------------------------------------------------------

_CONNECTIVES: Mapping[str, Callable[..., Any]] = {
    "logical_and": directml.element_wise_logical_and,
    "logical_or": directml.element_wise_logical_or,
    "logical_xor": directml.element_wise_logical_xor,
}


def _connective(function: Any) -> Any:
    def compute(x: Any, other: Any) -> Any:
        return function(as_mask(x), as_mask(other))

    return compute


for _name, _function in _CONNECTIVES.items():
    aten(_name)(_connective(_function))


@aten("logical_not")
def logical_not(x: Any) -> Any:
    return directml.element_wise_logical_not(as_mask(x))


# ---- bits ------------------------------------------------------------------------------------------------------------

_BITWISE: Mapping[str, Callable[..., Any]] = {
    "bitwise_and": directml.element_wise_bit_and,
    "bitwise_or": directml.element_wise_bit_or,
    "bitwise_xor": directml.element_wise_bit_xor,
}


def _bitwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of integers and booleans that rejects floats."""

    def checked(x: Any, other: Any) -> Any:
        for operand in (x, other):
            if isinstance(operand, Tensor):
                check_integers(operand)
        return function(x, other)

    return checked


for _name, _function in _BITWISE.items():
    _names = (f"{_name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor"))
    aten(*_names, promotes=Promotion.DEFAULT)(_bitwise(_function))


@aten("bitwise_not")
def bitwise_not(x: Any) -> Any:
    check_integers(x)
    return ~x


_SHIFTS = "Tensor", "Tensor_Scalar", "Scalar_Tensor"


@aten(*(f"bitwise_left_shift.{kind}" for kind in _SHIFTS), promotes=Promotion.DEFAULT)
def bitwise_left_shift(x: Any, other: Any) -> Any:
    return x << other


@aten(*(f"bitwise_right_shift.{kind}" for kind in _SHIFTS), promotes=Promotion.DEFAULT)
def bitwise_right_shift(x: Any, other: Any) -> Any:
    return x >> other


aten("__lshift__.Tensor", "__lshift__.Scalar", promotes=Promotion.DEFAULT)(bitwise_left_shift)
aten("__rshift__.Tensor", "__rshift__.Scalar", promotes=Promotion.DEFAULT)(bitwise_right_shift)


# ---- selection -------------------------------------------------------------------------------------------------------


@aten("where.self", promotes=Promotion.DEFAULT, operands=("self", "other"))
def where(condition: Any, x: Any, other: Any) -> Any:
    if not isinstance(condition, Tensor):
        chosen, ignored = (x, other) if condition else (other, x)
        return directml.element_wise_if(_zero_mask(ignored), ignored, chosen)
    if not isinstance(x, Tensor) and not isinstance(other, Tensor):
        x = ops.full((), x, dtype="float32" if isinstance(x, float) else None, device=condition.device)
    return directml.element_wise_if(as_mask(condition), x, other)


def _zero_mask(x: Any) -> Any:
    """Return a mask of the sizes of a tensor that is false throughout."""
    return ops.full_like(x, False, dtype="bool")


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """Replace the elements under a mask by a number."""
    dtype = dtype_of(x)
    value = cast(value, dtype) if isinstance(value, Tensor) else number_as(value, dtype)
    return directml.element_wise_if(as_mask(mask), value, x)


@aten("nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Replace NaN and infinities by numbers, by default 0 and the largest finite ones."""
    if not x.data_type.is_float:
        return x
    limits = torch.finfo(dtype_of(x))
    result = directml.element_wise_if(x == math.inf, limits.max if posinf is None else posinf, x)
    result = directml.element_wise_if(x == -math.inf, limits.min if neginf is None else neginf, result)
    return directml.element_wise_if(directml.element_wise_is_nan(x), 0.0 if nan is None else nan, result)


@aten("equal", reads=True)
def equal(x: Any, other: Any) -> bool:
    """Return whether two tensors have the same shape and elements."""
    if x.sizes != other.sizes:
        return False
    return not x.size or bool(ops.all(directml.element_wise_logical_equals(x, cast(other, dtype_of(x)))).item())


@aten("_assert_async", "_assert_async.msg", reads=True)
def assert_async(x: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Check that the only element of a tensor is not 0. Unlike CUDA's, this waits for the element.

    Raises:
        RuntimeError: If it is 0, with the message.
    """
    if not x.item():
        raise RuntimeError(assert_msg)
