"""Activation functions and their gradients, softmax included."""

from __future__ import annotations

import math
from typing import Any

import torch

from dmlgpu import ops
from dmlgpu.frontends.torch.dtypes import bound_as, cast, dtype_of, number_as
from dmlgpu.frontends.torch.operators.reductions import axes_of
from dmlgpu.frontends.torch.operators.registry import aten, check_numbers
from dmlgpu.frontends.torch.operators.transcendental import expm1, log1p
from dmlgpu.ops import directml

_IF = directml.element_wise_if


def _between(x: Any, low: float, high: float) -> Any:
    return (x > low) & (x < high)


def _gate(x: Any) -> Any:
    """Return relu6(x + 3) / 6."""
    return directml.activation_hard_sigmoid(x, alpha=1 / 6, beta=0.5)


# ---- rectifiers ------------------------------------------------------------------------------------------------------


@aten("relu")
def relu(x: Any) -> Any:
    check_numbers(x)
    return directml.element_wise_max(x, 0)


@aten("threshold")
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    check_numbers(x)
    return _IF(x <= threshold, number_as(value, dtype_of(x)), x)


@aten("threshold_backward", fused=True)
def threshold_backward(gradient: Any, x: Any, threshold: Any) -> Any:
    return _IF(x <= threshold, 0, gradient)


@aten("leaky_relu", fused=True)
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    return _IF(x > 0, x, x * negative_slope)


@aten("leaky_relu_backward", wide=True, fused=True)
def leaky_relu_backward(gradient: Any, x: Any, negative_slope: Any, self_is_result: bool) -> Any:
    return _IF(x > 0, gradient, gradient * negative_slope)


@aten("_prelu_kernel", fused=True)
def prelu(x: Any, weight: Any) -> Any:
    return _IF(x > 0, x, x * weight)


@aten("_prelu_kernel_backward", fused=True)
def prelu_backward(gradient: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    is_positive = x > 0
    return _IF(is_positive, gradient, weight * gradient), _IF(is_positive, 0.0, x * gradient)


@aten("rrelu_with_noise_backward")
def rrelu_with_noise_backward(
    gradient: Any, x: Any, noise: Any, lower: float, upper: float, training: bool, self_is_result: bool
) -> Any:
    if training and upper - lower > 1e-6:
        return gradient * noise
    return leaky_relu_backward(gradient, x, (lower + upper) / 2, self_is_result)


@aten("hardtanh")
def hardtanh(x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    low, high = (bound_as(bound, dtype_of(x)) for bound in (min_val, max_val))
    return directml.element_wise_min(directml.element_wise_max(x, low), high)


@aten("hardtanh_backward")
def hardtanh_backward(gradient: Any, x: Any, min_val: Any, max_val: Any) -> Any:
    return _IF((x <= min_val) | (x >= max_val), 0, gradient)


@aten("hardsigmoid")
def hardsigmoid(x: Any) -> Any:
    return _gate(x)


@aten("hardsigmoid_backward")
def hardsigmoid_backward(gradient: Any, x: Any) -> Any:
    return _IF(_between(x, -3.0, 3.0), gradient * (1 / 6), 0.0)


@aten("hardswish", wide=True, fused=True)
def hardswish(x: Any) -> Any:
    return x * _gate(x)


@aten("hardswish_backward", wide=True, fused=True)
def hardswish_backward(gradient: Any, x: Any) -> Any:
    inner = gradient * (x * (1 / 3) + 0.5)
    return _IF(x <= -3.0, 0.0, _IF(x < 3.0, inner, gradient))


@aten("hardshrink")
def hardshrink(x: Any, lambd: Any = 0.5) -> Any:
    return _IF((x >= -lambd) & (x <= lambd), 0.0, x)


@aten("softshrink")
def softshrink(x: Any, lambd: Any = 0.5) -> Any:
    return _IF(x > lambd, x - lambd, _IF(x < -lambd, x + lambd, x * 0.0))


@aten("hardshrink_backward", "softshrink_backward")
def shrink_backward(gradient: Any, x: Any, lambd: Any) -> Any:
    return _IF((x >= -lambd) & (x <= lambd), 0.0, gradient)


# ---- exponential units -----------------------------------------------------------------------------------------------


@aten("elu", wide=True, fused=True)
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return _IF(x > 0, x * scale, expm1(x * input_scale) * (alpha * scale))


@aten("elu_backward", wide=True, fused=True)
def elu_backward(gradient: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    slope = input_scale * scale
    below = (
        x * input_scale + alpha * slope if is_result else directml.element_wise_exp(x * input_scale) * (alpha * slope)
    )
    return gradient * _IF(x > 0, scale, below)


@aten("celu", wide=True, fused=True)
def celu(x: Any, alpha: Any = 1.0) -> Any:
    return _IF(x > 0, x, expm1(x * (1 / alpha)) * alpha)


@aten("softplus", wide=True, fused=True)
def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    steep = x * beta
    return _IF(steep > threshold, x, log1p(directml.element_wise_exp(steep)) * (1 / beta))


@aten("softplus_backward", wide=True, fused=True)
def softplus_backward(gradient: Any, x: Any, beta: Any, threshold: Any) -> Any:
    steep = x * beta
    return _IF(steep > threshold, gradient, gradient * directml.activation_sigmoid(steep))


@aten("log_sigmoid_forward", wide=True, fused=True)
def log_sigmoid_forward(x: Any) -> tuple[Any, Any]:
    """Return log(sigmoid(x)), and exp(-abs(x)) for the gradient."""
    decay = directml.element_wise_exp(-directml.element_wise_abs(x))
    return directml.element_wise_min(x, 0.0) - log1p(decay), decay


@aten("log_sigmoid_backward", wide=True, fused=True)
def log_sigmoid_backward(gradient: Any, x: Any, buffer: Any) -> Any:
    return gradient * directml.activation_sigmoid(-x)


# ---- smooth rectifiers -----------------------------------------------------------------------------------------------


@aten("silu", wide=True, fused=True)
def silu(x: Any) -> Any:
    return x * directml.activation_sigmoid(x)


@aten("silu_backward", wide=True, fused=True)
def silu_backward(gradient: Any, x: Any) -> Any:
    gate = directml.activation_sigmoid(x)
    return gradient * gate * (x * (1.0 - gate) + 1.0)


@aten("mish", wide=True, fused=True)
def mish(x: Any) -> Any:
    return x * directml.element_wise_tanh(softplus(x))


@aten("mish_backward", wide=True, fused=True)
def mish_backward(gradient: Any, x: Any) -> Any:
    tanh = directml.element_wise_tanh(softplus(x))
    return gradient * (tanh + x * directml.activation_sigmoid(x) * (1.0 - tanh * tanh))


_TANH_SLOPE = math.sqrt(2 / math.pi)
_CUBE = 0.044715


@aten("gelu", wide=True, fused=True)
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate)


@aten("gelu_backward", wide=True, fused=True)
def gelu_backward(gradient: Any, x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        square = x * x
        tanh = directml.element_wise_tanh(x * (square * _CUBE + 1.0) * _TANH_SLOPE)
        inner = (square * (3 * _CUBE) + 1.0) * _TANH_SLOPE
        return gradient * ((tanh + 1.0) * 0.5 + x * 0.5 * (1.0 - tanh * tanh) * inner)
    probability = (directml.element_wise_erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    density = directml.element_wise_exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return gradient * (probability + x * density)


# ---- gates -----------------------------------------------------------------------------------------------------------


def _halves(x: Any, dim: int) -> tuple[Any, Any, int]:
    axis = dim % x.ndim
    first, second = ops.split(x, 2, axis)
    return first, second, axis


@aten("glu", wide=True, fused=True)
def glu(x: Any, dim: int = -1) -> Any:
    value, gate, _ = _halves(x, dim)
    return value * directml.activation_sigmoid(gate)


@aten("glu_backward", wide=True, fused=True)
def glu_backward(gradient: Any, x: Any, dim: int) -> Any:
    value, gate, axis = _halves(x, dim)
    opened = directml.activation_sigmoid(gate)
    to_value = gradient * opened
    return ops.concatenate([to_value, to_value * value * (1.0 - opened)], axis)


@aten("sigmoid_backward", fused=True)
def sigmoid_backward(gradient: Any, result: Any) -> Any:
    return gradient * (1.0 - result) * result


@aten("tanh_backward")
def tanh_backward(gradient: Any, result: Any) -> Any:
    return gradient * (1.0 - result * result)


@aten("logit_backward")
def logit_backward(gradient: Any, x: Any, eps: float | None = None) -> Any:
    """Return the gradient, 0 outside of the bounds; NaN outside of 0 to 1 without bounds."""
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)
    return _IF((x < low) | (x > high), outside, gradient / (x * (1.0 - x)))


# ---- softmax ---------------------------------------------------------------------------------------------------------


def _along(function: Any, x: Any, dim: int) -> Any:
    """Compute a function along an axis; a scalar has one, and nothing happens without elements."""
    if not x.size:
        return x
    return function(x, axis=axes_of(x, dim)[0]) if x.ndim else function(x.reshape(1), axis=0).reshape(())


def _as_float32(x: Any, half_to_float: bool) -> Any:
    return cast(x, torch.float32) if half_to_float else x


@aten("_softmax")
def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    return _along(ops.softmax, _as_float32(x, half_to_float), dim)


@aten("_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    return _along(ops.log_softmax, _as_float32(x, half_to_float), dim)


@aten("_softmax_backward_data", wide=True, fused=True)
def softmax_backward(gradient: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
    product = gradient * output
    return cast(product - output * _summed(product, dim), input_dtype)


@aten("_log_softmax_backward_data", wide=True)
def log_softmax_backward(gradient: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
    return cast(gradient - directml.element_wise_exp(output) * _summed(gradient, dim), input_dtype)


def _summed(x: Any, dim: int) -> Any:
    return ops.sum(x, axis=dim % x.ndim, keepdims=True) if x.ndim else x
