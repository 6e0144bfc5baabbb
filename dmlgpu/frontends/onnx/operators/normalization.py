"""Normalisations: by given statistics, and by those of the elements themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.compose import add, cast, choose, divide, multiply, spread
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def per_channel(node: Node, number: int, rank: int) -> Expression:
    """Return an input of one element per channel, or per place in a picture, with the dimensions of {N, C, ...}."""
    given = node.tensor(number)
    if len(given.sizes) > 1:
        return reshaped(given, (1, *given.sizes))
    return reshaped(given, (1, given.sizes[0], *(1,) * (rank - 2)) if rank > 1 else given.sizes)


@operator("BatchNormalization")
def batch_normalization(node: Node) -> Value | Sequence[Result]:
    """Normalise channels by given means and variances, in training by their own."""
    x = node.tensor(0)
    if len(x.sizes) < 2:
        x = reshaped(x, (x.sizes[0], 1))
    if node.flag("training_mode") or any(node.wants(number) for number in range(1, 5)):
        return _training(node, x)
    scale, bias, mean, variance = (
        dml.cast(one, x.data_type) if one.data_type is not x.data_type else one
        for one in (per_channel(node, number, len(x.sizes)) for number in range(1, 5))
    )
    found = functions.batch_normalization(
        x, mean, variance, scale, bias, spatial=True, epsilon=node.number("epsilon", 1e-5)
    )
    return node.valued(found, node.shape(0))


def _training(node: Node, x: Expression) -> Sequence[Result]:
    """Normalise channels by the batch's statistics; return the running ones, and the batch's own before version 14."""
    scale, bias, mean, variance = (per_channel(node, number, len(x.sizes)) for number in range(1, 5))
    found = functions.batch_normalization_training(
        x, cast(scale, x.data_type), cast(bias, x.data_type), epsilon=node.number("epsilon", 1e-5)
    )
    kept, channels = node.number("momentum", 0.9), (x.sizes[1],)
    own = [cast(one, mean.data_type) for one in (found.output_mean, found.output_variance)]
    running = [
        add(multiply(before, kept), multiply(now, 1 - kept)) for before, now in zip((mean, variance), own, strict=True)
    ]
    statistics = [reshaped(one, channels) for one in (*running, *own)]
    results = [node.valued(found.output, node.shape(0)), *(node.valued(one) for one in statistics)]
    return results[: len(node.proto.output)]


@operator("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    """Normalise each channel of each picture by its own statistics."""
    x = node.tensor(0)
    rank = len(x.sizes)
    found = functions.mean_variance_normalization2(
        x,
        broadcast_to(per_channel(node, 1, rank), x.sizes),
        broadcast_to(per_channel(node, 2, rank), x.sizes),
        axes=tuple(range(2, rank)),
        epsilon=node.number("epsilon", 1e-5),
    )
    return node.valued(found)


@operator("LayerNormalization", since=17)
def layer_normalization(node: Node) -> Value | Sequence[Result]:
    """Normalise over the dimensions from an axis on; the statistics, where they are wanted, by ONNX's own function."""
    if node.wants(1) or node.wants(2):
        return AS_FUNCTION
    x, shape = node.tensor(0), node.shape(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    kept = x.data_type
    if kept is DataType.FLOAT16 and node.integer("stash_type", 1) == 1:
        x = dml.cast(x, DataType.FLOAT32)
    found = functions.mean_variance_normalization2(
        x, axes=tuple(range(axis, len(shape))), epsilon=node.number("epsilon", 1e-5)
    )
    found = found if found.data_type is kept else dml.cast(found, kept)
    found = dml.multiply(found, broadcast_to(node.tensor(1), x.sizes))
    if node.has(2):
        found = dml.add(found, broadcast_to(node.tensor(2), x.sizes))
    return node.valued(found, shape)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Value:
    """Mean 0 and variance 1 over axes."""
    x = node.tensor(0)
    axes = tuple(node.axis(one, len(x.sizes)) for one in node.integers("axes") or (0, 2, 3))
    return node.valued(functions.mean_variance_normalization2(x, axes=axes, epsilon=1e-9))


@operator("LRN")
def local_response_normalization(node: Node) -> Value:
    """Divide by the squares of neighbouring channels."""
    x = node.tensor(0)
    found = functions.local_response_normalization(
        reshaped(x, (*x.sizes[:2], 1, math.prod(x.sizes[2:]))),
        cross_channel=True,
        local_size=node.integer("size"),
        alpha=node.number("alpha", 1e-4),
        beta=node.number("beta", 0.75),
        bias=node.number("bias", 1.0),
    )
    return node.valued(found, x.sizes)


@operator("LpNormalization")
def lp_normalization(node: Node) -> Value:
    """Divide by the p-norm along an axis; where it is 0, so is the result."""
    x, p = node.tensor(0), node.integer("p", 2)
    if p not in (1, 2):
        raise node.refusal(f"p must be 1 or 2, got {p}")
    axis = node.axis(node.integer("axis", -1), len(node.shape(0)))
    norm = dml.reduce(x, ReduceFunction.L1 if p == 1 else ReduceFunction.L2, axes=(axis,))
    return node.valued(choose(spread(dml.equals, norm, 0), 0, divide(x, norm)))
