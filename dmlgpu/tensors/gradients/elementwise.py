"""Gradient rules of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dmlgpu.tensors import directml as operators
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import (
    Gradients,
    rule,
    times,
    truth,
    where,
)
from dmlgpu.tensors.strided import TensorBase

directml: Any = operators  # whose functions are made at first use


def _sigmoid(x: Any) -> Any:
    return directml.activation_sigmoid(x)


def _swish_slope(x: Any, scale: float) -> Any:
    sigmoid = _sigmoid(x * scale)
    return sigmoid + x * scale * sigmoid * (1 - sigmoid)


def _hard_sigmoid_slope(x: Any, desc: Any) -> Any:
    value = x * desc.alpha + desc.beta
    return truth(value > 0, x) * truth(value < 1, x) * desc.alpha


def _power_slope(x: Any, exponent: float) -> Any:
    if exponent == 0:
        return x**0.0 * 0.0  # also of infinite numbers
    return x**0.0 if exponent == 1 else exponent * (x if exponent == 2 else x ** (exponent - 1))


_SLOPES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "ACTIVATION_CELU": lambda x, y, d: where(x >= 0, 1.0, directml.element_wise_exp(x / d.alpha)),
    "ACTIVATION_ELU": lambda x, y, d: where(x > 0, 1.0, y + d.alpha),
    "ACTIVATION_GELU": lambda x, y, d: (
        0.5 * (1 + directml.element_wise_erf(x * math.sqrt(0.5)))
        + x * directml.element_wise_exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    ),
    "ACTIVATION_HARD_SIGMOID": lambda x, y, d: _hard_sigmoid_slope(x, d),
    "ACTIVATION_HARD_SWISH": lambda x, y, d: (
        directml.activation_hard_sigmoid(x, alpha=d.alpha, beta=d.beta) + x * _hard_sigmoid_slope(x, d)
    ),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x, y, d: _sigmoid(x * d.beta) * (d.alpha * d.beta),
    "ACTIVATION_SCALED_ELU": lambda x, y, d: where(
        x > 0, float(d.gamma), directml.element_wise_exp(x) * (d.alpha * d.gamma)
    ),
    "ACTIVATION_SCALED_TANH": lambda x, y, d: (1 - directml.element_wise_tanh(x * d.beta) ** 2.0) * (d.alpha * d.beta),
    "ACTIVATION_SHRINK": lambda x, y, d: truth(abs(x) > d.threshold, x),
    "ACTIVATION_SIGMOID": lambda x, y, d: y * (1 - y),
    "ACTIVATION_SOFTPLUS": lambda x, y, d: _sigmoid(x * d.steepness),
    "ACTIVATION_SOFTSIGN": lambda x, y, d: (1 + abs(x)) ** -2.0,
    "ACTIVATION_SWISH": lambda x, y, d: _swish_slope(x, d.sigmoid_input_scale),
    "ACTIVATION_TANH": lambda x, y, d: 1 - y * y,
    "ACTIVATION_THRESHOLDED_RELU": lambda x, y, d: truth(x > d.alpha, x),
    "ELEMENT_WISE_ABS": lambda x, y, d: directml.element_wise_sign(x),
    "ELEMENT_WISE_ACOS": lambda x, y, d: -1 / directml.element_wise_sqrt(1 - x * x),
    "ELEMENT_WISE_ACOSH": lambda x, y, d: 1 / directml.element_wise_sqrt(x * x - 1),
    "ELEMENT_WISE_ASIN": lambda x, y, d: 1 / directml.element_wise_sqrt(1 - x * x),
    "ELEMENT_WISE_ASINH": lambda x, y, d: (x * x + 1) ** -0.5,
    "ELEMENT_WISE_ATAN": lambda x, y, d: 1 / (1 + x * x),
    "ELEMENT_WISE_ATANH": lambda x, y, d: 1 / (1 - x * x),
    "ELEMENT_WISE_CONSTANT_POW": lambda x, y, d: _power_slope(x, d.exponent),
    "ELEMENT_WISE_COS": lambda x, y, d: -directml.element_wise_sin(x),
    "ELEMENT_WISE_COSH": lambda x, y, d: directml.element_wise_sinh(x),
    "ELEMENT_WISE_ERF": lambda x, y, d: directml.element_wise_exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "ELEMENT_WISE_EXP": lambda x, y, d: y,
    "ELEMENT_WISE_LOG": lambda x, y, d: 1 / x,
    "ELEMENT_WISE_RECIP": lambda x, y, d: -(y * y),
    "ELEMENT_WISE_SIN": lambda x, y, d: directml.element_wise_cos(x),
    "ELEMENT_WISE_SINH": lambda x, y, d: directml.element_wise_cosh(x),
    "ELEMENT_WISE_SQRT": lambda x, y, d: 0.5 / y,
    "ELEMENT_WISE_TAN": lambda x, y, d: 1 + y * y,
    "ELEMENT_WISE_TANH": lambda x, y, d: 1 - y * y,
    "ELEMENT_WISE_THRESHOLD": lambda x, y, d: truth(x > d.min, x),
}
"""Derivatives by operator: functions of input, output and description."""

_FACTORS: dict[str, Callable[[Any], float]] = {
    "ACTIVATION_IDENTITY": lambda d: 1.0,
    "ACTIVATION_LINEAR": lambda d: d.alpha,
    "ELEMENT_WISE_IDENTITY": lambda d: 1.0,
    "ELEMENT_WISE_NEGATE": lambda d: -1.0,
    "VALUE_SCALE_2D": lambda d: d.scale,
}

_FLAT = (
    "ELEMENT_WISE_CEIL", "ELEMENT_WISE_FLOOR", "ELEMENT_WISE_ROUND", "ELEMENT_WISE_SIGN", "ACTIVATION_HARDMAX",
    "ACTIVATION_HARDMAX1",
)  # fmt: skip
"""Piecewise constant operators, whose gradient is 0."""


@rule(*_FLAT)
def _flat(record: Any, gradient: Any) -> Gradients:
    return {}


def _scaled_input(record: Any) -> tuple[Any, float]:
    """Return the input of an operator after its optional scale and bias, and the scale."""
    x, pair = record["input_tensor"], getattr(record.desc, "scale_bias", None)
    return (x, 1.0) if pair is None else (x * pair.scale + pair.bias, pair.scale)


@rule(*_SLOPES)
def _element(record: Any, gradient: Any) -> Gradients:
    def compute() -> Any:
        x, scale = _scaled_input(record)
        return times(gradient * _SLOPES[record.kind.operator](x, record.result(), record.desc), scale)

    return {"input_tensor": compute}


@rule(*_FACTORS)
def _factor(record: Any, gradient: Any) -> Gradients:
    pair = getattr(record.desc, "scale_bias", None)
    factor = _FACTORS[record.kind.operator](record.desc) * (1.0 if pair is None else pair.scale)
    return {"input_tensor": lambda: times(gradient, factor)}


@rule("ACTIVATION_LEAKY_RELU")
def _leaky(record: Any, gradient: Any) -> Gradients:
    alpha = record.desc.alpha
    return {"input_tensor": lambda: where(record["input_tensor"] > 0, gradient, gradient * alpha)}


@rule("ACTIVATION_RELU")
def _relu(record: Any, gradient: Any) -> Gradients:
    return {"input_tensor": lambda: directml.activation_relu_grad(record["input_tensor"], gradient)}


@rule("ACTIVATION_RELU_GRAD")
def _relu_grad(record: Any, gradient: Any) -> Gradients:
    return {"input_gradient_tensor": lambda: directml.activation_relu_grad(record["input_tensor"], gradient)}


@rule("ACTIVATION_PARAMETERIZED_RELU")
def _parameterized_relu(record: Any, gradient: Any) -> Gradients:
    x, slope = record["input_tensor"], record["slope_tensor"]
    return {
        "input_tensor": lambda: where(x > 0, gradient, gradient * slope),
        "slope_tensor": lambda: where(x > 0, 0.0, gradient * x),
    }


@rule("ELEMENT_WISE_CLIP", "ELEMENT_WISE_CLIP1")
def _clip(record: Any, gradient: Any) -> Gradients:
    """Pass the gradient at elements equal to a limit, as PyTorch does; ELEMENT_WISE_CLIP_GRAD would not."""
    desc = record.desc

    def compute() -> Any:
        x, scale = _scaled_input(record)
        return times(where((x >= desc.min) & (x <= desc.max), gradient, 0.0), scale)

    return {"input_tensor": compute}


@rule("ELEMENT_WISE_ADD", "ELEMENT_WISE_ADD1")
def _add(record: Any, gradient: Any) -> Gradients:
    return {"a_tensor": lambda: gradient, "b_tensor": lambda: gradient}


@rule("ELEMENT_WISE_SUBTRACT")
def _subtract(record: Any, gradient: Any) -> Gradients:
    return {"a_tensor": lambda: gradient, "b_tensor": lambda: -gradient}


@rule("ELEMENT_WISE_MEAN")
def _mean_of_two(record: Any, gradient: Any) -> Gradients:
    return {"a_tensor": lambda: gradient * 0.5, "b_tensor": lambda: gradient * 0.5}


@rule("ELEMENT_WISE_MULTIPLY")
def _multiply(record: Any, gradient: Any) -> Gradients:
    a, b = record["a_tensor"], record["b_tensor"]
    return {"a_tensor": lambda: gradient * b, "b_tensor": lambda: gradient * a}


@rule("ELEMENT_WISE_DIVIDE")
def _divide(record: Any, gradient: Any) -> Gradients:
    b = record["b_tensor"]
    return {"a_tensor": lambda: gradient / b, "b_tensor": lambda: -(gradient * record.result() / b)}


@rule("ELEMENT_WISE_DIFFERENCE_SQUARE")
def _difference_square(record: Any, gradient: Any) -> Gradients:
    a, b = record["a_tensor"], record["b_tensor"]
    return {"a_tensor": lambda: gradient * (a - b) * 2.0, "b_tensor": lambda: gradient * (b - a) * 2.0}


@rule("ELEMENT_WISE_ATAN_YX")
def _atan_yx(record: Any, gradient: Any) -> Gradients:
    y, x = record["a_tensor"], record["b_tensor"]

    def scaled() -> Any:
        """Return the gradient divided by the squared distance from the origin, 0 at the origin, as PyTorch does."""
        square = x * x + y * y
        return where(square == 0, 0.0, gradient / square)

    return {"a_tensor": lambda: scaled() * x, "b_tensor": lambda: -(scaled() * y)}


@rule("ELEMENT_WISE_MODULUS_FLOOR", "ELEMENT_WISE_MODULUS_TRUNCATE")
def _modulus(record: Any, gradient: Any) -> Gradients:
    a, b = record["a_tensor"], record["b_tensor"]
    return {"a_tensor": lambda: gradient, "b_tensor": lambda: -(gradient * ((a - record.result()) / b))}


@rule("ELEMENT_WISE_MAX", "ELEMENT_WISE_MIN")
def _extreme(record: Any, gradient: Any) -> Gradients:
    """Give the gradient to the selected operand, half of it to each of two equal ones."""
    a, b = record["a_tensor"], record["b_tensor"]

    def share(operand: Any, other: Any) -> Any:
        result = record.result()
        chosen, tied = truth(result == operand, result), truth(result == other, result)
        return gradient * (chosen * (1 - chosen * tied * 0.5))

    return {"a_tensor": lambda: share(a, b), "b_tensor": lambda: share(b, a)}


@rule("ELEMENT_WISE_POW")
def _pow(record: Any, gradient: Any) -> Gradients:
    exponent = record["exponent_tensor"]

    def of_input() -> Any:
        x, scale = _scaled_input(record)
        slope = exponent * directml.element_wise_pow(x, exponent - 1)
        return times(gradient * where(exponent == 0, 0.0, slope), scale)

    def of_exponent() -> Any:
        x, _ = _scaled_input(record)
        base = x if isinstance(x, TensorBase) else filled(gradient, (1,) * gradient.ndim, x)
        is_flat = (base == 0) & (exponent >= 0)
        return gradient * where(is_flat, 0.0, record.result() * directml.element_wise_log(base))

    return {"input_tensor": of_input, "exponent_tensor": of_exponent}


@rule("ELEMENT_WISE_IF")
def _if(record: Any, gradient: Any) -> Gradients:
    condition = record["condition_tensor"]
    return {
        "a_tensor": lambda: where(condition, gradient, 0.0),
        "b_tensor": lambda: where(condition, 0.0, gradient),
    }


@rule("CAST")
def _cast(record: Any, gradient: Any) -> Gradients:
    return {"input_tensor": lambda: gradient.astype(record["input_tensor"].data_type)}


@rule("ELEMENT_WISE_DEQUANTIZE_LINEAR")
def _dequantize(record: Any, gradient: Any) -> Gradients:
    return {"scale_tensor": lambda: gradient * record.result() / record["scale_tensor"]}
