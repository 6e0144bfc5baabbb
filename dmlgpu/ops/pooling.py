"""Pooling of signals, images and volumes {N, C, ...}: means and maxima of sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.conv import Extent, padding_of, per_axis, with_spatial_axes
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, widened
from dmlgpu.tensors.tensor import Tensor

__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"]

Padding: TypeAlias = int | Sequence[int | tuple[int, int]]
"""Padding on both sides of all spatial axes, on both sides of each axis, or before and after each."""


@dataclass(frozen=True)
class PoolingWindows:
    """Windows that slide over spatial axes.

    Attributes:
        spatial: Size of each axis.
        kernel, stride, dilation: Size of the window, its step, and the step between its elements, by axis.
        before, after: Padding by axis.
        ceil_mode: Whether a last window may reach beyond the padding, if it begins before its end.
    """

    spatial: Sequence[int]
    kernel: Sequence[int]
    stride: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    dilation: Sequence[int]
    ceil_mode: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of windows along each axis, by PyTorch's rule."""
        counts = []
        for size, reach, step, before, after in zip(
            self.spatial, self._reach, self.stride, self.before, self.after, strict=True
        ):
            free = size + before + after - reach
            count = (-(-free // step) if self.ceil_mode else free // step) + 1
            is_outside = self.ceil_mode and (count - 1) * step >= size + before
            counts.append(count - 1 if is_outside else count)
        return tuple(counts)

    @property
    def _reach(self) -> list[int]:
        return [width * (size - 1) + 1 for size, width in zip(self.kernel, self.dilation, strict=True)]

    @property
    def end_padding(self) -> tuple[int, ...]:
        """Padding after each axis that the last window reaches, with `ceil_mode` beyond `after`."""
        if not self.ceil_mode:
            return tuple(self.after)
        ends = zip(self.counts, self.stride, self._reach, self.spatial, self.before, strict=True)
        return tuple(max((count - 1) * step + reach - size - before, 0) for count, step, reach, size, before in ends)

    @property
    def is_longer(self) -> bool:
        """Whether a window reaches beyond the padding, so that fewer of its elements count."""
        return any(end > after for end, after in zip(self.end_padding, self.after, strict=True))

    def options(self) -> dict[str, Any]:
        """Return DirectML's attributes."""
        return {
            "window_size": self.kernel,
            "strides": self.stride,
            "start_padding": self.before,
            "end_padding": self.end_padding,
            "dilations": self.dilation,
        }

    def divisors(self, counts_padding: bool) -> NDArray[np.float64]:
        """Return the number of elements of each window that count."""
        result = np.ones(())
        for axis, count in enumerate(self.counts):
            starts = np.arange(count)[:, None] * self.stride[axis] - self.before[axis]
            places = starts + np.arange(self.kernel[axis]) * self.dilation[axis]
            end = self.spatial[axis] + (self.after[axis] if counts_padding else 0)
            result = np.multiply.outer(result, ((places < end) & (counts_padding | (places >= 0))).sum(1))
        return result


def averaged(x: Tensor, windows: PoolingWindows, counts_padding: bool, divisor: int | None = None) -> Tensor:
    """Return the mean of each window of {N, C, ...}, of two or three spatial axes; see ``mean_factor``."""
    scale = mean_factor(x, windows, counts_padding, divisor)
    operand = x if scale is None else widened(x)
    is_sum = counts_padding or scale is not None
    result: Tensor = directml.average_pooling1(operand, **windows.options(), include_padding=is_sum)
    return result if scale is None else (result * scale).astype(x.data_type)


def mean_factor(x: Tensor, windows: PoolingWindows, counts_padding: bool, divisor: int | None) -> Any:
    """Return the factor of means over whole windows: a number, or one per window; None if DirectML's mean is right.

    Args:
        x: Tensor on whose device the factors are needed.
        windows: The windows.
        counts_padding: Whether padding counts; nothing beyond it does.
        divisor: Divides the sums instead of the number of elements that count.
    """
    if divisor is not None:
        return math.prod(windows.kernel) / divisor
    if not windows.is_longer:
        return None
    return x._beside((math.prod(windows.kernel) / windows.divisors(counts_padding)).astype(np.float32))


# ---- sliding windows -------------------------------------------------------------------------------------------------


@eager
def max_pool1d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the largest element of each window of signals.

    Padding is never the largest element.

    Args:
        x: Signals, tensor or array of float32, float16 or integers, {N, C, L}.
        kernel_size: Size of the window.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for both sides, or a pair (before, after) in a list. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, L'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 3, or the window is larger than the padded `x`.

    Examples:
        >>> ops.max_pool1d([[[1.0, 3.0, 2.0, 4.0]]], 2)
        array([[[3., 4.]]], dtype=float32)

    See also:
        `avg_pool1d`, `adaptive_max_pool1d`, `max_pool2d`, `max_pool3d`.

    Computed by MAX_POOLING2 (`ns-directml-dml_max_pooling2_operator_desc`).
    """
    return _slid(1, x, (kernel_size, stride, padding, dilation), ceil_mode, None)


@eager
def avg_pool1d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    include_padding: bool = False,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the mean of each window of signals.

    Args:
        x: Signals, tensor or array of float32 or float16, {N, C, L}.
        kernel_size: Size of the window.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for both sides, or a pair (before, after) in a list. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        include_padding: Whether the padding's zeros count, also called `count_include_pad`. Defaults to False, while
            PyTorch's default is True.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, L'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 3, or the window is larger than the padded `x`.

    Examples:
        >>> ops.avg_pool1d([[[1.0, 3.0, 2.0, 4.0]]], 2)
        array([[[2., 3.]]], dtype=float32)

    See also:
        `max_pool1d`, `adaptive_avg_pool1d`, `avg_pool2d`, `avg_pool3d`.

    Computed by AVERAGE_POOLING1 (`ns-directml-dml_average_pooling1_operator_desc`).
    """
    includes = coercion.argument(caller(), "include_padding", coercion.boolean, include_padding)
    return _slid(1, x, (kernel_size, stride, padding, dilation), ceil_mode, includes)


@eager
def max_pool2d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the largest element of each window of images.

    Padding is never the largest element.

    Args:
        x: Images, tensor or array of float32, float16 or integers, {N, C, H, W}.
        kernel_size: Size of the window, for both spatial axes or for each.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, H', W'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 4, or the window is larger than the padded `x`.

    Examples:
        >>> ops.max_pool2d([[[[1.0, 2.0], [3.0, 4.0]]]], 2)
        array([[[[4.]]]], dtype=float32)

    See also:
        `avg_pool2d`, `adaptive_max_pool2d`, `max_pool1d`, `max_pool3d`.

    Computed by MAX_POOLING2 (`ns-directml-dml_max_pooling2_operator_desc`).
    """
    return _slid(2, x, (kernel_size, stride, padding, dilation), ceil_mode, None)


@eager
def avg_pool2d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    include_padding: bool = False,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the mean of each window of images.

    Args:
        x: Images, tensor or array of float32 or float16, {N, C, H, W}.
        kernel_size: Size of the window, for both spatial axes or for each.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        include_padding: Whether the padding's zeros count, also called `count_include_pad`. Defaults to False, while
            PyTorch's default is True.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, H', W'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 4, or the window is larger than the padded `x`.

    Examples:
        >>> ops.avg_pool2d([[[[1.0, 2.0], [3.0, 4.0]]]], 2)
        array([[[[2.5]]]], dtype=float32)

    See also:
        `max_pool2d`, `adaptive_avg_pool2d`, `avg_pool1d`, `avg_pool3d`.

    Computed by AVERAGE_POOLING1 (`ns-directml-dml_average_pooling1_operator_desc`).
    """
    includes = coercion.argument(caller(), "include_padding", coercion.boolean, include_padding)
    return _slid(2, x, (kernel_size, stride, padding, dilation), ceil_mode, includes)


@eager
def max_pool3d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the largest element of each window of volumes.

    Padding is never the largest element.

    Args:
        x: Volumes, tensor or array of float32, float16 or integers, {N, C, D, H, W}.
        kernel_size: Size of the window, for all spatial axes or for each.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, D', H', W'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 5, or the window is larger than the padded `x`.

    Examples:
        >>> ops.max_pool3d(np.ones((1, 2, 4, 4, 4), np.float32), 2).shape
        (1, 2, 2, 2, 2)

    See also:
        `avg_pool3d`, `adaptive_max_pool3d`, `max_pool1d`, `max_pool2d`.

    Computed by MAX_POOLING2 (`ns-directml-dml_max_pooling2_operator_desc`).
    """
    return _slid(3, x, (kernel_size, stride, padding, dilation), ceil_mode, None)


@eager
def avg_pool3d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    include_padding: bool = False,
    ceil_mode: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the mean of each window of volumes.

    Args:
        x: Volumes, tensor or array of float32 or float16, {N, C, D, H, W}.
        kernel_size: Size of the window, for all spatial axes or for each.
        stride: Step of the window; defaults to None, `kernel_size`.
        padding: Elements around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        include_padding: Whether the padding's zeros count, also called `count_include_pad`. Defaults to False, while
            PyTorch's default is True.
        ceil_mode: Whether a last window that begins within `x` or its padding may reach beyond the padding, as in
            PyTorch; nothing beyond it counts. Defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, C, D', H', W'} of the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` does not have rank 5, or the window is larger than the padded `x`.

    Examples:
        >>> ops.avg_pool3d(np.ones((1, 2, 4, 4, 4), np.float32), 2).shape
        (1, 2, 2, 2, 2)

    See also:
        `max_pool3d`, `adaptive_avg_pool3d`, `avg_pool1d`, `avg_pool2d`.

    Computed by AVERAGE_POOLING1 (`ns-directml-dml_average_pooling1_operator_desc`).
    """
    includes = coercion.argument(caller(), "include_padding", coercion.boolean, include_padding)
    return _slid(3, x, (kernel_size, stride, padding, dilation), ceil_mode, includes)


def _slid(spatial: int, x: Operand, steps: tuple[Any, Any, Any, Any], ceil_mode: Any, includes: bool | None) -> Tensor:
    """Return the mean of each window, with or without padding; None returns the maximum."""
    image = with_spatial_axes("x", x, spatial)
    kernel_size, stride, padding, dilation = steps
    kernel = per_axis("kernel_size", kernel_size, spatial)
    before, after = padding_of(padding, spatial)
    wide = image.expand_dims(2) if spatial == 1 else image  # DirectML slides over two or three axes
    ones = (1,) * (wide.ndim - image.ndim)
    zeros = (0,) * len(ones)
    windows = PoolingWindows(
        wide.sizes[2:],
        ones + kernel,
        ones + (kernel if stride is None else per_axis("stride", stride, spatial)),
        zeros + before,
        zeros + after,
        ones + per_axis("dilation", dilation, spatial),
        coercion.argument(caller(), "ceil_mode", coercion.boolean, ceil_mode),
    )
    if 0 in (*windows.stride, *windows.kernel, *windows.dilation):
        raise InvalidArgument(f"{caller()}: kernel_size, stride and dilation must be at least 1, got {shown(steps)}")
    if 0 in image.sizes[:2]:
        return filled(image, (*image.sizes[:2], *windows.counts[len(ones) :]))
    if includes is None:
        result: Tensor = directml.max_pooling2(wide, **windows.options(), output_indices=False).output
    else:
        result = averaged(wide, windows, includes)
    return result._renamed((*result.sizes[:2], *result.sizes[2 + len(ones) :]))
