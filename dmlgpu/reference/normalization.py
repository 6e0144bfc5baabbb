"""Normalizations and their gradients, in float64, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.reference.elementwise import attribute
from dmlgpu.reference.registry import Array, activated, reference

Wide = NDArray[np.float64]


def _wide(*arrays: Array) -> tuple[Wide, ...]:
    return tuple(array.astype(np.float64) for array in arrays)


def _normalized(x: Wide, mean: Any, variance: Any, scale: Array | None, bias: Array | None, epsilon: float) -> Wide:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias``."""
    factor = 1 if scale is None else scale.astype(np.float64)
    result = factor * (x - mean) / np.sqrt(variance + attribute(epsilon))
    return result if bias is None else result + bias.astype(np.float64)


# ---- batch normalization


def _batch_axes(statistic: Array) -> tuple[int, ...]:
    """Return the dimensions of the statistics."""
    return tuple(axis for axis, size in enumerate(statistic.shape) if size == 1)


@reference(descs.BatchNormalization)
def batch_normalization(
    desc: descs.BatchNormalization,
    input_tensor: Array,
    mean_tensor: Array,
    variance_tensor: Array,
    scale_tensor: Array,
    bias_tensor: Array,
) -> Array:
    """``activation(scale * (x - mean) / sqrt(variance + epsilon) + bias)``."""
    x, mean, variance = _wide(input_tensor, mean_tensor, variance_tensor)
    result = _normalized(x, mean, variance, scale_tensor, bias_tensor, desc.epsilon)
    return activated(result.astype(input_tensor.dtype), desc.fused_activation, desc.output_tensor)


@reference(descs.BatchNormalizationTraining)
def batch_normalization_training(
    desc: descs.BatchNormalizationTraining,
    input_tensor: Array,
    scale_tensor: Array,
    bias_tensor: Array,
    fused_add_tensor: Array | None,
) -> tuple[Array, ...]:
    """Normalized by the batch's own mean and variance, plus a tensor before the activation; and mean and variance."""
    (x,) = _wide(input_tensor)
    axes = _batch_axes(scale_tensor)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    result = _normalized(x, mean, variance, scale_tensor, bias_tensor, desc.epsilon)
    if fused_add_tensor is not None:
        result = result + fused_add_tensor.astype(np.float64)
    dtype = input_tensor.dtype
    output = activated(result.astype(dtype), desc.fused_activation, desc.output_tensor)
    return output, mean.astype(dtype), variance.astype(dtype)


@reference(descs.BatchNormalizationGrad)
def batch_normalization_grad(
    desc: descs.BatchNormalizationGrad,
    input_tensor: Array,
    input_gradient_tensor: Array,
    mean_tensor: Array,
    variance_tensor: Array,
    scale_tensor: Array,
) -> tuple[Array, ...]:
    """Gradients of the input, the scale and the bias; mean and variance are constants."""
    x, g, mean, variance, scale = _wide(input_tensor, input_gradient_tensor, mean_tensor, variance_tensor, scale_tensor)
    axes, deviation = _batch_axes(scale_tensor), np.sqrt(variance + attribute(desc.epsilon))
    gradients = (
        g * scale / deviation,
        (g * (x - mean) / deviation).sum(axes, keepdims=True),
        g.sum(axes, keepdims=True),
    )
    return tuple(gradient.astype(input_tensor.dtype) for gradient in gradients)


@reference(descs.BatchNormalizationTrainingGrad)
def batch_normalization_training_grad(
    desc: descs.BatchNormalizationTrainingGrad,
    input_tensor: Array,
    input_gradient_tensor: Array,
    mean_tensor: Array,
    variance_tensor: Array,
    scale_tensor: Array,
) -> tuple[Array, ...]:
    """Gradients of the input, the scale and the bias; mean and variance depend on the input."""
    x, g, mean, variance, scale = _wide(input_tensor, input_gradient_tensor, mean_tensor, variance_tensor, scale_tensor)
    axes, squared = _batch_axes(scale_tensor), variance + attribute(desc.epsilon)
    centered = x - x.mean(axes, keepdims=True)
    slope = (g * centered).mean(axes, keepdims=True) / squared
    gradients = (
        scale / np.sqrt(squared) * ((g - g.mean(axes, keepdims=True)) - centered * slope),
        (g * (x - mean) / np.sqrt(squared)).sum(axes, keepdims=True),
        g.sum(axes, keepdims=True),
    )
    return tuple(gradient.astype(input_tensor.dtype) for gradient in gradients)


# ---- mean and variance


@reference(descs.MeanVarianceNormalization2, descs.MeanVarianceNormalization1, descs.MeanVarianceNormalization)
def mean_variance_normalization2(
    desc: Any, input_tensor: Array, scale_tensor: Array | None, bias_tensor: Array | None
) -> Array:
    """``activation(scale * (x - mean) / sqrt(variance + epsilon) + bias)``, the row's own statistics in use or not.

    Without the mean the variance is the mean square. Older operators always subtract the mean; the oldest normalizes
    over height and width, and over channels if they are crossed.
    """
    axes = tuple(desc.axes) if hasattr(desc, "axes") else (1, 2, 3) if desc.cross_channel else (2, 3)
    is_newest = isinstance(desc, descs.MeanVarianceNormalization2)
    (x,) = _wide(input_tensor)
    mean = x.mean(axes, keepdims=True) if not is_newest or desc.use_mean else np.float64(0)
    use_variance = desc.use_variance if is_newest else desc.normalize_variance
    variance = np.square(x - mean).mean(axes, keepdims=True) if use_variance else 1 - attribute(desc.epsilon)
    result = _normalized(x, mean, variance, scale_tensor, bias_tensor, desc.epsilon).astype(input_tensor.dtype)
    return activated(result, desc.fused_activation, desc.output_tensor)


@reference(descs.LpNormalization)
def lp_normalization(desc: descs.LpNormalization, input_tensor: Array) -> Array:
    """``x / max(norm, epsilon)``; the norm is the sum of ``|x|`` along the axis, or the root of the sum of squares."""
    (x,) = _wide(input_tensor)
    norm = (np.abs(x) ** desc.p).sum(desc.axis, keepdims=True) ** (1 / desc.p)
    return (x / np.maximum(norm, attribute(desc.epsilon))).astype(input_tensor.dtype)


@reference(descs.ValueScale2d)
def value_scale_2d(desc: descs.ValueScale2d, input_tensor: Array) -> Array:
    """``scale * x + bias[channel]``."""
    bias = np.array(desc.bias, np.float32).astype(np.float64).reshape(1, -1, 1, 1)
    return (attribute(desc.scale) * input_tensor.astype(np.float64) + bias).astype(input_tensor.dtype)


# ---- local response


def _window_sum(x: Wide, axis: int, before: int, after: int) -> Wide:
    """Return the sums of windows that extend ``before`` and ``after`` each element, clipped to x."""
    moved, size = np.moveaxis(x, axis, 0), x.shape[axis]
    total = np.zeros_like(moved)
    for place in range(size):
        total[place] = moved[max(place - before, 0) : place + after + 1].sum(0)
    return np.moveaxis(total, 0, axis)


def _region_sum(desc: Any, x: Wide, *, mirrored: bool = False) -> Wide:
    """Return the sum over the region of each element; if mirrored, over all elements whose region contains it."""
    before, after = (desc.local_size - 1) // 2, desc.local_size // 2
    if mirrored:
        before, after = after, before
    for axis in (1,) if desc.cross_channel else (2, 3):
        x = _window_sum(x, axis, before, after)
    return x


def _share(desc: Any) -> np.float64:
    return attribute(desc.alpha) / desc.local_size


@reference(descs.LocalResponseNormalization)
def local_response_normalization(desc: descs.LocalResponseNormalization, input_tensor: Array) -> Array:
    """``x / s**beta`` with ``s = bias + alpha / local_size * sum(x**2)``, summed over the region."""
    (x,) = _wide(input_tensor)
    s = attribute(desc.bias) + _share(desc) * _region_sum(desc, x * x)
    return (x / np.float_power(s, attribute(desc.beta))).astype(input_tensor.dtype)


@reference(descs.LocalResponseNormalizationGrad)
def local_response_normalization_grad(
    desc: descs.LocalResponseNormalizationGrad, input_tensor: Array, input_gradient_tensor: Array
) -> Array:
    """``g * s**-beta - 2 * beta * alpha / local_size * x * sum(g * x * s**(-beta - 1))``.

    The sum runs over all elements whose region contains the element.
    """
    x, g = _wide(input_tensor, input_gradient_tensor)
    beta = attribute(desc.beta)
    s = attribute(desc.bias) + _share(desc) * _region_sum(desc, x * x)
    sums = _region_sum(desc, g * x * np.float_power(s, -beta - 1), mirrored=True)
    return (g * np.float_power(s, -beta) - 2 * beta * _share(desc) * x * sums).astype(input_tensor.dtype)
