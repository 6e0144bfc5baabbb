"""Pooling over sliding, adaptive and random windows, unpooling, and their gradients."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.ops.adaptive_pooling import adaptive_means, adaptive_places
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.interpolation import area_weights, weighted
from dmlgpu.ops.pooling import PoolingWindows, averaged, mean_factor
from dmlgpu.tensors.calls import filled, widened
from dmlgpu.tensors.tensor import Tensor


def planes(x: Tensor, rank: int) -> Tensor:
    """Return a view {1, N * C, ...} of planes with `rank` spatial axes, at least two of them."""
    spatial = x.sizes[x.ndim - rank :]
    return x.reshape(1, math.prod(x.sizes[: x.ndim - rank]), *((1,) * (2 - rank)), *spatial)


def _windows(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    rank: int,
) -> PoolingWindows:
    """Return sliding windows over the last axes of a tensor, with PyTorch's defaults."""
    kernel, padding, dilation = (
        tuple(values) * rank if len(values) == 1 else tuple(values) for values in (kernel_size, padding, dilation)
    )
    steps = kernel if not stride else tuple(stride) * rank if len(stride) == 1 else tuple(stride)
    return PoolingWindows(x.sizes[x.ndim - rank :], kernel, steps, padding, padding, dilation, ceil_mode)


def _elements(x: Tensor, windows: PoolingWindows) -> list[Tensor]:
    """Return, for each position in a window, a view of the elements of all windows of planes."""
    views = []
    for offset in itertools.product(*map(range, windows.kernel)):
        starts = [index * step for index, step in zip(offset, windows.dilation, strict=True)]
        parts = zip(starts, windows.counts, windows.stride, strict=True)
        views.append(x[(..., *(slice(start, start + (count - 1) * step + 1, step) for start, count, step in parts))])
    return views


def _is_small(windows: PoolingWindows) -> bool:
    """Return whether windows have at most four elements, none of them padding."""
    return math.prod(windows.kernel) <= 4 and not any((*windows.before, *windows.end_padding))


# ---- maxima ----------------------------------------------------------------------------------------------------------


def _max_pool(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
    *,
    rank: int,
) -> tuple[Tensor, Tensor]:
    windows = _windows(x, kernel_size, stride, padding, dilation, ceil_mode, rank)
    sizes = (*x.sizes[: x.ndim - rank], *windows.counts)
    if 0 in sizes:
        return filled(x, sizes), filled(x, sizes, 0, DataType.INT64)
    outputs: Any = directml.max_pooling2(planes(x, rank), **windows.options(), output_type=DataType.UINT32)
    area = math.prod(windows.spatial)
    indices = outputs.output_indices % area if outputs.output_indices.sizes[1] > 1 else outputs.output_indices
    maxima = outputs.output
    if x.graph is not None and _is_small(windows):  # a graph computes the maxima in one kernel, without the indices
        maxima = functools.reduce(directml.element_wise_max, _elements(planes(x, rank), windows))
    elif x.data_type.is_float:  # DirectML's operator ignores NaN if there are numbers
        sums: Any = directml.lp_pooling1(planes(x, rank), **windows.options(), p=1)
        is_nan = directml.element_wise_is_nan(sums)  # sums of absolute values are NaN only for NaN elements
        maxima = maxima._chosen(directml.element_wise_logical_not(is_nan), float("nan"))
    return maxima._renamed(sizes), indices.astype(DataType.INT64)._renamed(sizes)


@aten("max_pool2d_with_indices", fused=True)
def max_pool2d_with_indices(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window of images, and its index in the image."""
    return _max_pool(*args, **options, rank=2)


@aten("max_pool3d_with_indices")
def max_pool3d_with_indices(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window of volumes, and its index in the volume."""
    return _max_pool(*args, **options, rank=3)


def _max_pool_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    rank: int,
) -> Tensor:
    if not gradient.size:
        return filled(x, x.sizes)
    windows = _windows(x, kernel_size, stride, padding, dilation, ceil_mode, rank)
    result = directml.max_pooling_grad(planes(x, rank), planes(gradient, rank), **windows.options())
    of_input: Tensor = result._renamed(x.sizes)
    return of_input


@aten("max_pool2d_with_indices_backward", fused=True)
def max_pool2d_with_indices_backward(
    gradient: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, _: Tensor
) -> Tensor:
    """Return the gradient of the input of `max_pool2d_with_indices`."""
    return _max_pool_backward(gradient, x, kernel_size, stride, padding, dilation, ceil_mode, 2)


@aten("max_pool3d_with_indices_backward")
def max_pool3d_with_indices_backward(
    gradient: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, _: Tensor
) -> Tensor:
    """Return the gradient of the input of `max_pool3d_with_indices`."""
    return _max_pool_backward(gradient, x, kernel_size, stride, padding, dilation, ceil_mode, 3)


# ---- means -----------------------------------------------------------------------------------------------------------


@aten("avg_pool2d")
def avg_pool2d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int = 2,
) -> Tensor:
    """Return the mean of each window of images."""
    windows = _windows(x, kernel_size, stride, padding, (1,), ceil_mode, rank)
    sizes = (*x.sizes[: x.ndim - rank], *windows.counts)
    if 0 in sizes:
        return filled(x, sizes)
    return averaged(planes(x, rank), windows, count_include_pad, divisor_override)._renamed(sizes)


@aten("avg_pool3d")
def avg_pool3d(*args: Any, **options: Any) -> Tensor:
    """Return the mean of each window of volumes."""
    return avg_pool2d(*args, **options, rank=3)


@aten("avg_pool2d_backward")
def avg_pool2d_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    rank: int = 2,
) -> Tensor:
    """Return the gradient of the input of `avg_pool2d`."""
    windows = _windows(x, kernel_size, stride, padding, (1,), ceil_mode, rank)
    if not gradient.size:
        return filled(x, x.sizes)
    scale = mean_factor(x, windows, count_include_pad, divisor_override)
    shares = gradient if scale is None else widened(gradient) * scale
    options = windows.options()
    del options["dilations"]
    result = directml.average_pooling_grad(
        planes(shares, rank),
        **options,
        include_padding=count_include_pad or scale is not None,
        output_sizes=planes(x, rank).sizes,
    )
    of_input: Tensor = result._renamed(x.sizes).astype(x.data_type)
    return of_input


@aten("avg_pool3d_backward")
def avg_pool3d_backward(*args: Any, **options: Any) -> Tensor:
    """Return the gradient of the input of `avg_pool3d`."""
    return avg_pool2d_backward(*args, **options, rank=3)


# ---- adaptive windows ------------------------------------------------------------------------------------------------


@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", wide=True)
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means of a given number of windows."""
    sizes = (*x.sizes[: x.ndim - len(output_size)], *output_size)
    return filled(x, sizes) if 0 in sizes else adaptive_means(x, output_size)


@aten("_adaptive_avg_pool2d_backward", wide=True)
def adaptive_avg_pool2d_backward(gradient: Tensor, x: Tensor, *, rank: int = 2) -> Tensor:
    """Return the gradient of the input of `_adaptive_avg_pool2d`."""
    if not gradient.size:
        return filled(x, x.sizes)
    for axis in range(x.ndim - rank, x.ndim):
        if gradient.sizes[axis] != x.sizes[axis]:
            gradient = weighted(gradient, area_weights(x.sizes[axis], gradient.sizes[axis]).T, axis)
    return gradient


@aten("_adaptive_avg_pool3d_backward", wide=True)
def adaptive_avg_pool3d_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of the input of `_adaptive_avg_pool3d`."""
    return adaptive_avg_pool2d_backward(gradient, x, rank=3)


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the maxima of a given number of windows, and their indices in the image or volume."""
    rank = len(output_size)
    spatial = x.sizes[x.ndim - rank :]
    sizes = (*x.sizes[: x.ndim - rank], *output_size)
    if 0 in sizes:
        return filled(x, sizes), filled(x, sizes, 0, DataType.INT64)
    axes = [adaptive_places(old, new) for old, new in zip(spatial, output_size, strict=True)]
    places = _combined(axes, spatial)
    rows = x.reshape(-1, math.prod(spatial))
    index = x._beside(places.reshape(-1).astype(np.int32))
    return _maxima(rows._taken(index, 1, "adaptive_max_pool"), x._beside(places), sizes)


def _maxima(gathered: Tensor, places: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the maxima of windows {planes, windows * elements}, and their positions, given those of elements {...,
    elements}."""
    windows = gathered.reshape(gathered.sizes[0], -1, places.sizes[-1])
    best: Tensor = directml.argmax(windows, axes=(2,), output_type=DataType.INT64)
    if windows.data_type.is_float:  # NaN is greater than all numbers
        is_nan = directml.element_wise_is_nan(windows)
        first: Tensor = directml.argmax(is_nan, axes=(2,), output_type=DataType.INT64)
        best = first._chosen(directml.gather_elements(is_nan, first, axis=2) != 0, best)
    values: Tensor = directml.gather_elements(windows, best, axis=2)
    table = places.broadcast_to((*windows.sizes[:2], places.sizes[-1]))
    indices: Tensor = directml.gather_elements(table, best, axis=2)
    return values.reshape(sizes), indices.astype(DataType.INT64).reshape(sizes)


def _combined(axes: Sequence[NDArray[np.int64]], spatial: Sequence[int]) -> NDArray[np.int64]:
    """Return the flat index of each element of each window {windows, elements}."""
    flat = np.zeros((1, 1), np.int64)
    for places, size in zip(axes, spatial, strict=True):
        flat = flat[:, None, :, None] * size + places[None, :, None, :]
        flat = flat.reshape(flat.shape[0] * flat.shape[1], -1)
    return flat


# ---- random windows --------------------------------------------------------------------------------------------------


@aten("fractional_max_pool2d", "fractional_max_pool3d", reads=True)
def fractional_max_pool(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the maxima of windows at random positions, and their indices in the image or volume."""
    rank = len(output_size)
    spatial = x.sizes[x.ndim - rank :]
    sizes = (*x.sizes[: x.ndim - rank], *output_size)
    if 0 in sizes:
        return filled(x, sizes), filled(x, sizes, 0, DataType.INT64)
    rows = x.reshape(-1, math.prod(spatial))
    samples = random_samples.numpy().reshape(-1, rank)
    if rank == 2:
        samples = samples[:, ::-1]  # PyTorch takes the random number of the last axis first, but not for volumes
    places = np.stack([_random_places(sample, spatial, output_size, kernel_size) for sample in samples])
    index = x._beside(places.reshape(len(samples), -1).astype(np.int32))
    gathered: Tensor = directml.gather_elements(rows, index, axis=1)
    return _maxima(gathered, x._beside(places), sizes)


def _random_places(
    samples: NDArray[Any], spatial: Sequence[int], output_size: Sequence[int], kernel_size: Sequence[int]
) -> NDArray[np.int64]:
    """Return the flat index of each element of each window of a plane, by a random number per axis."""
    axes = []
    for sample, old, new, kernel in zip(samples, spatial, output_size, kernel_size, strict=True):
        begin = np.full(new, old - kernel)
        if new > 1:
            alpha = np.float32(old - kernel) / np.float32(new - 1)
            steps = np.arange(new - 1, dtype=np.float32)
            sample32 = np.float32(sample)
            begin[:-1] = ((steps + sample32) * alpha).astype(np.int64) - np.int64(sample32 * alpha)
        axes.append(begin[:, None] + np.arange(kernel))
    return _combined(axes, spatial)


# ---- by indices ------------------------------------------------------------------------------------------------------


@aten("max_unpool2d")
def max_unpool2d(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return zeros, and the elements of `x` at the places that indices name in each plane."""
    rank = len(output_size)
    sizes = (*x.sizes[: x.ndim - rank], *output_size)
    if not x.size:
        return filled(x, sizes)
    rows, places = (tensor.reshape(-1, math.prod(x.sizes[x.ndim - rank :])) for tensor in (x, indices))
    zeros = filled(x, (rows.sizes[0], math.prod(output_size)))
    result: Tensor = directml.scatter_elements(zeros, places, rows, axis=1)
    return result.reshape(sizes)


@aten("max_unpool3d")
def max_unpool3d(x: Tensor, indices: Tensor, output_size: Sequence[int], *_: Any) -> Tensor:
    """Return zeros, and the elements of `x` at the places that indices name in each volume."""
    return max_unpool2d(x, indices, output_size)


def _scattered_backward(gradient: Tensor, x: Tensor, indices: Tensor, rank: int) -> Tensor:
    """Return sums of gradients at the places that indices name in each plane of `x`, by comparing places."""
    if not gradient.size:
        return filled(x, x.sizes)
    count, area = (math.prod(tensor.sizes[tensor.ndim - rank :]) for tensor in (gradient, x))
    places = indices.reshape(-1, count, 1)
    numbers = sequence(area, 0, 1, DataType.INT64, x.device)
    values = gradient.reshape(-1, 1, count)
    marks = (places == numbers).astype(gradient.data_type)
    result: Tensor = values @ marks
    return result.reshape(x.sizes)


@aten("adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Return the gradient of the input of `adaptive_max_pool2d`."""
    return _scattered_backward(gradient, x, indices, 2)


@aten("adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Return the gradient of the input of `adaptive_max_pool3d`."""
    return _scattered_backward(gradient, x, indices, 3)


@aten("fractional_max_pool2d_backward")
def fractional_max_pool2d_backward(gradient: Tensor, x: Tensor, _: Any, __: Any, indices: Tensor) -> Tensor:
    """Return the gradient of the input of `fractional_max_pool2d`."""
    return _scattered_backward(gradient, x, indices, 2)


@aten("fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(gradient: Tensor, x: Tensor, _: Any, __: Any, indices: Tensor) -> Tensor:
    """Return the gradient of the input of `fractional_max_pool3d`."""
    return _scattered_backward(gradient, x, indices, 3)
