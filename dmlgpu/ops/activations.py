"""Activations of neural networks, under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of, word
from dmlgpu.tensors.layout import checked_axes
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid",
    "silu", "softmax", "softplus",
]  # fmt: skip


@eager
def relu(x: Operand, *, device: Where = None) -> Array:
    """Return each element, or 0 if it is negative.

    Args:
        x: Tensor or array of float32, float16, int8, int16 or int32, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not one of these.

    Examples:
        >>> ops.relu([-1.5, 0.0, 2.0])
        array([0., 0., 2.], dtype=float32)

    See also:
        `leaky_relu`, `gelu`, `maximum`.

    Computed by ACTIVATION_RELU (`ns-directml-dml_activation_relu_operator_desc`).
    """
    return directml.activation_relu(x)


@eager
def sigmoid(x: Operand, *, device: Where = None) -> Array:
    """Return 1 / (1 + exp(-x)) for each element.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.sigmoid([-1.0, 0.0, 1.0]).round(3)
        array([0.269, 0.5  , 0.731], dtype=float32)

    See also:
        `tanh`, `silu`, `softmax`.

    Computed by ACTIVATION_SIGMOID (`ns-directml-dml_activation_sigmoid_operator_desc`).
    """
    return directml.activation_sigmoid(x)


@eager
def gelu(x: Operand, approximate: str = "none", *, device: Where = None) -> Array:
    """Return each element times the normal distribution's probability of a value below it.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        approximate: `"none"`, the default: x * (1 + erf(x / sqrt(2))) / 2; `"tanh"`: x * (1 + tanh(sqrt(2 / pi) * (x +
            0.044715 * x^3))) / 2.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `approximate` is another word, or the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.gelu([-1.0, 0.0, 2.0]).round(4)
        array([-0.1587,  0.    ,  1.9545], dtype=float32)
        >>> ops.gelu([-1.0, 0.0, 2.0], approximate="tanh").round(4)
        array([-0.1588,  0.    ,  1.9546], dtype=float32)

    See also:
        `silu`, `erf`.

    Computed by ACTIVATION_GELU (`ns-directml-dml_activation_gelu_operator_desc`) ; the approximation by elementwise
    operators.
    """
    if word("approximate", approximate, ("none", "tanh")) == "none":
        return directml.activation_gelu(x)
    tensor = tensor_of("x", x)
    inner: Tensor = (tensor * tensor * 0.044715 + 1.0) * tensor * math.sqrt(2 / math.pi)
    return (directml.activation_tanh(inner) + 1.0) * (tensor * 0.5)


@eager
def softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Normalize `x` along `axis` so that the exponentials sum to 1.

    Args:
        x: Tensor or array of float32 or float16, rank 1 to 8.
        axis: Axis or axes to normalize over; negative axes count from the end. Defaults to the last axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.softmax([1.0, 2.0, 3.0]).round(3)
        array([0.09 , 0.245, 0.665], dtype=float32)
        >>> ops.softmax([[0.0, 0.0], [0.0, 0.0]], axis=(0, 1))
        array([[0.25, 0.25],
               [0.25, 0.25]], dtype=float32)

    See also:
        `log_softmax`, `sigmoid`, `attention`.

    Computed by ACTIVATION_SOFTMAX1 (`ns-directml-dml_activation_softmax1_operator_desc`).
    """
    return directml.activation_softmax1(x, axes=checked_axes(caller(), "axis", axis, tensor_of("x", x).ndim))


@eager
def log_softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Return the logarithm of `softmax`, computed without underflow.

    Args:
        x: Tensor or array of float32 or float16, rank 1 to 8.
        axis: Axis or axes to normalize over; negative axes count from the end. Defaults to the last axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.log_softmax([1.0, 2.0, 3.0]).round(3)
        array([-2.408, -1.408, -0.408], dtype=float32)

    See also:
        `softmax`, `logsumexp`.

    Computed by ACTIVATION_LOG_SOFTMAX1 (`ns-directml-dml_activation_log_softmax1_operator_desc`).
    """
    return directml.activation_log_softmax1(x, axes=checked_axes(caller(), "axis", axis, tensor_of("x", x).ndim))


@eager
def leaky_relu(x: Operand, alpha: float = 0.01, *, device: Where = None) -> Array:
    """Return each element, negative ones multiplied by `alpha`.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        alpha: Slope of negative elements; defaults to 0.01.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.leaky_relu([-2.0, 3.0], alpha=0.5)
        array([-1.,  3.], dtype=float32)

    See also:
        `relu`, `elu`.

    Computed by ACTIVATION_LEAKY_RELU (`ns-directml-dml_activation_leaky_relu_operator_desc`).
    """
    return directml.activation_leaky_relu(x, alpha=alpha)


@eager
def elu(x: Operand, alpha: float = 1.0, *, device: Where = None) -> Array:
    """Return each element, alpha * (exp(x) - 1) for negative ones.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        alpha: Limit of large negative elements, with the sign changed; defaults to 1.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.elu([-1.0, 2.0]).round(3)
        array([-0.632,  2.   ], dtype=float32)

    See also:
        `leaky_relu`, `softplus`.

    Computed by ACTIVATION_ELU (`ns-directml-dml_activation_elu_operator_desc`).
    """
    return directml.activation_elu(x, alpha=alpha)


@eager
def silu(x: Operand, *, device: Where = None) -> Array:
    """Return each element times its sigmoid, also called swish.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.silu([-1.0, 1.0]).round(3)
        array([-0.269,  0.731], dtype=float32)

    See also:
        `sigmoid`, `gelu`.

    Computed by ACTIVATION_SIGMOID (`ns-directml-dml_activation_sigmoid_operator_desc`) and ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    return directml.element_wise_multiply(x, directml.activation_sigmoid(x))


@eager
def softplus(x: Operand, *, device: Where = None) -> Array:
    """Return log(1 + exp(x)) for each element, a smooth `relu`.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.softplus([-1.0, 0.0, 1.0]).round(3)
        array([0.313, 0.693, 1.313], dtype=float32)

    See also:
        `relu`, `elu`.

    Computed by ACTIVATION_SOFTPLUS (`ns-directml-dml_activation_softplus_operator_desc`).
    """
    return directml.activation_softplus(x, steepness=1.0)


@eager
def hardswish(x: Operand, *, device: Where = None) -> Array:
    """Return x * min(max(x + 3, 0), 6) / 6, a `silu` of straight lines.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.hardswish([-4.0, -1.0, 2.0]).round(3)
        array([-0.   , -0.333,  1.667], dtype=float32)

    See also:
        `silu`, `hardsigmoid`, `relu6`.

    Computed by ACTIVATION_HARD_SWISH (`ns-directml-dml_activation_hard_swish_operator_desc`).
    """
    return directml.activation_hard_swish(x, alpha=1 / 6, beta=0.5)


@eager
def hardsigmoid(x: Operand, *, device: Where = None) -> Array:
    """Return min(max(x + 3, 0), 6) / 6, a `sigmoid` of straight lines.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.hardsigmoid([-4.0, 0.0, 1.5])
        array([0.  , 0.5 , 0.75], dtype=float32)

    See also:
        `sigmoid`, `hardswish`.

    Computed by ACTIVATION_HARD_SIGMOID (`ns-directml-dml_activation_hard_sigmoid_operator_desc`).
    """
    return directml.activation_hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@eager
def relu6(x: Operand, *, device: Where = None) -> Array:
    """Return each element limited to the range from 0 to 6.

    Args:
        x: Tensor or array of float32, float16 or an integer dtype, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not one of these.

    Examples:
        >>> ops.relu6([-1.0, 3.0, 8.0])
        array([0., 3., 6.], dtype=float32)

    See also:
        `relu`, `clip`.

    Computed by ELEMENT_WISE_IF (`ns-directml-dml_element_wise_if_operator_desc`), for integers by ELEMENT_WISE_CLIP1
    (`ns-directml-dml_element_wise_clip1_operator_desc`).
    """
    tensor: Any = tensor_of("x", x)
    if not tensor.data_type.is_float:
        return directml.element_wise_clip1(tensor, min=0, max=6)
    # The gradient of CLIP1 is 1 at its bounds, that of relu6 is 0.
    positive: Any = directml.element_wise_if(tensor <= 0, 0.0, tensor)
    return directml.element_wise_if(positive >= 6, 6.0, positive)


@eager
def mish(x: Operand, *, device: Where = None) -> Array:
    """Return each element times the tanh of its softplus.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.mish([-1.0, 0.0, 1.0]).round(3)
        array([-0.303,  0.   ,  0.865], dtype=float32)

    See also:
        `silu`, `softplus`.

    Computed by ACTIVATION_SOFTPLUS (`ns-directml-dml_activation_softplus_operator_desc`) and ACTIVATION_TANH
    (`ns-directml-dml_activation_tanh_operator_desc`).
    """
    tensor = tensor_of("x", x)
    return tensor * directml.activation_tanh(directml.activation_softplus(tensor, steepness=1.0))


@eager
def selu(x: Operand, *, device: Where = None) -> Array:
    """Return 1.0507 * x, and 1.7581 * (exp(x) - 1) for negative elements.

    Args:
        x: Tensor or array of float32 or float16, rank 0 to 8.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If the dtype of `x` is not float32 or float16.

    Examples:
        >>> ops.selu([-1.0, 1.0]).round(3)
        array([-1.111,  1.051], dtype=float32)

    See also:
        `elu`.

    Computed by ACTIVATION_SCALED_ELU (`ns-directml-dml_activation_scaled_elu_operator_desc`).
    """
    return directml.activation_scaled_elu(x)
