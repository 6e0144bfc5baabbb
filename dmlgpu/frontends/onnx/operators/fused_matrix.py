"""Convolutions and products of com.microsoft, with activations behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.operators.convolution import convolution, transposed_convolution
from dmlgpu.frontends.onnx.operators.fused_activation import MICROSOFT
from dmlgpu.frontends.onnx.operators.matrix import gemm, product
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


def _clip(x: Expression, min: float, max: float) -> Expression:
    """Return elements between bounds; the upper one counts if it is below the lower one, as for ONNX's Clip."""
    return dml.clip(x, min if min < max else max, max)


_ACTIVATIONS: dict[str, tuple[Callable[..., Expression], dict[str, float]]] = {
    "": (lambda x: x, {}),
    "Relu": (functions.activation_relu, {}),
    "Tanh": (functions.activation_tanh, {}),
    "Sigmoid": (functions.activation_sigmoid, {}),
    "Softplus": (functions.activation_softplus, {}),
    "Softsign": (functions.activation_softsign, {}),
    "LeakyRelu": (functions.activation_leaky_relu, {"alpha": 0.01}),
    "ThresholdedRelu": (functions.activation_thresholded_relu, {"alpha": 1.0}),
    "Elu": (functions.activation_elu, {"alpha": 1.0}),
    "Clip": (_clip, {"min": -3.402823e38, "max": 3.402823e38}),
    "HardSigmoid": (functions.activation_hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "ScaledTanh": (functions.activation_scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
    "Selu": (functions.activation_scaled_elu, {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
}
"""By name: the function, and its parameters with their usual values, in the order of ``activation_params``."""


def _activated(node: Node, x: Expression, given: Sequence[float | None]) -> Expression:
    """Apply the activation that the node names, with parameters where they are given."""
    name = node.text("activation")
    if name not in _ACTIVATIONS:
        raise node.refusal(f"activation {name!r} is not supported")
    function, usual = _ACTIVATIONS[name]
    values = dict(usual)
    for key, value in zip(usual, given, strict=False):
        values[key] = values[key] if value is None else value
    return function(x, **values)


@operator("FusedConv", domain=MICROSOFT)
def fused_convolution(node: Node) -> Value:
    """Conv, then a sum, then an activation."""
    plain = convolution(node)
    found = node.expression(plain)
    if node.has(3):
        found = dml.add(found, reshaped(node.tensor(3), found.sizes))
    return node.valued(_activated(node, found, node.numbers("activation_params") or ()), plain.shape)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value:
    """Gemm, then an activation."""
    plain = gemm(node)
    given = [node.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    if node.text("activation") == "Selu":
        given = [given[0], given[2]]
    return node.valued(_activated(node, node.expression(plain), given), plain.shape)


@operator("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(node: Node) -> Value:
    """Multiply stacks of matrices, either seen with dimensions exchanged; scale; then an activation."""
    (a, left), (b, right) = (_factor(node, number, letter) for number, letter in enumerate("AB"))
    found, shape = product(node, a, left, b, right)
    alpha = node.number("alpha", 1.0)
    found = found if alpha == 1 else found * alpha
    if node.op_type == "FusedMatMulActivation":
        found = _activated(node, found, [node.attribute(f"activation_{name}") for name in ("alpha", "beta")])
    return node.valued(found, shape)


def _factor(node: Node, number: int, letter: str) -> tuple[Expression, Shape]:
    """Return a factor with the dimensions in the order that the node asks for, and its shape."""
    given, shape = node.tensor(number), node.shape(number)
    rank = len(shape)
    if rank < 2:
        return given, shape
    order = list(range(rank))
    if node.flag(f"transBatch{letter}"):
        order = [*order[1:-1], 0, order[-1]]
    if node.flag(f"trans{letter}"):
        order[-2:] = order[:-3:-1]
    turned = given if order == sorted(order) else dml.identity(transposed(given, order))
    return turned, tuple(shape[one] for one in order)


@operator("NhwcConv", domain=MICROSOFT)
def nhwc_convolution(node: Node) -> Value:
    """Conv of pictures, and by filters, whose channels come last."""
    last, first = (0, 3, 1, 2), (0, 2, 3, 1)
    for number in (0, 1):
        node.check_rank(number, 4)
    turned = [node.valued(dml.identity(transposed(node.tensor(number), last))) for number in (0, 1)]
    plain = convolution(node.replaced([*turned, *node.inputs[2:]]))
    return node.valued(transposed(node.expression(plain), first))


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def transposed_convolution_with_pads(node: Node) -> Value:
    """ConvTranspose whose padding is an input."""
    node.check_rank(0, 3, 4, 5)
    count = 2 * (len(node.shape(0)) - 2)
    pads = node.host_integers(2, count) if node.has(2) else (0,) * count
    bias = node.inputs[3] if node.has(3) else None
    return transposed_convolution(node.replaced([*node.inputs[:2], bias], pads=pads))
