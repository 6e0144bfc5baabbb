"""Activations of com.microsoft: Gelu and its relatives, with a bias before."""

from __future__ import annotations

import math

from dmlgpu.frontends.onnx.node import Node, broadcast_to
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

MICROSOFT = "com.microsoft"


def gelu_by_tanh(x: Expression) -> Expression:
    """Return the Gaussian error linear unit in its approximation by tanh."""
    inner = dml.multiply(x, dml.multiply(x, x) * 0.044715 + 1) * math.sqrt(2 / math.pi)
    return dml.multiply(x * 0.5, dml.activation_tanh(inner) + 1)


def _with_bias(node: Node) -> Expression:
    """Return the first input and, where there is one, the bias of its last dimension."""
    x = node.tensor(0)
    return dml.add(x, broadcast_to(node.tensor(1), x.sizes)) if node.has(1) else x


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Value:
    """Gelu after a bias."""
    return node.valued(functions.activation_gelu(_with_bias(node)), node.shape(0))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Value:
    """Gelu by tanh, after a bias where there is one."""
    return node.valued(gelu_by_tanh(_with_bias(node)), node.shape(0))


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Value:
    """x * sigmoid(alpha * x)."""
    found = functions.activation_swish(node.tensor(0), sigmoid_input_scale=node.number("alpha", 1.702))
    return node.valued(found, node.shape(0))


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: Node) -> Value:
    """Add a bias, and multiply the first half of the last dimension by the Gelu of the second."""
    x = _with_bias(node)
    rank, size = len(x.sizes), x.sizes[-1]
    if size % 2:
        raise node.refusal(f"the last dimension must be even, got {size}")
    left, right = dml.split(x, rank - 1, [size // 2, size // 2])
    return node.valued(dml.multiply(left, functions.activation_gelu(right)))


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(node: Node) -> Value:
    """Add a bias of the last dimension, and another tensor."""
    return node.valued(dml.add(_with_bias(node), node.tensor(2)), node.shape(0))
