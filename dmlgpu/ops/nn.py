"""Neural network functions under their usual names: activations, normalization, products, attention, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import InterpolationMode
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.elementwise import unary
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.layout import broadcast_strides, checked_axes, checked_axis
from dmlgpu.tensors.preparation import member
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import matmul as product
from dmlgpu.tensors.types import TypeLike

__all__ = [
    "attention", "batch_norm", "dequantize", "elu", "gelu", "group_norm", "instance_norm", "layer_norm", "leaky_relu",
    "linear", "log_softmax", "matmul", "quantize", "relu", "resize", "rms_norm", "sigmoid", "silu", "softmax",
    "softplus",
]  # fmt: skip

_POSITIVE = coercion.between(1, 2**32 - 1)
_NUMBERS = coercion.tuple_of(coercion.real, "numbers")

# ---- activations -----------------------------------------------------------------------------------------------------

relu = unary("relu", "activation_relu", "Return each element, but at least 0.")
gelu = unary("gelu", "activation_gelu", "Return each element times the normal distribution's probability below it.")
sigmoid = unary("sigmoid", "activation_sigmoid", "Return 1 / (1 + exp(-x)) of each element.")


@eager
def softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Normalize `x` along `axis` so that the exponentials sum to 1.

    Args:
        x: Tensor or array of float32 or float16, rank 1 to 8.
        axis: Axis or axes to normalize over; negative axes count from the end.
        device: Device or adapter name; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Computed by ACTIVATION_SOFTMAX1.
    """
    return directml.activation_softmax1(x, axes=_axes(tensor_of("x", x), axis))


@eager
def log_softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Return the logarithm of ``softmax``."""
    return directml.activation_log_softmax1(x, axes=_axes(tensor_of("x", x), axis))


@eager
def leaky_relu(x: Operand, alpha: float = 0.01, *, device: Where = None) -> Array:
    """Return each element, negative ones times ``alpha``."""
    return directml.activation_leaky_relu(x, alpha=alpha)


@eager
def elu(x: Operand, alpha: float = 1.0, *, device: Where = None) -> Array:
    """Return each element, alpha * (exp(x) - 1) for negative ones."""
    return directml.activation_elu(x, alpha=alpha)


@eager
def silu(x: Operand, *, device: Where = None) -> Array:
    """Return each element times its sigmoid."""
    return directml.element_wise_multiply(x, directml.activation_sigmoid(x))


@eager
def softplus(x: Operand, *, device: Where = None) -> Array:
    """Return log(1 + exp(x)) of each element."""
    return directml.activation_softplus(x, steepness=1.0)


# ---- normalization ---------------------------------------------------------------------------------------------------


@eager
def layer_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Normalize to mean 0 and variance 1 along axes, then scale by ``weight`` and add ``bias``, which broadcast to x.

    ``eps`` is added to the variance.
    """
    tensor = tensor_of("x", x)
    normalized: Tensor = directml.mean_variance_normalization2(tensor, axes=_axes(tensor, axis), epsilon=eps)
    return _scaled(normalized, weight, bias)


@eager
def rms_norm(
    x: Operand,
    weight: Operand | None = None,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-6,
    *,
    device: Where = None,
) -> Array:
    """Divide by the root mean square along axes, then scale by ``weight``, which broadcasts to x.

    ``eps`` is added to the mean square.
    """
    tensor = tensor_of("x", x)
    axes = _axes(tensor, axis)
    normalized: Tensor = directml.mean_variance_normalization2(tensor, axes=axes, epsilon=eps, use_mean=False)
    return _scaled(normalized, weight, None)


@eager
def group_norm(
    x: Operand,
    groups: int,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Normalize each group of channels {N, C, ...} to mean 0 and variance 1; scale by ``weight``, add ``bias``, {C}.

    Raises:
        InvalidArgument: If ``groups`` does not divide the channels.
    """
    tensor = _channelled(x)
    count = coercion.argument(caller(), "groups", _POSITIVE, groups)
    if tensor.sizes[1] % count:
        raise InvalidArgument(f"{caller()}: groups must divide the {tensor.sizes[1]} channels of x, got {count}")
    grouped = tensor.reshape(tensor.sizes[0], count, -1)
    normalized: Tensor = directml.mean_variance_normalization2(grouped, axes=(2,), epsilon=eps)
    shaped = normalized._renamed(tensor.sizes)
    return _scaled(shaped, _per_channel("weight", weight, shaped), _per_channel("bias", bias, shaped))


@eager
def instance_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Normalize each channel {N, C, ...} to mean 0 and variance 1; scale by ``weight``, add ``bias``, {C}."""
    tensor = _channelled(x)
    axes = range(2, tensor.ndim)
    if not axes:
        raise InvalidArgument(f"{caller()}: x must have sizes {{N, C, ...}} and 3 dimensions, got {list(tensor.sizes)}")
    normalized: Tensor = directml.mean_variance_normalization2(tensor, axes=tuple(axes), epsilon=eps)
    return _scaled(normalized, _per_channel("weight", weight, normalized), _per_channel("bias", bias, normalized))


@eager
def batch_norm(
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Normalize channels {N, C, ...} with a given mean and variance; scale by ``weight``, add ``bias``, all {C}."""
    tensor = _channelled(x)
    ones, zeros = (Tensor(np.full(1, value), tensor.data_type, device=tensor.device) for value in (1, 0))
    channels = tensor.sizes[1:2]
    scale = _per_channel("weight", ones.broadcast_to(channels) if weight is None else weight, tensor)
    shift = _per_channel("bias", zeros.broadcast_to(channels) if bias is None else bias, tensor)
    statistics = (_per_channel("mean", mean, tensor), _per_channel("variance", variance, tensor))
    return directml.batch_normalization(tensor, *statistics, scale, shift, spatial=True, epsilon=eps)


def _axes(x: Tensor, axis: int | Sequence[int]) -> tuple[int, ...]:
    return checked_axes(caller(), "axis", axis, x.ndim)


def _scaled(x: Tensor, weight: Any, bias: Any) -> Tensor:
    for name, values in (("weight", weight), ("bias", bias)):
        if isinstance(values, Tensor) and broadcast_strides(values.sizes, values.strides, x.sizes) is None:
            raise InvalidArgument(
                f"{caller()}: {name} must broadcast to the sizes of x, {list(x.sizes)}, got {list(values.sizes)}"
            )
    if weight is not None:
        x = directml.element_wise_multiply(x, weight)
    return x if bias is None else directml.element_wise_add(x, bias)


def _channelled(x: Operand) -> Tensor:
    tensor = tensor_of("x", x)
    if tensor.ndim < 2:
        raise InvalidArgument(f"{caller()}: x must have sizes {{N, C, ...}}, got {list(tensor.sizes)}")
    return tensor


def _per_channel(name: str, values: Any, x: Tensor) -> Any:
    """Return one number per channel, viewed with the dimensions of x."""
    if values is None:
        return None
    tensor = tensor_of(name, values)
    if tensor.sizes != x.sizes[1:2]:
        raise InvalidArgument(
            f"{caller()}: {name} must have one element per channel, {list(x.sizes[1:2])}, got {list(tensor.sizes)}"
        )
    return tensor.expand_dims((0, *range(2, x.ndim))) if x.ndim > 1 else tensor


# ---- products --------------------------------------------------------------------------------------------------------


@eager
def matmul(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the product of matrices, or of stacks of matrices, which broadcast.

    A vector is a row on the left and a column on the right.
    """
    return product(tensor_of("a", a), tensor_of("b", b), caller())


@eager
def linear(x: Operand, weight: Operand, bias: Operand | None = None, *, device: Where = None) -> Array:
    """Return rows {..., K} times the transposed ``weight`` {N, K}, plus ``bias`` {N}.

    Raises:
        InvalidArgument: If the shapes do not fit.
    """
    rows, matrix = tensor_of("x", x), tensor_of("weight", weight)
    if not rows.sizes or matrix.ndim != 2 or rows.sizes[-1] != matrix.sizes[1]:
        raise InvalidArgument(
            f"{caller()}: weight must have sizes {{N, K}} for x {{..., K}}, got {list(matrix.sizes)} for "
            f"{list(rows.sizes)}"
        )
    flat = rows.reshape(-1, rows.sizes[-1])
    addend = None if bias is None else tensor_of("bias", bias).broadcast_to((flat.sizes[0], matrix.sizes[0]))
    result: Tensor = directml.gemm(flat, matrix.T, addend)
    return result._renamed((*rows.sizes[:-1], matrix.sizes[0]))


@eager
def attention(
    query: Operand,
    key: Operand,
    value: Operand,
    num_heads: int = 1,
    bias: Operand | None = None,
    scale: float | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return scaled dot product attention per head, computed by MULTIHEAD_ATTENTION.

    Args:
        query: {N, S, E}; each head takes E / num_heads of it.
        key, value: {N, T, E}, {N, T, V}.
        num_heads: Into how many heads E and V are divided.
        bias: Added to the scaled products, broadcast to {N, num_heads, S, T}: 0 and a large negative number, or -inf,
            make a mask; rows of -inf alone give NaN.
        scale: Factor of the products; None means 1 / sqrt(E / num_heads).
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If the shapes do not fit.
    """
    queries, keys = tensor_of("query", query), tensor_of("key", key)
    count = coercion.argument(caller(), "num_heads", _POSITIVE, num_heads)
    if queries.ndim != 3 or keys.ndim != 3 or queries.sizes[-1] % count:
        raise InvalidArgument(
            f"{caller()}: query and key must have sizes {{N, S, E}} with E a multiple of num_heads ({count}), "
            f"got {list(queries.sizes)} and {list(keys.sizes)}"
        )
    products = (queries.sizes[0], count, queries.sizes[1], keys.sizes[1])
    return directml.multihead_attention(
        queries,
        keys,
        value,
        relative_position_bias=None if bias is None else tensor_of("bias", bias).broadcast_to(products),
        scale=1 / math.sqrt(queries.sizes[-1] // count) if scale is None else scale,
        mask_filter_value=-10000.0,
        head_count=count,
    ).output


# ---- quantization, images --------------------------------------------------------------------------------------------


@eager
def quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    axis: int | None = None,
    dtype: TypeLike | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return x / scale + zero_point, rounded and saturated to int8 or uint8; see ``dequantize``.

    ``dtype`` defaults to that of ``zero_point``, uint8 without one.
    """
    tensor = tensor_of("x", x)
    parameters = (_along("scale", scale, tensor, axis), _along("zero_point", zero_point, tensor, axis))
    return directml.element_wise_quantize_linear(tensor, *parameters, output_type=dtype)


@eager
def dequantize(
    x: Operand, scale: Operand, zero_point: Operand | None = None, axis: int | None = None, *, device: Where = None
) -> Array:
    """Return (x - zero_point) * scale.

    Args:
        x: Tensor or array of int8 or uint8.
        scale: One number, one per element along ``axis``, or whatever broadcasts to x.
        zero_point: Likewise, of the dtype of x.
        axis: Axis along which scale and zero point change.
        device: Device or adapter name that computes arrays.
    """
    tensor = tensor_of("x", x)
    parameters = (_along("scale", scale, tensor, axis), _along("zero_point", zero_point, tensor, axis))
    return directml.element_wise_dequantize_linear(tensor, *parameters)


def _along(name: str, values: Any, x: Tensor, axis: int | None) -> Any:
    """Return values along an axis, broadcast to the shape of x."""
    if values is None:
        return None
    tensor = tensor_of(name, values)
    if axis is not None and tensor.ndim == 1:
        number = checked_axis(caller(), "axis", axis, x.ndim)
        tensor = tensor.expand_dims(tuple(other for other in range(x.ndim) if other != number))
    return tensor.broadcast_to(x.sizes)


@eager
def resize(
    x: Operand,
    shape: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
    mode: InterpolationMode | str = "linear",
    antialiased: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Resample an image to another shape; pixel centers lie half a pixel from the corner.

    Args:
        x: Tensor or array of rank 1 to 4.
        shape: Shape of the result, of all dimensions or of the last ones.
        scales: Factors of the shape, in place of ``shape``.
        mode: ``"nearest"``, where halves go to the lower pixel, or ``"linear"``.
        antialiased: Whether shrinking averages.
        device: Device or adapter name that computes arrays.

    Raises:
        InvalidArgument: If neither or both of ``shape`` and ``scales`` are given, or more than x has dimensions.
    """
    tensor = tensor_of("x", x)
    if (shape is None) == (scales is None):
        raise InvalidArgument(
            f"{caller()}: either shape or scales must be given, got {'none' if shape is None else 'both'}"
        )
    requested: Any = (
        coercion.argument(caller(), "shape", coercion.tuple_of(_POSITIVE, "integers"), shape)
        if scales is None
        else coercion.argument(caller(), "scales", _NUMBERS, scales)
    )
    rest = tensor.ndim - len(requested)
    if rest < 0:
        raise InvalidArgument(
            f"{caller()}: {'shape' if scales is None else 'scales'} must have at most {tensor.ndim} entries, got "
            f"{shown(requested)}"
        )
    interpolation = member(caller(), "mode", InterpolationMode, mode)
    is_nearest = interpolation is InterpolationMode.NEAREST_NEIGHBOR
    return directml.resample3(
        tensor,
        interpolation_mode=interpolation,
        # DirectML rounds the nearest pixel up: an offset of half a pixel less rounds to the nearest one.
        input_pixel_offsets=(1.0,) * tensor.ndim if is_nearest else None,
        antialiased=antialiased,
        scales=None if scales is None else (1.0,) * rest + requested,
        output_sizes=(*tensor.sizes[:rest], *requested) if scales is None else None,
    )
