"""Convolutions, transposed convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dmlgpu.catalog.enums import ConvolutionDirection
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.layers import filter_gradient
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.tensor import Tensor


def _steps(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, rank: int
) -> dict[str, Any]:
    """Return DirectML's attributes of a convolution with `rank` spatial axes."""
    strides, paddings, dilations = (
        tuple(values) * rank if len(values) == 1 else tuple(values) for values in (stride, padding, dilation)
    )
    return {
        "strides": strides,
        "dilations": dilations,
        "start_padding": paddings,
        "end_padding": paddings,
        "group_count": groups,
    }


@aten("convolution_overrideable", "convolution")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve signals, images or volumes."""
    if not (x.size and weight.size):
        return _of_nothing(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    rank = x.ndim - 2
    addend = None if bias is None else bias.expand_dims((0, *range(2, x.ndim)))
    result: Tensor = directml.convolution(
        x,
        weight,
        addend,
        direction=ConvolutionDirection.BACKWARD if transposed else ConvolutionDirection.FORWARD,
        output_padding=tuple(output_padding) * rank if len(output_padding) == 1 else tuple(output_padding),
        **_steps(stride, padding, dilation, groups, rank),
    )
    return result


def _of_nothing(x: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    """Return the convolution of no images, or of images without channels, which has no elements either."""
    image, filters = (torch.empty(operand.sizes, device="meta") for operand in (x, weight))
    sizes = tuple(torch.ops.aten.convolution(image, filters, None, *arguments).shape)
    is_biased = bias is not None and bias.size == sizes[1]
    addend = bias.expand_dims((0, *range(2, x.ndim))) if bias is not None and is_biased else filled(x, (1,) * x.ndim)
    return addend.broadcast_to(sizes)


@aten("convolution_backward_overrideable")
def convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of the input, the weight and the bias of a convolution."""
    rank = x.ndim - 2
    steps = _steps(stride, padding, dilation, groups, rank)
    of_input = of_weight = of_bias = None
    if not (x.size and weight.size and gradient.size):
        zeros = [
            filled(x, (1,) * len(sizes)).broadcast_to(sizes) for sizes in (x.sizes, weight.sizes, gradient.sizes[1:2])
        ]
        return tuple(part if is_needed else None for part, is_needed in zip(zeros, output_mask, strict=True))  # type: ignore[return-value]
    if output_mask[0]:
        of_input = _input_gradient(gradient, x, weight, transposed, steps)
    if output_mask[1]:
        image, small = (gradient, x) if transposed else (x, gradient)
        of_weight = filter_gradient(image, small, weight.sizes, **steps)
    if output_mask[2]:
        of_bias = total(gradient, (0, *range(2, x.ndim))).reshape(gradient.sizes[1])
    return of_input, of_weight, of_bias


@aten("convolution_backward")
def convolution_backward_with_sizes(
    gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, *arguments: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients; graphs also pass the sizes of the bias."""
    return convolution_backward(gradient, x, weight, *arguments)


def _input_gradient(gradient: Tensor, x: Tensor, weight: Tensor, transposed: bool, steps: dict[str, Any]) -> Tensor:
    """Return the gradient of the input of a convolution: the convolution in the other direction."""
    if transposed:
        result = directml.convolution(gradient, weight, direction=ConvolutionDirection.FORWARD, **steps)
        view: Tensor = result[(slice(None), slice(None), *(slice(size) for size in x.sizes[2:]))]
        return view
    reached = [
        stride * (count - 1) + dilation * (window - 1) + 1 - 2 * padding
        for stride, count, dilation, window, padding in zip(
            steps["strides"], gradient.sizes[2:], steps["dilations"], weight.sizes[2:], steps["start_padding"],
            strict=True,
        )
    ]  # fmt: skip
    missing = tuple(size - reach for size, reach in zip(x.sizes[2:], reached, strict=True))
    of_input: Tensor = directml.convolution(
        gradient, weight, direction=ConvolutionDirection.BACKWARD, output_padding=missing, **steps
    )
    return of_input


@aten("conv_tbc")
def convolution_of_sequences(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolve sequences {T, B, C} with filters {K, C, F}."""
    images, filters = x.transpose(1, 2, 0), weight.transpose(2, 1, 0)
    return convolution(images, filters, bias, (1,), (pad,), (1,), False, (0,), 1).transpose(2, 0, 1)
