"""Convolution and pooling of signals, images and volumes {N, C, ...}."""

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

__all__ = ["avg_pool2d", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "max_pool2d"]

Extent: TypeAlias = int | Sequence[int]
"""One number for all spatial axes, or one for each."""

Padding: TypeAlias = int | Sequence[int | tuple[int, int]] | str
"""How many on both sides of all spatial axes, of each axis, or before and after each; of convolutions ``"valid"``,
none, or ``"same"``, as many as make the result as large as the input."""

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
    """Convolve signals {N, C, W} with ``weight`` {F, C / groups, W}; see ``conv2d``."""
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
    """Convolve images {N, C, H, W} with ``weight`` {F, C / groups, H, W}, as a cross-correlation.

    Args:
        x: Tensor or array of float32 or float16.
        weight: Filters of the dtype of x.
        bias: Added to each channel of the result, {F}.
        stride: Step of the window, for all spatial axes or for each.
        padding: Zeros around x: for all sides, for each spatial axis, or pairs (before, after); ``"valid"`` means none,
            ``"same"`` as many as make the result as large as x, for a stride of 1.
        dilation: Step between elements of the window.
        groups: Into how many groups the channels are divided.
        activation: Fused activation, applied to the result.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If the shapes do not fit.
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
    """Convolve volumes {N, C, D, H, W} with ``weight`` {F, C / groups, D, H, W}; see ``conv2d``."""
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
    """Convolve images {N, C, H, W} with ``weight`` {C, F / groups, H, W}, transposed.

    Args:
        x, weight, dilation, groups, activation: As for ``conv2d``.
        bias: Added to each channel of the result, {F}.
        stride: Step between elements of x in the result.
        padding: Elements cut off the result on each side.
        output_padding: Elements added to the result at its ends.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If the shapes do not fit.
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
    image, filters, addend = _spatial("x", x, spatial), _spatial("weight", weight, spatial), None
    if bias is not None:
        tensor = tensor_of("bias", bias)
        if tensor.ndim != 1:
            raise InvalidArgument(f"{caller()}: bias must have one dimension, got sizes {list(tensor.sizes)}")
        addend = tensor.expand_dims((0, *range(2, spatial + 2)))
    stride, padding, dilation = steps
    if isinstance(padding, str) and direction is ConvolutionDirection.FORWARD:
        windows = zip(filters.sizes[2:], _extent("dilation", dilation, spatial), strict=True)
        reach = [width * (size - 1) for size, width in windows]
        padding = _named_padding(padding, reach, _extent("stride", stride, spatial))
    before, after = _padding(padding, spatial)
    return directml.convolution(
        image,
        filters,
        addend,
        direction=direction,
        strides=_extent("stride", stride, spatial),
        dilations=_extent("dilation", dilation, spatial),
        start_padding=before,
        end_padding=after,
        output_padding=_extent("output_padding", output_padding, spatial),
        group_count=coercion.argument(caller(), "groups", coercion.between(1, 2**32 - 1), groups),
        fused_activation=activation,
    )


@eager
def max_pool2d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    *,
    device: Where = None,
) -> Array:
    """Return the largest element of each window of images {N, C, H, W}; ``stride`` defaults to ``kernel_size``."""
    windows = _windows(kernel_size, stride, padding, dilation)
    return directml.max_pooling2(_spatial("x", x, 2), **windows, output_indices=False).output


@eager
def avg_pool2d(
    x: Operand,
    kernel_size: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    include_padding: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return the mean of each window of images {N, C, H, W}; ``stride`` defaults to ``kernel_size``.

    ``include_padding`` counts the padding's zeros.
    """
    windows = _windows(kernel_size, stride, padding, dilation)
    return directml.average_pooling1(_spatial("x", x, 2), **windows, include_padding=include_padding)


def _windows(kernel_size: Extent, stride: Extent | None, padding: Padding, dilation: Extent) -> dict[str, Any]:
    """Return DirectML's attributes of pooling."""
    sizes = _extent("kernel_size", kernel_size, 2)
    before, after = _padding(padding, 2)
    return {
        "window_size": sizes,
        "strides": sizes if stride is None else _extent("stride", stride, 2),
        "start_padding": before,
        "end_padding": after,
        "dilations": _extent("dilation", dilation, 2),
    }


def _spatial(name: str, value: Operand, spatial: int) -> Tensor:
    tensor = tensor_of(name, value)
    if tensor.ndim != spatial + 2:
        raise InvalidArgument(f"{caller()}: {name} must have {spatial + 2} dimensions, got sizes {list(tensor.sizes)}")
    return tensor


def _extent(name: str, value: Any, spatial: int) -> tuple[int, ...]:
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


def _padding(padding: Any, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis."""
    if isinstance(padding, list | tuple) and padding and isinstance(padding[0], list | tuple):
        if len(padding) == spatial and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in padding):
            before, after = zip(*padding, strict=True)
            return _extent("padding", before, spatial), _extent("padding", after, spatial)
        raise InvalidArgument(f"{caller()}: padding must be {spatial} pairs (before, after), got {shown(padding)}")
    both = _extent("padding", padding, spatial)
    return both, both
