"""Activations, softmax and Hardmax: by NumPy in float64, with attributes in float32, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.elementwise import as_bits, attribute, convert
from dmlgpu.reference.registry import Array, named_reference, reference

Wide = NDArray[np.float64]

erfc: Callable[[Any], Wide] = np.vectorize(math.erfc, otypes=[np.float64])
"""Complementary error function, elementwise."""


def sigmoid(x: Wide) -> Wide:
    """``1 / (1 + e**-x)``."""
    return 1 / (1 + np.exp(-x))


def softplus(x: Wide) -> Wide:
    """``log(1 + e**x)``."""
    return np.logaddexp(0, x)


def _function(desc_class: Any, function: Callable[..., Wide], *attributes: str) -> Callable[[Any, Array], Array]:
    """Register a function of one number and attributes for an operator."""

    def evaluate(desc: Any, input_tensor: Array) -> Array:
        values = (attribute(getattr(desc, name)) for name in attributes)
        return function(input_tensor.astype(np.float64), *values).astype(input_tensor.dtype)

    return named_reference(desc_class, evaluate)


def _positive(x: Wide) -> Wide:
    """``max(0, x)``: 0 for -0, for which NumPy's maximum gives either; NaN stays."""
    return np.where(x <= 0, 0.0, x)


def _hard_sigmoid(x: Wide, alpha: float, beta: float) -> Wide:
    return _positive(np.minimum(alpha * x + beta, 1))


def _steep_softplus(x: Wide, steepness: float) -> Wide:
    power = steepness * x
    return np.where(power == np.inf, x, softplus(power) / steepness)


activation_elu = _function(descs.ActivationElu, lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)), "alpha")
activation_celu = _function(
    descs.ActivationCelu, lambda x, alpha: _positive(x) + np.minimum(0, alpha * np.expm1(x / alpha)), "alpha"
)
activation_scaled_elu = _function(
    descs.ActivationScaledElu,
    lambda x, alpha, gamma: np.where(x > 0, gamma * x, gamma * (alpha * np.expm1(x))),
    "alpha",
    "gamma",
)
activation_hard_sigmoid = _function(descs.ActivationHardSigmoid, _hard_sigmoid, "alpha", "beta")
activation_hard_swish = _function(
    descs.ActivationHardSwish, lambda x, alpha, beta: x * _hard_sigmoid(x, alpha, beta), "alpha", "beta"
)
activation_leaky_relu = _function(descs.ActivationLeakyRelu, lambda x, alpha: np.where(x >= 0, x, alpha * x), "alpha")
activation_linear = _function(descs.ActivationLinear, lambda x, alpha, beta: alpha * x + beta, "alpha", "beta")
activation_parametric_softplus = _function(
    descs.ActivationParametricSoftplus, lambda x, alpha, beta: alpha * softplus(beta * x), "alpha", "beta"
)
activation_scaled_tanh = _function(
    descs.ActivationScaledTanh, lambda x, alpha, beta: alpha * np.tanh(beta * x), "alpha", "beta"
)
activation_sigmoid = _function(descs.ActivationSigmoid, sigmoid)
activation_softplus = _function(descs.ActivationSoftplus, _steep_softplus, "steepness")
activation_softsign = _function(descs.ActivationSoftsign, lambda x: x / (1 + np.abs(x)))
activation_swish = _function(descs.ActivationSwish, lambda x, scale: x * sigmoid(scale * x), "sigmoid_input_scale")
activation_tanh = _function(descs.ActivationTanh, np.tanh)
activation_thresholded_relu = _function(
    descs.ActivationThresholdedRelu, lambda x, alpha: np.where(x > alpha, x, 0), "alpha"
)


@reference(descs.ActivationGelu)
def activation_gelu(desc: descs.ActivationGelu, input_tensor: Array) -> Array:
    """``x * (1 + erf(x / sqrt(2))) / 2``, with erfc so that the negative tail keeps its digits."""
    x = input_tensor.astype(np.float64)
    return (0.5 * x * erfc(-x / math.sqrt(2))).astype(input_tensor.dtype)


@reference(descs.ActivationIdentity)
def activation_identity(desc: descs.ActivationIdentity, input_tensor: Array) -> Array:
    """The input, bit for bit."""
    return as_bits(input_tensor).copy().view(input_tensor.dtype)


@reference(descs.ActivationRelu)
def activation_relu(desc: descs.ActivationRelu, input_tensor: Array) -> Array:
    """``max(0, x)``; -0 becomes 0, NaN stays."""
    return np.where(input_tensor <= 0, input_tensor.dtype.type(0), input_tensor)


@reference(descs.ActivationReluGrad)
def activation_relu_grad(desc: descs.ActivationReluGrad, input_tensor: Array, input_gradient_tensor: Array) -> Array:
    """The gradient if ``x > 0``, else 0."""
    return np.where(input_tensor > 0, input_gradient_tensor, input_gradient_tensor.dtype.type(0))


@reference(descs.ActivationParameterizedRelu)
def activation_parameterized_relu(
    desc: descs.ActivationParameterizedRelu, input_tensor: Array, slope_tensor: Array
) -> Array:
    """``x`` if it is at least 0, else ``slope * x``; float32 products of float16 are exact, integers wrap."""
    wide = np.float64 if input_tensor.dtype.kind == "f" else np.int64
    x = input_tensor.astype(wide)
    return np.where(x >= 0, x, slope_tensor.astype(wide) * x).astype(input_tensor.dtype)


@reference(descs.ActivationShrink)
def activation_shrink(desc: descs.ActivationShrink, input_tensor: Array) -> Array:
    """``x - bias`` above the threshold, ``x + bias`` below its negative, else 0.

    Integers are computed in float32 and converted back as CAST does.
    """
    dtype = input_tensor.dtype
    x: Array = input_tensor.astype(np.float64 if dtype.kind == "f" else np.float32)
    bias, threshold = (np.array(value, np.float32).astype(x.dtype) for value in (desc.bias, desc.threshold))
    return convert(np.select([x > threshold, x < -threshold], [x - bias, x + bias], x.dtype.type(0)), dtype)


def _axes(desc: Any, array: Array) -> tuple[int, ...]:
    """Return the axes of a softmax: by older descriptions the last one."""
    return tuple(getattr(desc, "axes", (array.ndim - 1,)))


def _shifted(array: Array, axes: tuple[int, ...]) -> NDArray[np.float64]:
    """``x - max(x)`` along the axes: NaN in a row with NaN or infinity, or with only negative infinity."""
    wide = array.astype(np.float64)
    return wide - wide.max(axes, keepdims=True)


@reference(descs.ActivationSoftmax1, descs.ActivationSoftmax)
def activation_softmax1(desc: descs.ActivationSoftmax1 | descs.ActivationSoftmax, input_tensor: Array) -> Array:
    """``e^x / sum(e^x)`` along the axes."""
    axes = _axes(desc, input_tensor)
    powers = np.exp(_shifted(input_tensor, axes))
    return (powers / powers.sum(axes, keepdims=True)).astype(input_tensor.dtype)


@reference(descs.ActivationLogSoftmax1, descs.ActivationLogSoftmax)
def activation_log_softmax1(
    desc: descs.ActivationLogSoftmax1 | descs.ActivationLogSoftmax, input_tensor: Array
) -> Array:
    """``x - log(sum(e^x))`` along the axes."""
    axes = _axes(desc, input_tensor)
    shifted = _shifted(input_tensor, axes)
    return (shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))).astype(input_tensor.dtype)


def _first_largest(array: Array, axes: Sequence[int]) -> NDArray[np.bool_]:
    """Return the index of the first largest element of each row; NaN is skipped, and rows of only NaN give 0."""
    along = sorted(axes)
    across = [axis for axis in range(array.ndim) if axis not in along]
    moved = array.transpose(*across, *along)
    rows = moved.reshape(*moved.shape[: len(across)], -1)
    numbers = np.where(np.isnan(rows), -np.inf, rows)  # fmax skips no signalling NaN
    places = (rows == numbers.max(-1)[..., np.newaxis]).argmax(-1)
    marks = (np.arange(rows.shape[-1]) == places[..., np.newaxis]).reshape(moved.shape)
    return marks.transpose(np.argsort([*across, *along]))


@reference(descs.ActivationHardmax1, descs.ActivationHardmax)
def activation_hardmax1(desc: descs.ActivationHardmax1 | descs.ActivationHardmax, input_tensor: Array) -> Array:
    """1 at the first largest element along the axes, in row-major order, else 0."""
    return _first_largest(input_tensor, _axes(desc, input_tensor)).astype(input_tensor.dtype)
