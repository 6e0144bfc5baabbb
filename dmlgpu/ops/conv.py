"""Sliding windows: convolution and pooling of signals, images and volumes {N, C, ...}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import ConvolutionDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "max_pool2d",
]

Extent: TypeAlias = int | Sequence[int]
"""One number for all spatial axes, or one for each."""

Padding: TypeAlias = int | Sequence[int | tuple[int, int]]
"""How many on both sides of all spatial axes, of each axis, or before and after each."""

Activation: TypeAlias = OperatorDesc | str | None
"""A fused activation, by description or by name: ``"relu"``."""

_NATURAL = kinds.between(0, 2**32 - 1)


@eager
def conv1d(
    x: Operand,
    filter: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Cross-correlation of signals {N, C, W} with filters {F, C / groups, W}; see ``conv2d``."""
    return _convolved(1, x, filter, bias, (stride, padding, dilation), groups, activation)


@eager
def conv2d(
    x: Operand,
    filter: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Cross-correlation of images {N, C, H, W} with filters {F, C / groups, H, W}.

    Args:
        x: FLOAT32 or FLOAT16.
        filter: of x's type.
        bias: added to each channel of the result, {F}.
        stride: steps of the window.
        padding: zeros around x.
        dilation: steps between elements of the window.
        groups: into how many parts channels are cut.
        activation: applied to the result.

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    return _convolved(2, x, filter, bias, (stride, padding, dilation), groups, activation)


@eager
def conv3d(
    x: Operand,
    filter: Operand,
    bias: Operand | None = None,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
    activation: Activation = None,
    *,
    device: Where = None,
) -> Array:
    """Cross-correlation of volumes {N, C, D, H, W} with filters {F, C / groups, D, H, W}; see ``conv2d``."""
    return _convolved(3, x, filter, bias, (stride, padding, dilation), groups, activation)


@eager
def conv_transpose2d(
    x: Operand,
    filter: Operand,
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
    """Transposed convolution of images {N, C, H, W} with filters {C, F / groups, H, W}.

    Args:
        x, filter, dilation, groups, activation: as for ``conv2d``.
        bias: added to each channel of the result, {F}.
        stride: steps between elements of x in the result.
        padding: what is cut off the result.
        output_padding: what the result has more at its ends.

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    direction = ConvolutionDirection.BACKWARD
    steps = (stride, padding, dilation)
    return _convolved(2, x, filter, bias, steps, groups, activation, direction, output_padding)


def _convolved(
    spatial: int,
    x: Operand,
    filter: Operand,
    bias: Operand | None,
    steps: tuple[Any, Any, Any],
    groups: int,
    activation: Activation,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    output_padding: Extent = 0,
) -> Array:
    image, window = _spatial("x", x, spatial), _spatial("filter", filter, spatial)
    added = None
    if bias is not None:
        tensor = tensor_of("bias", bias)
        if tensor.ndim != 1:
            raise InvalidArgument(f"{caller()}: bias must have one dimension, got sizes {list(tensor.sizes)}")
        added = tensor.expand_dims((0, *range(2, spatial + 2)))
    stride, padding, dilation = steps
    before, after = _padding(padding, spatial)
    return directml.convolution(
        image,
        window,
        added,
        direction=direction,
        strides=_extent("stride", stride, spatial),
        dilations=_extent("dilation", dilation, spatial),
        start_padding=before,
        end_padding=after,
        output_padding=_extent("output_padding", output_padding, spatial),
        group_count=kinds.argument(caller(), "groups", kinds.between(1, 2**32 - 1), groups),
        fused_activation=activation,
    )


@eager
def max_pool2d(
    x: Operand,
    window: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    *,
    device: Where = None,
) -> Array:
    """Largest element of each window of images {N, C, H, W}; the stride is the window's size unless given."""
    image, sizes = _spatial("x", x, 2), _extent("window", window, 2)
    before, after = _padding(padding, 2)
    found = directml.max_pooling2(
        image,
        window_size=sizes,
        strides=sizes if stride is None else _extent("stride", stride, 2),
        start_padding=before,
        end_padding=after,
        dilations=_extent("dilation", dilation, 2),
        output_indices=False,
    )
    return found.output


@eager
def avg_pool2d(
    x: Operand,
    window: Extent,
    stride: Extent | None = None,
    padding: Padding = 0,
    dilation: Extent = 1,
    include_padding: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Mean of each window of images {N, C, H, W}, of the padding's zeros too where ``include_padding``; the stride is
    the window's size unless given."""
    image, sizes = _spatial("x", x, 2), _extent("window", window, 2)
    before, after = _padding(padding, 2)
    return directml.average_pooling1(
        image,
        window_size=sizes,
        strides=sizes if stride is None else _extent("stride", stride, 2),
        start_padding=before,
        end_padding=after,
        dilations=_extent("dilation", dilation, 2),
        include_padding=include_padding,
    )


def _spatial(name: str, value: Operand, spatial: int) -> Tensor:
    tensor = tensor_of(name, value)
    if tensor.ndim != spatial + 2:
        raise InvalidArgument(f"{caller()}: {name} must have {spatial + 2} dimensions, got sizes {list(tensor.sizes)}")
    return tensor


def _extent(name: str, given: Any, spatial: int) -> tuple[int, ...]:
    """Return a number for each spatial axis."""
    one = kinds.as_index(given)
    found = (
        (one,) * spatial
        if one is not None
        else kinds.argument(caller(), name, kinds.tuple_of(_NATURAL, "integers"), given)
    )
    if len(found) != spatial or not all(0 <= number < 2**32 for number in found):
        raise InvalidArgument(
            f"{caller()}: {name} must be an integer of at least 0, or {spatial} of them, got {shown(given)}"
        )
    return found


def _padding(given: Any, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis."""
    if isinstance(given, list | tuple) and given and isinstance(given[0], list | tuple):
        if len(given) == spatial and all(isinstance(one, list | tuple) and len(one) == 2 for one in given):
            before, after = zip(*given, strict=True)
            return _extent("padding", before, spatial), _extent("padding", after, spatial)
        raise InvalidArgument(f"{caller()}: padding must be {spatial} pairs (before, after), got {shown(given)}")
    both = _extent("padding", given, spatial)
    return both, both
