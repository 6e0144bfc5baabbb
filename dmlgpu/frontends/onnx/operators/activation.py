"""Activations: by element, along an axis, and those of com.microsoft with a bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.expressions import broadcast_to, cast, reshaped
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Activation = tuple[Callable[..., Tensor], dict[str, float]]

ACTIVATIONS: dict[str, Activation] = {
    "Celu": (directml.activation_celu, {"alpha": 1.0}),
    "Elu": (directml.activation_elu, {"alpha": 1.0}),
    "HardSigmoid": (directml.activation_hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (lambda x: directml.activation_hard_swish(x, alpha=1 / 6, beta=0.5), {}),
    "LeakyRelu": (directml.activation_leaky_relu, {"alpha": 0.01}),
    "Selu": (directml.activation_scaled_elu, {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Sigmoid": (directml.activation_sigmoid, {}),
    "Softplus": (directml.activation_softplus, {}),
    "Softsign": (directml.activation_softsign, {}),
    "Swish": (lambda x, alpha: directml.activation_swish(x, sigmoid_input_scale=alpha), {"alpha": 1.0}),
    "ThresholdedRelu": (directml.activation_thresholded_relu, {"alpha": 1.0}),
}
"""By ONNX's name: the function, and its attributes with their defaults."""

ALONG_AXES: dict[str, Callable[..., Tensor]] = {
    "Softmax": directml.activation_softmax1,
    "LogSoftmax": directml.activation_log_softmax1,
    "Hardmax": directml.activation_hardmax1,
}


@operator(*ACTIVATIONS)
def activation(node: OnnxNode) -> OnnxValue:
    """Apply an activation to each element."""
    return node.valued(apply_activation(node, node.op_type, node.tensor(0)), node.shape(0))


def apply_activation(node: OnnxNode, name: str, x: Tensor) -> Tensor:
    """Return an activation of a tensor, with the attributes of a node."""
    function, defaults = ACTIVATIONS[name]
    return function(x, **{attribute: node.number(attribute, default) for attribute, default in defaults.items()})


@operator("Relu")
def relu(node: OnnxNode) -> OnnxValue:
    """Replace negative elements by 0; DirectML's operator has no unsigned and no 64-bit integers."""
    x, data_type = node.tensor(0), node.data_type(0)
    if data_type.name.startswith("U"):
        return node.valued(x, node.shape(0))
    zeros = node.constant(np.zeros(1, data_type.numpy), data_type)
    result = dml.max(x, broadcast_to(zeros, x.sizes)) if data_type is DataType.INT64 else directml.activation_relu(x)
    return node.valued(result, node.shape(0))


@operator("Shrink")
def shrink(node: OnnxNode) -> OnnxValue:
    """Move elements towards 0 beyond a threshold, else to 0; 64-bit integers by float32, as onnxruntime does."""
    x, data_type = node.tensor(0), node.data_type(0)
    is_wide = data_type in (DataType.INT64, DataType.UINT64)
    result = directml.activation_shrink(
        dml.cast(x, DataType.FLOAT32) if is_wide else x,
        bias=node.number("bias", 0.0),
        threshold=node.number("lambd", 0.5),
    )
    return node.valued(cast(result, data_type), node.shape(0))


@operator("Gelu", since=20)
@operator("Gelu", domain=MICROSOFT)
def gelu(node: OnnxNode) -> OnnxValue:
    """Gaussian error linear unit, exact or by tanh."""
    function = directml.activation_gelu if node.text("approximate", "none") == "none" else _gelu_by_tanh
    return node.valued(function(node.tensor(0)), node.shape(0))


def _gelu_by_tanh(x: Tensor) -> Tensor:
    inner = dml.multiply(x, dml.multiply(x, x) * 0.044715 + 1) * math.sqrt(2 / math.pi)
    return dml.multiply(x * 0.5, dml.activation_tanh(inner) + 1)


@operator(*ALONG_AXES, since=13)
def along_axis(node: OnnxNode) -> OnnxValue:
    """Normalize along one axis."""
    axis = node.axis(node.integer("axis", -1), max(len(node.shape(0)), 1))
    return node.valued(ALONG_AXES[node.op_type](node.tensor(0), axes=(axis,)), node.shape(0))


@operator(*ALONG_AXES)
def along_rest(node: OnnxNode) -> OnnxValue:
    """Normalize over all dimensions from an axis on, as before operator set 13."""
    shape = node.shape(0)
    axis = node.integer("axis", 1)
    axis = node.axis(axis, len(shape) + (axis >= 0)) if shape else 0
    rows = reshaped(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return node.valued(ALONG_AXES[node.op_type](rows, axes=(1,)), shape)


def _with_bias(node: OnnxNode) -> Tensor:
    """Return the first input plus the optional bias of its last dimension."""
    x = node.tensor(0)
    return dml.add(x, broadcast_to(node.tensor(1), x.sizes)) if node.has(1) else x


@operator("BiasGelu", "FastGelu", domain=MICROSOFT)
def bias_gelu(node: OnnxNode) -> OnnxValue:
    """Gelu after a bias, by tanh for FastGelu, whose bias is optional."""
    function = directml.activation_gelu if node.op_type == "BiasGelu" else _gelu_by_tanh
    return node.valued(function(_with_bias(node)), node.shape(0))


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: OnnxNode) -> OnnxValue:
    """x * sigmoid(alpha * x)."""
    result = directml.activation_swish(node.tensor(0), sigmoid_input_scale=node.number("alpha", 1.702))
    return node.valued(result, node.shape(0))


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(node: OnnxNode) -> OnnxValue:
    """Add a bias, and multiply the first half of the last dimension by the Gelu of the second."""
    x = _with_bias(node)
    rank, size = len(x.sizes), x.sizes[-1]
    if size % 2:
        raise node.rejection(f"the last dimension must be even, got {size}")
    left, right = dml.split(x, rank - 1, [size // 2, size // 2])
    return node.valued(dml.multiply(left, directml.activation_gelu(right)))


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(node: OnnxNode) -> OnnxValue:
    """Add a bias of the last dimension, and another tensor."""
    return node.valued(dml.add(_with_bias(node), node.tensor(2)), node.shape(0))


_FUSED: dict[str, Activation] = {
    "": (lambda x: x, {}),
    "Relu": (directml.activation_relu, {}),
    "Tanh": (directml.activation_tanh, {}),
    # As in ONNX's Clip, the upper bound wins if it is below the lower one.
    "Clip": (
        lambda x, min, max: dml.clip(x, min if min < max else max, max),
        {"min": -3.402823e38, "max": 3.402823e38},
    ),
    "ScaledTanh": (directml.activation_scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
    **{name: ACTIVATIONS[name] for name in ("Elu", "HardSigmoid", "LeakyRelu", "Selu", "Sigmoid", "Softplus")},
    **{name: ACTIVATIONS[name] for name in ("Softsign", "ThresholdedRelu")},
}
"""Activations fused with products and convolutions; parameters are in the order of ``activation_params``."""


def activated(node: OnnxNode, x: Tensor, parameters: Sequence[float | None]) -> Tensor:
    """Apply the fused activation that a node names; parameters that are None have their defaults."""
    name = node.text("activation")
    if name not in _FUSED:
        raise node.rejection(f"activation {name!r} is not supported")
    function, defaults = _FUSED[name]
    values = {key: value for key, value in zip(defaults, parameters, strict=False) if value is not None}
    return function(x, **{**defaults, **values})
