"""Convolution of signals, images and volumes {N, C, ...}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import ConvolutionDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose2d"]

Extent: TypeAlias = int | Sequence[int]
"""One number for all spatial axes, or one for each."""

Padding: TypeAlias = int | Sequence[int | tuple[int, int]] | str
"""Padding on both sides of all spatial axes, on both sides of each axis, or before and after each; for convolutions
also ``"valid"``, none, or ``"same"``, enough to make the result as large as the input."""

Activation: TypeAlias = OperatorDesc | str | None
"""A fused activation, by description or by name: ``"relu"``."""

_NATURAL = coercion.between(0, 2**32 - 1)


@eager
def conv1d(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Convolve signals with filters.

    The window is not reversed: this is a cross-correlation, as in PyTorch and ONNX.

    Args:
        x: Signals, tensor or array of float32 or float16, {N, C, W}.
        weight: Filters of the dtype of `x`, {F, C / groups, K}.
        bias: Summand per channel of the result, {F}; defaults to None, no summand.
        stride: Step of the window, for all spatial axes or for each; defaults to 1.
        padding: Zeros around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each; `"valid"` for none, or, with a stride of 1, `"same"` for a result as large as `x`. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        groups: Number of groups into which the channels are divided; defaults to 1.
        activation: Fused activation, by name, `"relu"`, or by description; defaults to None.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, F, W'} of the dtype of `x` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If ranks, channels or dtypes do not fit, or the window is larger than the padded `x`.

    Examples:
        >>> ops.conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]])
        array([[[3., 5.]]], dtype=float32)

    See also:
        `conv2d`, `conv3d`.

    Computed by CONVOLUTION (`ns-directml-dml_convolution_operator_desc`).
    """
    return _convolved(1, x, weight, bias, (stride, padding, dilation), groups, activation)


@eager
def conv2d(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Convolve images with filters.

    The window is not reversed: this is a cross-correlation, as in PyTorch and ONNX.

    Args:
        x: Images, tensor or array of float32 or float16, {N, C, H, W}.
        weight: Filters of the dtype of `x`, {F, C / groups, KH, KW}.
        bias: Summand per channel of the result, {F}; defaults to None, no summand.
        stride: Step of the window, for all spatial axes or for each; defaults to 1.
        padding: Zeros around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each; `"valid"` for none, or, with a stride of 1, `"same"` for a result as large as `x`. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        groups: Number of groups into which the channels are divided; defaults to 1.
        activation: Fused activation, by name, `"relu"`, or by description; defaults to None.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, F, H', W'} of the dtype of `x` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If ranks, channels or dtypes do not fit, or the window is larger than the padded `x`.

    Examples:
        >>> image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
        >>> ops.conv2d(image, np.ones((1, 1, 2, 2), np.float32))
        array([[[[ 8., 12.],
                 [20., 24.]]]], dtype=float32)
        >>> ops.conv2d(image, np.ones((4, 1, 3, 3), np.float32), padding=1).shape
        (1, 4, 3, 3)

    See also:
        `conv1d`, `conv3d`, `conv_transpose2d`, `max_pool2d`.

    Computed by CONVOLUTION (`ns-directml-dml_convolution_operator_desc`).
    """
    return _convolved(2, x, weight, bias, (stride, padding, dilation), groups, activation)


@eager
def conv3d(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Convolve volumes with filters.

    The window is not reversed: this is a cross-correlation, as in PyTorch and ONNX.

    Args:
        x: Volumes, tensor or array of float32 or float16, {N, C, D, H, W}.
        weight: Filters of the dtype of `x`, {F, C / groups, KD, KH, KW}.
        bias: Summand per channel of the result, {F}; defaults to None, no summand.
        stride: Step of the window, for all spatial axes or for each; defaults to 1.
        padding: Zeros around `x`: a number for all sides, one for each spatial axis, or a pair (before, after) for
            each; `"valid"` for none, or, with a stride of 1, `"same"` for a result as large as `x`. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        groups: Number of groups into which the channels are divided; defaults to 1.
        activation: Fused activation, by name, `"relu"`, or by description; defaults to None.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, F, D', H', W'} of the dtype of `x` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If ranks, channels or dtypes do not fit, or the window is larger than the padded `x`.

    Examples:
        >>> volume = np.ones((1, 2, 4, 4, 4), np.float32)
        >>> ops.conv3d(volume, np.ones((3, 2, 2, 2, 2), np.float32)).shape
        (1, 3, 3, 3, 3)

    See also:
        `conv1d`, `conv2d`.

    Computed by CONVOLUTION (`ns-directml-dml_convolution_operator_desc`).
    """
    return _convolved(3, x, weight, bias, (stride, padding, dilation), groups, activation)


@eager
def conv_transpose2d(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    output_padding: Extent = 0,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Convolve images with filters, transposed: the gradient of `conv2d` by its input.

    Args:
        x: Images, tensor or array of float32 or float16, {N, C, H, W}.
        weight: Filters of the dtype of `x`, {C, F / groups, KH, KW}.
        bias: Summand per channel of the result, {F}; defaults to None, no summand.
        stride: Step between elements of `x` in the result; defaults to 1.
        padding: Elements cut off the result: a number for all sides, one for each spatial axis, or a pair (before,
            after) for each. Defaults to 0.
        dilation: Step between elements of the window; defaults to 1.
        groups: Number of groups into which the channels are divided; defaults to 1.
        output_padding: Elements added at the end of the result, for all spatial axes or for each; defaults to 0.
        activation: Fused activation, by name, `"relu"`, or by description; defaults to None.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, F, H', W'} of the dtype of `x` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If ranks, channels or dtypes do not fit.

    Examples:
        >>> ops.conv_transpose2d([[[[1.0, 2.0]]]], [[[[1.0, 10.0]]]], stride=(1, 2))
        array([[[[ 1., 10.,  2., 20.]]]], dtype=float32)

    See also:
        `conv2d`, `resize`.

    Computed by CONVOLUTION (`ns-directml-dml_convolution_operator_desc`) with `direction=BACKWARD`.
    """
    direction = ConvolutionDirection.BACKWARD
    steps = (stride, padding, dilation)
    return _convolved(2, x, weight, bias, steps, groups, activation, direction, output_padding)


def _convolved(
    spatial: int,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    steps: tuple[Any, Any, Any],
    groups: int,
    activation: Activation,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    output_padding: Extent = 0,
) -> Array:
    image, filters, addend = with_spatial_axes("x", x, spatial), with_spatial_axes("weight", weight, spatial), None
    if bias is not None:
        tensor = tensor_of("bias", bias)
        if tensor.ndim != 1:
            raise InvalidArgument(f"{caller()}: bias must have one dimension, got sizes {list(tensor.sizes)}")
        addend = tensor.expand_dims((0, *range(2, spatial + 2)))
    stride, padding, dilation = steps
    if isinstance(padding, str) and direction is ConvolutionDirection.FORWARD:
        windows = zip(filters.sizes[2:], per_axis("dilation", dilation, spatial), strict=True)
        reach = [width * (size - 1) for size, width in windows]
        padding = _named_padding(padding, reach, per_axis("stride", stride, spatial))
    before, after = padding_of(padding, spatial)
    return directml.convolution(
        image,
        filters,
        addend,
        direction=direction,
        strides=per_axis("stride", stride, spatial),
        dilations=per_axis("dilation", dilation, spatial),
        start_padding=before,
        end_padding=after,
        output_padding=per_axis("output_padding", output_padding, spatial),
        group_count=coercion.argument(caller(), "groups", coercion.between(1, 2**32 - 1), groups),
        fused_activation=activation,
    )


def with_spatial_axes(name: str, value: Operand, spatial: int) -> Tensor:
    """Return an operand that must have as many spatial axes, after batch and channels."""
    tensor = tensor_of(name, value)
    if tensor.ndim != spatial + 2:
        raise InvalidArgument(f"{caller()}: {name} must have {spatial + 2} dimensions, got sizes {list(tensor.sizes)}")
    return tensor


def per_axis(name: str, value: Any, spatial: int) -> tuple[int, ...]:
    """Return a number for each spatial axis."""
    number = coercion.as_index(value)
    numbers = (
        (number,) * spatial
        if number is not None
        else coercion.argument(caller(), name, coercion.tuple_of(_NATURAL, "integers"), value)
    )
    if len(numbers) != spatial or not all(0 <= number < 2**32 for number in numbers):
        raise InvalidArgument(
            f"{caller()}: {name} must be an integer of at least 0, or {spatial} of them, got {shown(value)}"
        )
    return numbers


def _named_padding(padding: str, reach: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding that a word stands for, by how far a window reaches along each spatial axis."""
    if padding not in ("same", "valid") or (padding == "same" and any(step != 1 for step in strides)):
        expected = "integers, 'valid', or 'same' for a stride of 1"
        raise InvalidArgument(f"{caller()}: padding must be {expected}, got {shown(padding)}")
    return [(0, 0) if padding == "valid" else (extent // 2, extent - extent // 2) for extent in reach]


def padding_of(padding: Any, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis."""
    if isinstance(padding, list | tuple) and padding and isinstance(padding[0], list | tuple):
        if len(padding) == spatial and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in padding):
            before, after = zip(*padding, strict=True)
            return per_axis("padding", before, spatial), per_axis("padding", after, spatial)
        raise InvalidArgument(f"{caller()}: padding must be {spatial} pairs (before, after), got {shown(padding)}")
    both = per_axis("padding", padding, spatial)
    return both, both
