"""Conv and ConvTranspose, and their variants of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog.enums import ConvolutionDirection
from dmlgpu.frontends.onnx.expressions import broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode, checked_shape
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.operators.activation import activated
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.spatial import SlidingWindow, window_of, with_dimensions
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


def sliding(window: SlidingWindow) -> dict[str, Any]:
    """Return the arguments of DirectML's operators that describe sliding windows."""
    return {
        "strides": window.strides,
        "dilations": window.dilations,
        "start_padding": window.start,
        "end_padding": window.end,
    }


def _bias(node: OnnxNode, index: int, rank: int) -> Tensor | None:
    if not node.has(index):
        return None
    bias = node.tensor(index)
    return reshaped(bias, (1, bias.sizes[0], *(1,) * (rank - 2)))


@operator("Conv")
def convolution(node: OnnxNode) -> OnnxValue:
    """Slide filters over the spatial dimensions."""
    x, filters = node.tensor(0), node.tensor(1)
    if not 3 <= len(x.sizes) <= 5:
        raise node.rejection(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    window = window_of(node, node.integers("kernel_shape") or filters.sizes[2:], x.sizes[2:])
    rank = max(len(x.sizes), 4)
    wide = window.with_leading(rank - len(x.sizes))
    result = directml.convolution(
        with_dimensions(x, rank),
        with_dimensions(filters, rank),
        _bias(node, 2, rank),
        **sliding(wide),
        group_count=node.integer("group", 1),
    )
    return node.valued(result, (*result.sizes[:2], *window.outputs(x.sizes[2:])))


@operator("ConvTranspose")
def transposed_convolution(node: OnnxNode) -> OnnxValue:
    """Spread each element over the outputs that a convolution would have read it from."""
    node.check_rank(0, 3, 4, 5)
    shape = node.shape(0)
    node.check_rank(1, len(shape))
    channels, spatial = node.shape(1)[1] * node.integer("group", 1), shape[2:]
    rank, count = max(len(shape), 4), len(spatial)
    sizes = node.integers("kernel_shape", count) or node.shape(1)[2:]
    strides = node.integers("strides", count) or (1,) * count
    dilations = node.integers("dilations", count) or (1,) * count
    extra = node.integers("output_padding", count) or (0,) * count
    pads = node.integers("pads", 2 * count) or (0,) * (2 * count)
    start, end = list(pads[:count]), list(pads[count:])
    mode, output_shape = node.text("auto_pad", "NOTSET"), node.integers("output_shape")
    full = [
        (size - 1) * stride + added + (kernel - 1) * dilation + 1
        for size, stride, added, kernel, dilation in zip(spatial, strides, extra, sizes, dilations, strict=True)
    ]
    if output_shape is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    if output_shape is not None:
        if len(output_shape) not in (count, len(shape)):
            raise node.rejection(f"output_shape must have {count} or {len(shape)} sizes, got {list(output_shape)}")
        for index, (has, want) in enumerate(zip(full, output_shape[-count:], strict=True)):
            total = max(has - want, 0)
            extra = (*extra[:index], extra[index] + max(want - has, 0), *extra[index + 1 :])
            less, more = total // 2, total - total // 2
            start[index], end[index] = (less, more) if mode == "SAME_UPPER" else (more, less)
    if node.value(0).is_empty:  # there is nothing to convolve: every output is the bias
        result = [size - before - behind for size, before, behind in zip(full, start, end, strict=True)]
        if not shape[0]:
            return node.known(np.zeros(checked_shape(node, (0, channels, *result)), node.data_type(0).numpy))
        bias = _bias(node, 2, len(shape))
        zero = node.constant([0], node.data_type(0)) if bias is None else bias
        return node.valued(broadcast_to(zero, checked_shape(node, (shape[0], channels, *result))))
    x, filters = node.tensor(0), node.tensor(1)
    ones, zeros = (1,) * (rank - 2 - count), (0,) * (rank - 2 - count)
    output = directml.convolution(
        with_dimensions(x, rank),
        with_dimensions(filters, rank),
        _bias(node, 2, rank),
        direction=ConvolutionDirection.BACKWARD,
        strides=(*ones, *strides),
        dilations=(*ones, *dilations),
        start_padding=(*zeros, *start),
        end_padding=(*zeros, *end),
        output_padding=(*zeros, *extra),
        group_count=node.integer("group", 1),
    )
    return node.valued(output, (*output.sizes[:2], *output.sizes[rank - count :]))


@operator("FusedConv", domain=MICROSOFT)
def fused_convolution(node: OnnxNode) -> OnnxValue:
    """Conv, then a sum, then an activation."""
    plain = convolution(node)
    result = node.expression(plain)
    if node.has(3):
        result = dml.add(result, reshaped(node.tensor(3), result.sizes))
    return node.valued(activated(node, result, node.numbers("activation_params") or ()), plain.shape)


@operator("NhwcConv", domain=MICROSOFT)
def nhwc_convolution(node: OnnxNode) -> OnnxValue:
    """Convolve images with filters, both with the channels last."""
    last, first = (0, 3, 1, 2), (0, 2, 3, 1)
    for index in (0, 1):
        node.check_rank(index, 4)
    turned = [node.valued(dml.identity(transposed(node.tensor(index), last))) for index in (0, 1)]
    plain = convolution(node.replaced([*turned, *node.inputs[2:]]))
    return node.valued(transposed(node.expression(plain), first))


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT, host=(2,))
def transposed_convolution_with_pads(node: OnnxNode) -> OnnxValue:
    """ConvTranspose whose padding is an input."""
    node.check_rank(0, 3, 4, 5)
    count = 2 * (len(node.shape(0)) - 2)
    pads = node.host_integers(2, count) if node.has(2) else (0,) * count
    bias = node.inputs[3] if node.has(3) else None
    return transposed_convolution(node.replaced([*node.inputs[:2], bias], pads=pads))
