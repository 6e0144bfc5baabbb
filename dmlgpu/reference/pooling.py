"""Pooling, its gradients, and the inverse of max pooling, from windows laid out in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.reference.registry import Array, claim, reference


def _axis(desc: Any, axis: int, spatial: int) -> Array:
    """Return the input index for each position (rows) and window offset (columns); -1 in the padding."""
    dilation = desc.dilations[axis] if hasattr(desc, "dilations") else 1
    size, padding = desc.window_size[axis], desc.start_padding[axis]
    room = spatial + padding + desc.end_padding[axis] - dilation * (size - 1) - 1
    first = np.arange(room // desc.strides[axis] + 1) * desc.strides[axis] - padding
    seen = first[:, None] + np.arange(size) * dilation
    return np.where((seen >= 0) & (seen < spatial), seen, -1)


def _windows(desc: Any, sizes: tuple[int, ...]) -> Array:
    """Return the flat indices within {spatial..} of each window: {positions.., offsets}; -1 is padding."""
    spatial, places = sizes[2:], math.prod(desc.window_size)
    pooled = getattr(desc, "input_gradient_tensor", None) or desc.output_tensor
    claim("elements of windows", math.prod(pooled.sizes) + math.prod(pooled.sizes[2:]), places, each=160)
    index = np.zeros((1,) * (2 * len(spatial)), np.int64)
    inside = np.ones_like(index, bool)
    for axis, size in enumerate(spatial):
        seen = _axis(desc, axis, size)
        shape = [1] * (2 * len(spatial))
        shape[axis], shape[len(spatial) + axis] = seen.shape
        index = index * size + seen.reshape(shape)
        inside = inside & (seen >= 0).reshape(shape)
    positions = index.shape[: len(spatial)]
    return np.where(inside, index, -1).reshape(*positions, -1)


def _seen(x: Array, windows: Array, padding: Any) -> Array:
    """Return the elements of windows, {N, C, positions.., offsets}, with a value in the padding."""
    flat = x.reshape(*x.shape[:2], -1)
    padded = np.concatenate([flat, np.full((*flat.shape[:2], 1), padding, flat.dtype)], axis=2)
    return padded[:, :, windows]


def _divisors(desc: Any, windows: Array) -> Array:
    counted = (windows >= 0).sum(-1)
    return np.full_like(counted, windows.shape[-1]) if desc.include_padding else counted


@reference(descs.AveragePooling1, descs.AveragePooling)
def average_pooling1(desc: descs.AveragePooling1 | descs.AveragePooling, input_tensor: Array) -> Array:
    """The mean of every window."""
    windows = _windows(desc, input_tensor.shape)
    sums = _seen(input_tensor.astype(np.float64), windows, 0).sum(-1)
    return (sums / _divisors(desc, windows)).astype(input_tensor.dtype)


@reference(descs.AveragePoolingGrad)
def average_pooling_grad(desc: descs.AveragePoolingGrad, input_gradient_tensor: Array) -> Array:
    """Every position's gradient, divided, added to all elements of its window."""
    sizes = desc.output_gradient_tensor.sizes
    windows = _windows(desc, sizes)
    shares = input_gradient_tensor.astype(np.float64) / _divisors(desc, windows)
    spread = np.broadcast_to(shares[..., None], (*shares.shape, windows.shape[-1]))
    return _added(sizes, np.broadcast_to(windows, spread.shape), spread).astype(input_gradient_tensor.dtype)


def _added(sizes: tuple[int, ...], numbers: Array, values: Array) -> Array:
    """Sum values at flat indices within {spatial..}; those with the index -1 are dropped."""
    total = np.zeros((sizes[0] * sizes[1], int(np.prod(sizes[2:])) + 1))
    rows = np.arange(len(total))[:, None]
    np.add.at(total, (rows, numbers.reshape(len(total), -1)), values.reshape(len(total), -1))
    return total[:, :-1].reshape(sizes)


@reference(descs.LpPooling1, descs.LpPooling)
def lp_pooling1(desc: descs.LpPooling1 | descs.LpPooling, input_tensor: Array) -> Array:
    """The p-norm of every window."""
    seen = np.abs(_seen(input_tensor.astype(np.float64), _windows(desc, input_tensor.shape), 0))
    largest = seen.max(-1, keepdims=True)
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1)
    return (((seen / scale) ** desc.p).sum(-1) ** (1 / desc.p) * scale[..., 0]).astype(input_tensor.dtype)


def _chosen(desc: Any, x: Array) -> Array:
    """Return the flat index within {spatial..} of each window's largest element: {N, C, positions..}."""
    windows = _windows(desc, x.shape)
    worth = _worth(x)
    seen = _seen(worth, windows, -2)
    places = seen.argmax(-1)  # the first of equal elements
    return np.take_along_axis(np.broadcast_to(windows, seen.shape), places[..., None], -1)[..., 0]


def _worth(x: Array) -> Array:
    """Return integers in the order of the elements; NaN is -1, below all others."""
    flat = x.ravel()
    numbers = np.unique(flat[~np.isnan(flat)] if x.dtype.kind == "f" else flat)
    worth = np.searchsorted(numbers, flat)
    return np.where(np.isnan(flat), -1, worth).reshape(x.shape) if x.dtype.kind == "f" else worth.reshape(x.shape)


@reference(descs.MaxPooling2, descs.MaxPooling1)
def max_pooling2(desc: descs.MaxPooling2 | descs.MaxPooling1, input_tensor: Array) -> tuple[Array, ...]:
    """The largest element of every window, and its index in the whole input."""
    chosen = _chosen(desc, input_tensor)
    planes = input_tensor.shape[0] * input_tensor.shape[1]
    flat = input_tensor.reshape(planes, -1)
    values = np.take_along_axis(flat, chosen.reshape(planes, -1), 1).reshape(chosen.shape)
    if desc.output_indices_tensor is None:
        return values, None  # type: ignore[return-value]
    base = np.arange(planes).reshape(input_tensor.shape[:2]) * flat.shape[1]
    numbers = chosen + base.reshape(*base.shape, *(1,) * (chosen.ndim - 2))
    return values, numbers.astype(desc.output_indices_tensor.data_type.numpy)


@reference(descs.MaxPooling)
def max_pooling(desc: descs.MaxPooling, input_tensor: Array) -> Array:
    """The largest element of every window."""
    chosen = _chosen(desc, input_tensor)
    planes = chosen.reshape(input_tensor.shape[0] * input_tensor.shape[1], -1)
    return np.take_along_axis(input_tensor.reshape(len(planes), -1), planes, 1).reshape(chosen.shape)


@reference(descs.MaxPoolingGrad)
def max_pooling_grad(desc: descs.MaxPoolingGrad, input_tensor: Array, input_gradient_tensor: Array) -> Array:
    """Every position's gradient, added to the element with the largest value."""
    gradient = input_gradient_tensor.astype(np.float64)
    return _added(input_tensor.shape, _chosen(desc, input_tensor), gradient).astype(input_tensor.dtype)


@reference(descs.MaxUnpooling)
def max_unpooling(desc: descs.MaxUnpooling, input_tensor: Array, indices_tensor: Array) -> Array:
    """Elements moved to flat indices; the last of several wins, and those beyond the output are dropped."""
    output = np.zeros(desc.output_tensor.sizes, input_tensor.dtype)
    numbers = indices_tensor.ravel()
    inside = numbers < output.size
    for index, value in zip(numbers[inside].astype(np.int64), input_tensor.ravel()[inside], strict=True):
        output.flat[index] = value
    return output


@reference(descs.QuantizedLinearAveragePooling)
def quantized_linear_average_pooling(
    desc: descs.QuantizedLinearAveragePooling,
    input_tensor: Array,
    input_scale_tensor: Array,
    input_zero_point_tensor: Array | None,
    output_scale_tensor: Array,
    output_zero_point_tensor: Array | None,
) -> Array:
    """Integer averages, requantized in float32, rounded at every step. NaN counts as 0."""
    rank = input_tensor.ndim
    windows = _windows(desc, input_tensor.shape)
    values = input_tensor.astype(np.int64) - _per_channel(input_zero_point_tensor, rank).astype(np.int64)
    average = _seen(values, windows, 0).sum(-1).astype(np.float32) / _divisors(desc, windows).astype(np.float32)
    with np.errstate(all="ignore"):
        real = average * _per_channel(input_scale_tensor, rank)
        quotient = np.rint(real / _per_channel(output_scale_tensor, rank))
    whole = np.clip(np.nan_to_num(quotient, nan=0), -(2.0**31), 2.0**31).astype(np.int64)
    zero = _per_channel(output_zero_point_tensor, rank).astype(np.int64)
    limits = np.iinfo(desc.output_tensor.data_type.numpy)
    return np.clip(whole + zero, limits.min, limits.max).astype(limits.dtype)


def _per_channel(parameter: Array | None, rank: int) -> Array:
    """Reshape a scale or zero point to {N, C, spatial..}."""
    if parameter is None:
        return np.zeros((1,) * rank, np.int64)
    return parameter.reshape(1, -1, *(1,) * (rank - 2))
