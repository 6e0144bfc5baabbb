"""Normalization by given statistics and by those of the elements, of ONNX and com.microsoft."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import (
    add,
    broadcast_to,
    cast,
    choose,
    divide,
    multiply,
    reshaped,
    spread,
    transposed,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.tensor import Tensor


def per_channel(node: OnnxNode, index: int, rank: int) -> Tensor:
    """Return an input of one element per channel or pixel, with the dimensions of {N, C, ...}."""
    tensor = node.tensor(index)
    if len(tensor.sizes) > 1:
        return reshaped(tensor, (1, *tensor.sizes))
    return reshaped(tensor, (1, tensor.sizes[0], *(1,) * (rank - 2)) if rank > 1 else tensor.sizes)


@operator("BatchNormalization")
def batch_normalization(node: OnnxNode) -> OnnxValue | Sequence[Result]:
    """Normalize channels by given means and variances, in training by their own."""
    x = node.tensor(0)
    if len(x.sizes) < 2:
        x = reshaped(x, (x.sizes[0], 1))
    if node.flag("training_mode") or any(node.wants(index) for index in range(1, 5)):
        return _training(node, x)
    scale, bias, mean, variance = (cast(per_channel(node, index, len(x.sizes)), x.data_type) for index in range(1, 5))
    result = directml.batch_normalization(
        x, mean, variance, scale, bias, spatial=True, epsilon=node.number("epsilon", 1e-5)
    )
    return node.valued(result, node.shape(0))


def _training(node: OnnxNode, x: Tensor) -> Sequence[Result]:
    """Normalize channels by the batch's statistics; return the running ones, and the batch's own before version 14."""
    scale, bias, mean, variance = (per_channel(node, index, len(x.sizes)) for index in range(1, 5))
    wide = widened(x)
    trained = directml.batch_normalization_training(
        wide, cast(scale, wide.data_type), cast(bias, wide.data_type), epsilon=node.number("epsilon", 1e-5)
    )
    momentum, channels = node.number("momentum", 0.9), (x.sizes[1],)
    own = trained.output_mean, trained.output_variance
    running = [
        add(multiply(cast(before, wide.data_type), momentum), multiply(now, 1 - momentum))
        for before, now in zip((mean, variance), own, strict=True)
    ]
    statistics = [reshaped(cast(statistic, mean.data_type), channels) for statistic in (*running, *own)]
    output = node.valued(cast(trained.output, x.data_type), node.shape(0))
    results = [output, *(node.valued(statistic) for statistic in statistics)]
    return results[: len(node.proto.output)]


@operator("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> OnnxValue:
    """Normalize each channel of each image by its own statistics."""
    x = node.tensor(0)
    rank = len(x.sizes)
    result = directml.mean_variance_normalization2(
        x,
        broadcast_to(per_channel(node, 1, rank), x.sizes),
        broadcast_to(per_channel(node, 2, rank), x.sizes),
        axes=tuple(range(2, rank)),
        epsilon=node.number("epsilon", 1e-5),
    )
    return node.valued(result)


@operator("LayerNormalization", since=17)
def layer_normalization(node: OnnxNode) -> OnnxValue | Sequence[Result]:
    """Normalize over the dimensions from an axis on; requested statistics by ONNX's own function."""
    if node.wants(1) or node.wants(2):
        return AS_FUNCTION
    x, shape = node.tensor(0), node.shape(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    data_type = x.data_type
    if data_type.is_reduced_float and node.integer("stash_type", 1) == 1:
        x = dml.cast(x, DataType.FLOAT32)
    result = directml.mean_variance_normalization2(
        x, axes=tuple(range(axis, len(shape))), epsilon=node.number("epsilon", 1e-5)
    )
    result = result if result.data_type is data_type else dml.cast(result, data_type)
    result = dml.multiply(result, broadcast_to(node.tensor(1), x.sizes))
    if node.has(2):
        result = dml.add(result, broadcast_to(node.tensor(2), x.sizes))
    return node.valued(result, shape)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode) -> OnnxValue:
    """Mean 0 and variance 1 over axes."""
    x = node.tensor(0)
    axes = tuple(node.axis(axis, len(x.sizes)) for axis in node.integers("axes") or (0, 2, 3))
    return node.valued(directml.mean_variance_normalization2(x, axes=axes, epsilon=1e-9))


@operator("LRN")
def local_response_normalization(node: OnnxNode) -> OnnxValue:
    """Divide by the squares of adjacent channels."""
    x = node.tensor(0)
    result = directml.local_response_normalization(
        reshaped(x, (*x.sizes[:2], 1, math.prod(x.sizes[2:]))),
        cross_channel=True,
        local_size=node.integer("size"),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )
    return node.valued(result, x.sizes)


@operator("LpNormalization")
def lp_normalization(node: OnnxNode) -> OnnxValue:
    """Divide by the p-norm along an axis; the result is 0 if the norm is."""
    x, p = node.tensor(0), node.integer("p", 2)
    if p not in (1, 2):
        raise node.rejection(f"p must be 1 or 2, got {p}")
    axis = node.axis(node.integer("axis", -1), len(node.shape(0)))
    elements = widened(x)
    norm = dml.reduce(elements, ReduceFunction.L1 if p == 1 else ReduceFunction.L2, axes=(axis,))
    return node.valued(cast(choose(spread(dml.equals, norm, 0), 0, divide(elements, norm)), x.data_type))


_WITH_SMALL_EPSILON = ("EmbedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
"""Operators whose epsilon is 1e-12 by default in onnxruntime."""


def normalized(
    node: OnnxNode,
    x: Tensor,
    axes: Sequence[int],
    *,
    scale: Tensor,
    bias: Tensor | None = None,
    centered: bool = True,
) -> Tensor:
    """Return rows less their mean, divided by their standard deviation, scaled and shifted.

    Float16 is computed as float32.

    Args:
        node: The node with the epsilon.
        x: Any tensor.
        axes: Axes of a row.
        scale, bias: Broadcast with ``x``.
        centered: Whether the mean is subtracted.
    """
    epsilon, sizes = _epsilon(node), x.sizes
    scale, bias = broadcast_to(scale, sizes), None if bias is None else broadcast_to(bias, sizes)
    if not x.data_type.is_reduced_float:
        return directml.mean_variance_normalization2(
            x, scale, bias, axes=tuple(axes), epsilon=epsilon, use_mean=centered
        )
    wide = directml.mean_variance_normalization2(
        dml.cast(x, DataType.FLOAT32), axes=tuple(axes), epsilon=epsilon, use_mean=centered
    )
    result = dml.multiply(dml.cast(wide, x.data_type), scale)
    return result if bias is None else dml.add(result, bias)


def _epsilon(node: OnnxNode) -> float:
    return node.number("epsilon", 1e-12 if node.op_type in _WITH_SMALL_EPSILON else 1e-5)


def _statistics(
    node: OnnxNode, x: Tensor, axes: Sequence[int], first: int, *, centered: bool = True
) -> tuple[Result, Result]:
    """Return the mean and the inverse deviation of rows, outputs ``first`` and the next, or None if not requested."""
    if not (node.wants(first) or node.wants(first + 1)):
        return None, None
    wide = widened(x)
    mean = dml.reduce(wide, ReduceFunction.AVERAGE, axes=axes)
    distance = dml.subtract(wide, broadcast_to(mean, wide.sizes)) if centered else wide
    variance = dml.reduce(dml.multiply(distance, distance), ReduceFunction.AVERAGE, axes=axes)
    inverse = dml.pow(variance + _epsilon(node), -0.5)
    return mean if node.wants(first) else None, inverse if node.wants(first + 1) else None


@operator("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode) -> OnnxValue | Sequence[Result]:
    """Divide by the root of the mean of squares, over the dimensions from an axis on."""
    if node.data_type(0) is not node.data_type(1) or node.integer("stash_type", 1) != 1:
        return AS_FUNCTION
    axes = _axes_from(node)
    return node.valued(normalized(node, node.tensor(0), axes, scale=node.tensor(1), centered=False), node.shape(0))


def _axes_from(node: OnnxNode) -> tuple[int, ...]:
    rank = len(node.shape(0))
    return tuple(range(node.axis(node.integer("axis", -1), rank), rank))


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(node: OnnxNode) -> Sequence[Result]:
    """RMSNormalization, and the inverse of the root mean square."""
    x, axes = node.tensor(0), _axes_from(node)
    result = normalized(node, x, axes, scale=node.tensor(1), centered=False)
    _, inverse = _statistics(node, x, axes, 0, centered=False) if node.wants(1) else (None, None)
    return [node.valued(result, node.shape(0)), inverse]


@operator("LayerNormalization", domain=MICROSOFT)
@operator("LayerNormalization", since=1)
def fused_layer_normalization(node: OnnxNode) -> Sequence[Result]:
    """Normalize over the dimensions from an axis on."""
    x, axes = node.tensor(0), _axes_from(node)
    result = normalized(node, x, axes, scale=node.tensor(1), bias=node.optional_tensor(2))
    return [node.valued(result, node.shape(0)), *_statistics(node, x, axes, 1)]


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: OnnxNode) -> Sequence[Result]:
    """Add tensors and a bias, and normalize the last dimension; also the sum."""
    simplified = node.op_type == "SkipSimplifiedLayerNormalization"
    x = node.tensor(0)
    bias = node.optional_tensor(3 if simplified else 4)
    total = dml.add(x, broadcast_to(node.tensor(1), x.sizes))
    if bias is not None:
        total = dml.add(total, broadcast_to(bias, x.sizes))
    axes = (len(x.sizes) - 1,)
    beta = None if simplified else node.optional_tensor(3)
    result = normalized(node, total, axes, scale=node.tensor(2), bias=beta, centered=not simplified)
    statistics = _statistics(node, total, axes, 1, centered=not simplified)
    return [result, *statistics, total if node.wants(3) else None]


@operator("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_normalization(node: OnnxNode) -> Sequence[Result]:
    """Normalize groups of channels of each image, after a sum for SkipGroupNorm; optionally apply Swish."""
    x = node.tensor(0)
    last = node.flag("channels_last", True)
    node.check_rank(0, 4)
    if node.op_type == "SkipGroupNorm":
        x = dml.add(x, _per_picture(node, 3, x, last))
        x = dml.add(x, _per_picture(node, 4, x, last)) if node.has(4) else x
    first = transposed(x, (0, 3, 1, 2)) if last else x
    count, channels, height, width = first.sizes
    groups = node.integer("groups")
    if groups < 1 or channels % groups:
        raise node.rejection(f"groups must divide {channels} channels, got {groups}")
    grouped = (count, groups, channels // groups, height, width)
    split = dml.identity(first) if last else first
    wide = reshaped(split, grouped)
    wide = widened(wide)
    result = directml.mean_variance_normalization2(wide, axes=(2, 3, 4), epsilon=node.number("epsilon", 1e-5))
    each = (1, groups, channels // groups, 1, 1)
    scale, bias = (reshaped(node.tensor(index), each) for index in (1, 2))
    scale, bias = (cast(parameter, wide.data_type) for parameter in (scale, bias))
    result = dml.add(dml.multiply(result, broadcast_to(scale, grouped)), broadcast_to(bias, grouped))
    if node.flag("activation"):
        result = directml.activation_swish(result, sigmoid_input_scale=1.0)
    plain = reshaped(cast(result, x.data_type), first.sizes)
    results: list[Result] = [node.valued(transposed(plain, (0, 2, 3, 1)) if last else plain)]
    if node.op_type == "SkipGroupNorm":
        results.append(x if node.wants(1) else None)
    return results


def _per_picture(node: OnnxNode, index: int, x: Tensor, last: bool) -> Tensor:
    """Return an input of the sizes of x or one of an element per channel, for all images or for each."""
    parameter = node.tensor(index)
    if len(parameter.sizes) < 4:
        pictures, channels = (1, *parameter.sizes)[-2:]
        parameter = reshaped(parameter, (pictures, 1, 1, channels) if last else (pictures, channels, 1, 1))
    return broadcast_to(parameter, x.sizes)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(node: OnnxNode) -> Sequence[Result]:
    """Add the embeddings of words, positions and segments, and normalize; also the number of unmasked words."""
    for index in (0, 2, 3):
        node.check_rank(index, 2)
    words, (batch, length) = node.tensor(0), node.shape(0)
    for index, table, name in ((0, 2, "input_ids"), (1, 4, "segment_ids"), (8, 3, "position_ids")):
        if node.has(index) and node.has(table):
            node.check_rank(table, 2)
            node.check_range(index, 0, node.shape(table)[0] - 1, name)
    total = _embedded(node, 2, words, (batch, length))
    if node.has(8):
        positions = node.tensor(8)
        total = dml.add(total, broadcast_to(_embedded(node, 3, positions, node.shape(8)), total.sizes))
    else:
        rows = dml.slice(node.tensor(3), (0, 0), (length, total.sizes[2]))
        total = dml.add(total, broadcast_to(reshaped(rows, (1, *rows.sizes)), total.sizes))
    if node.has(1) and node.has(4):
        total = dml.add(total, _embedded(node, 4, node.tensor(1), (batch, length)))
    result = normalized(node, total, (2,), scale=node.tensor(5), bias=node.tensor(6))
    return [result, _mask_index(node, batch) if node.wants(1) else None, total if node.wants(2) else None]


def _embedded(node: OnnxNode, index: int, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the rows of a table at indices."""
    table = node.tensor(index)
    rank = len(shape)
    rows = directml.gather(
        reshaped(table, (*(1,) * (rank - 1), *table.sizes)),
        reshaped(indices, (1, *shape)),
        axis=rank - 1,
        index_dimensions=rank,
    )
    return reshaped(rows, (*shape, table.sizes[-1]))


def _mask_index(node: OnnxNode, batch: int) -> Tensor:
    """Count the ones of the mask per sequence."""
    if not node.has(7):
        return dml.fill_value_constant(node.builder, (batch,), DataType.INT32, 0)
    mask = node.tensor(7)
    ones = dml.equals(mask, node.constant([1], mask.data_type).broadcast_to(mask.sizes))
    return reshaped(dml.reduce(dml.cast(ones, DataType.INT32), ReduceFunction.SUM, axes=(1,)), (batch,))
