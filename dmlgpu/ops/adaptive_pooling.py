"""Adaptive pooling of signals, images and volumes {N, C, ...}: means and maxima of as many windows as requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops.conv import per_axis, with_spatial_axes
from dmlgpu.ops.interpolation import area_weights, weighted
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import FLOATING, Array, Operand, Where, caller, check_kind, eager, filled
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]  # fmt: skip

OutputSize: TypeAlias = int | Sequence[int | None]
"""Number of windows along all spatial axes, or along each; None is the size of the axis."""


@eager
def adaptive_avg_pool1d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the mean of as many windows of signals as requested, which cover them evenly.

    Args:
        x: Signals, tensor or array of float32 or float16, {N, C, L}.
        output_size: Number of windows.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, L'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 3, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_avg_pool1d([[[1.0, 2.0, 4.0]]], 2)
        array([[[1.5, 3. ]]], dtype=float32)

    See also:
        `avg_pool1d`, `adaptive_max_pool1d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) if `output_size` divides the spatial axes, else by GEMM
    (`ns-directml-dml_gemm_operator_desc`).
    """
    return _adaptive(1, x, output_size, adaptive_means)


@eager
def adaptive_max_pool1d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the largest element of as many windows of signals as requested, which cover them evenly.

    Args:
        x: Signals, tensor or array of float32, float16 or integers, {N, C, L}.
        output_size: Number of windows.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, L'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 3, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_max_pool1d([[[1.0, 2.0, 4.0]]], 2)
        array([[[2., 4.]]], dtype=float32)

    See also:
        `max_pool1d`, `adaptive_avg_pool1d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX, and by GATHER
    (`ns-directml-dml_gather_operator_desc`) if `output_size` does not divide the spatial axes.
    """
    return _adaptive(1, x, output_size, adaptive_maxima)


@eager
def adaptive_avg_pool2d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the mean of as many windows of images as requested, which cover them evenly.

    Args:
        x: Images, tensor or array of float32 or float16, {N, C, H, W}.
        output_size: Number of windows along both spatial axes, or along each; None is the size of the axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, H', W'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 4, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_avg_pool2d([[[[1.0, 2.0], [3.0, 4.0]]]], 1)
        array([[[[2.5]]]], dtype=float32)

    See also:
        `avg_pool2d`, `adaptive_max_pool2d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) if `output_size` divides the spatial axes, else by GEMM
    (`ns-directml-dml_gemm_operator_desc`).
    """
    return _adaptive(2, x, output_size, adaptive_means)


@eager
def adaptive_max_pool2d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the largest element of as many windows of images as requested, which cover them evenly.

    Args:
        x: Images, tensor or array of float32, float16 or integers, {N, C, H, W}.
        output_size: Number of windows along both spatial axes, or along each; None is the size of the axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, H', W'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 4, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_max_pool2d([[[[1.0, 2.0], [3.0, 4.0]]]], 1)
        array([[[[4.]]]], dtype=float32)

    See also:
        `max_pool2d`, `adaptive_avg_pool2d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX, and by GATHER
    (`ns-directml-dml_gather_operator_desc`) if `output_size` does not divide the spatial axes.
    """
    return _adaptive(2, x, output_size, adaptive_maxima)


@eager
def adaptive_avg_pool3d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the mean of as many windows of volumes as requested, which cover them evenly.

    Args:
        x: Volumes, tensor or array of float32 or float16, {N, C, D, H, W}.
        output_size: Number of windows along all spatial axes, or along each; None is the size of the axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, D', H', W'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 5, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_avg_pool3d(np.ones((1, 2, 4, 4, 4), np.float32), 2).shape
        (1, 2, 2, 2, 2)

    See also:
        `avg_pool3d`, `adaptive_max_pool3d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) if `output_size` divides the spatial axes, else by GEMM
    (`ns-directml-dml_gemm_operator_desc`).
    """
    return _adaptive(3, x, output_size, adaptive_means)


@eager
def adaptive_max_pool3d(x: Operand, output_size: OutputSize, *, device: Where = None) -> Array:
    """Return the largest element of as many windows of volumes as requested, which cover them evenly.

    Args:
        x: Volumes, tensor or array of float32, float16 or integers, {N, C, D, H, W}.
        output_size: Number of windows along all spatial axes, or along each; None is the size of the axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, D', H', W'} of the dtype of `x` (an array if `x` is one). Window i of n covers the elements from
        floor(i * size / n) up to ceil((i + 1) * size / n), as in PyTorch.

    Raises:
        InvalidArgument: If `x` does not have rank 5, has no elements along a spatial axis, or its dtype is not
            supported, or if `output_size` has other entries.

    Examples:
        >>> ops.adaptive_max_pool3d(np.ones((1, 2, 4, 4, 4), np.float32), 2).shape
        (1, 2, 2, 2, 2)

    See also:
        `max_pool3d`, `adaptive_avg_pool3d`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with MAX, and by GATHER
    (`ns-directml-dml_gather_operator_desc`) if `output_size` does not divide the spatial axes.
    """
    return _adaptive(3, x, output_size, adaptive_maxima)


def _adaptive(spatial: int, x: Operand, output_size: Any, function: Any) -> Tensor:
    image = with_spatial_axes("x", x, spatial)
    sizes = image.sizes[2:]
    if isinstance(output_size, list | tuple) and len(output_size) == spatial:
        output_size = [size if new is None else new for new, size in zip(output_size, sizes, strict=True)]
    counts = per_axis("output_size", output_size, spatial)
    if function is adaptive_means:
        check_kind("x", image, FLOATING)
    if 0 in sizes:
        raise InvalidArgument(f"{caller()}: x must have elements along spatial axes, got sizes {list(image.sizes)}")
    if 0 in (*image.sizes, *counts):
        return filled(image, (*image.sizes[:2], *counts))
    result: Tensor = function(image, counts)
    return result._same() if result is image else result


def adaptive_means(x: Tensor, counts: Sequence[int]) -> Tensor:
    """Return means of as many windows of the last axes as requested, summed in float32."""
    first = x.ndim - len(counts)
    divided = _divided(x, counts)
    if divided is not None:
        steps = tuple(range(first + 1, divided.ndim, 2))
        return reduced(divided, ReduceFunction.AVERAGE, steps, False)
    result = x.astype(DataType.FLOAT32)
    for axis, count in enumerate(counts, first):
        if count != x.sizes[axis]:
            result = weighted(result, area_weights(x.sizes[axis], count), axis)
    return result.astype(x.data_type)


def adaptive_maxima(x: Tensor, counts: Sequence[int]) -> Tensor:
    """Return maxima of as many windows of the last axes as requested, NaN if there is one."""
    result = x._same(boolean=False)
    for axis, count in enumerate(counts, x.ndim - len(counts)):
        if count == x.sizes[axis]:
            continue
        size = x.sizes[axis]
        if size % count:
            windows = result._taken(result._beside(adaptive_places(size, count)), axis, caller())
        else:
            windows = result.reshape(*result.sizes[:axis], count, size // count, *result.sizes[axis + 1 :])
        result = reduced(windows, ReduceFunction.MAX, axis + 1, False)
    return result._same(boolean=x.is_boolean)


def _divided(x: Tensor, counts: Sequence[int]) -> Tensor | None:
    """Return the last axes split into windows and their elements; None if windows overlap or axes are too many."""
    first = x.ndim - len(counts)
    spatial = x.sizes[first:]
    if any(size % count for size, count in zip(spatial, counts, strict=True)) or x.ndim + len(counts) > MAX_DIMENSIONS:
        return None
    split = [part for size, count in zip(spatial, counts, strict=True) for part in (count, size // count)]
    return x.reshape(*x.sizes[:first], *split)


def adaptive_places(old: int, new: int) -> NDArray[np.int64]:
    """Return the elements of each window along an axis {new, longest}; short windows repeat their last one."""
    index = np.arange(new)
    begin, end = index * old // new, -(-(index + 1) * old // new)
    steps = np.arange((end - begin).max())
    return np.asarray(np.minimum(begin[:, None] + steps, end[:, None] - 1))
