"""What neural networks are made of, under their usual names: activations, normalisation, products, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import InterpolationMode
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.layout import broadcast_strides, checked_axes, checked_axis
from dmlgpu.tensors.preparation import member
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import matmul as product
from dmlgpu.tensors.types import TypeLike

__all__ = [
    "attention",
    "batch_norm",
    "dequantize",
    "elu",
    "gelu",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "matmul",
    "quantize",
    "relu",
    "resize",
    "rms_norm",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
]

_POSITIVE = kinds.between(1, 2**32 - 1)
_NUMBERS = kinds.tuple_of(kinds.real, "numbers")

# ---- activations -----------------------------------------------------------------------------------------------------


@eager
def softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Exponentials divided by their sum along axes."""
    return directml.activation_softmax1(x, axes=_axes(tensor_of("x", x), axis))


@eager
def log_softmax(x: Operand, axis: int | Sequence[int] = -1, *, device: Where = None) -> Array:
    """Logarithm of ``softmax``."""
    return directml.activation_log_softmax1(x, axes=_axes(tensor_of("x", x), axis))


@eager
def relu(x: Operand, *, device: Where = None) -> Array:
    """Each element, but at least 0."""
    return directml.activation_relu(x)


@eager
def leaky_relu(x: Operand, alpha: float = 0.01, *, device: Where = None) -> Array:
    """Each element, negative ones times ``alpha``."""
    return directml.activation_leaky_relu(x, alpha=alpha)


@eager
def elu(x: Operand, alpha: float = 1.0, *, device: Where = None) -> Array:
    """Each element, alpha * (exp(x) - 1) for negative ones."""
    return directml.activation_elu(x, alpha=alpha)


@eager
def gelu(x: Operand, *, device: Where = None) -> Array:
    """Each element times the chance that a normal variable is below it."""
    return directml.activation_gelu(x)


@eager
def sigmoid(x: Operand, *, device: Where = None) -> Array:
    """1 / (1 + exp(-x)) of each element."""
    return directml.activation_sigmoid(x)


@eager
def silu(x: Operand, *, device: Where = None) -> Array:
    """Each element times its sigmoid."""
    return directml.element_wise_multiply(x, directml.activation_sigmoid(x))


@eager
def softplus(x: Operand, *, device: Where = None) -> Array:
    """log(1 + exp(x)) of each element."""
    return directml.activation_softplus(x, steepness=1.0)


# ---- normalisation ---------------------------------------------------------------------------------------------------


@eager
def layer_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Mean 0 and variance 1 along axes, times ``weight`` plus ``bias``, which broadcast to x."""
    tensor = tensor_of("x", x)
    found: Tensor = directml.mean_variance_normalization2(tensor, axes=_axes(tensor, axis), epsilon=epsilon)
    return _scaled(found, weight, bias)


@eager
def rms_norm(
    x: Operand,
    weight: Operand | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-6,
    *,
    device: Where = None,
) -> Array:
    """Elements divided by the square root of their mean square along axes, times ``weight``, which broadcasts to x."""
    tensor = tensor_of("x", x)
    found: Tensor = directml.mean_variance_normalization2(
        tensor, axes=_axes(tensor, axis), epsilon=epsilon, use_mean=False
    )
    return _scaled(found, weight, None)


@eager
def group_norm(
    x: Operand,
    groups: int,
    weight: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Mean 0 and variance 1 of each group of channels {N, C, ...}, times ``weight`` plus ``bias`` {C}.

    Raises:
        InvalidArgument: the groups do not divide the channels.
    """
    tensor = _channelled(x)
    count = kinds.argument(caller(), "groups", _POSITIVE, groups)
    if tensor.sizes[1] % count:
        raise InvalidArgument(f"{caller()}: groups must divide the {tensor.sizes[1]} channels of x, got {count}")
    grouped = tensor.reshape(tensor.sizes[0], count, -1)
    found: Tensor = directml.mean_variance_normalization2(grouped, axes=(2,), epsilon=epsilon)
    shaped = found._renamed(tensor.sizes)
    return _scaled(shaped, _per_channel("weight", weight, shaped), _per_channel("bias", bias, shaped))


@eager
def instance_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Mean 0 and variance 1 of each channel {N, C, ...}, times ``weight`` plus ``bias`` {C}."""
    tensor = _channelled(x)
    axes = range(2, tensor.ndim)
    if not axes:
        raise InvalidArgument(f"{caller()}: x must have sizes {{N, C, ...}} and 3 dimensions, got {list(tensor.sizes)}")
    found: Tensor = directml.mean_variance_normalization2(tensor, axes=tuple(axes), epsilon=epsilon)
    return _scaled(found, _per_channel("weight", weight, found), _per_channel("bias", bias, found))


@eager
def batch_norm(
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
    *,
    device: Where = None,
) -> Array:
    """Channels {N, C, ...} less ``mean``, divided by the root of ``variance``, times ``weight`` plus ``bias``, {C}."""
    tensor = _channelled(x)
    ones, zeros = (Tensor(np.full(1, value), tensor.data_type, device=tensor.device) for value in (1, 0))
    sizes = (1, tensor.sizes[1], *(1 for _ in tensor.sizes[2:]))
    scale = _per_channel("weight", ones.broadcast_to(sizes[1:2]) if weight is None else weight, tensor)
    shift = _per_channel("bias", zeros.broadcast_to(sizes[1:2]) if bias is None else bias, tensor)
    middle, spread = _per_channel("mean", mean, tensor), _per_channel("variance", variance, tensor)
    return directml.batch_normalization(tensor, middle, spread, scale, shift, spatial=True, epsilon=epsilon)


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
    """Return one number per channel, seen with the dimensions of x."""
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
    """Product of matrices, or of stacks of them that broadcast; a vector is a row on the left, a column on the
    right."""
    return product(tensor_of("a", a), tensor_of("b", b), caller())


@eager
def linear(x: Operand, weight: Operand, bias: Operand | None = None, *, device: Where = None) -> Array:
    """Rows {..., K} times the transposed ``weight`` {N, K}, plus ``bias`` {N}.

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    rows, matrix = tensor_of("x", x), tensor_of("weight", weight)
    if not rows.sizes or matrix.ndim != 2 or rows.sizes[-1] != matrix.sizes[1]:
        raise InvalidArgument(
            f"{caller()}: weight must have sizes {{N, K}} for x {{..., K}}, got {list(matrix.sizes)} for "
            f"{list(rows.sizes)}"
        )
    flat = rows.reshape(-1, rows.sizes[-1])
    added = None if bias is None else tensor_of("bias", bias).broadcast_to((flat.sizes[0], matrix.sizes[0]))
    found: Tensor = directml.gemm(flat, matrix.T, added)
    return found._renamed((*rows.sizes[:-1], matrix.sizes[0]))


@eager
def attention(
    query: Operand,
    key: Operand,
    value: Operand,
    heads: int = 1,
    bias: Operand | None = None,
    scale: float | None = None,
    *,
    device: Where = None,
) -> Array:
    """Softmax of scaled products of queries and keys, times values, head by head (MULTIHEAD_ATTENTION).

    Args:
        query: {N, S, E}; a head is a part of E.
        key, value: {N, T, E}, {N, T, V}.
        heads: into how many parts E and V are cut.
        bias: added to the products, broadcast to {N, heads, S, T}: 0 and a large negative number, or -inf, are a mask;
            rows of -inf alone give NaN.
        scale: of the products; None is 1 / sqrt(E / heads).

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    first, second = tensor_of("query", query), tensor_of("key", key)
    count = kinds.argument(caller(), "heads", _POSITIVE, heads)
    if first.ndim != 3 or second.ndim != 3 or first.sizes[-1] % count:
        raise InvalidArgument(
            f"{caller()}: query and key must have sizes {{N, S, E}} with E a multiple of heads ({count}), "
            f"got {list(first.sizes)} and {list(second.sizes)}"
        )
    wanted = (first.sizes[0], count, first.sizes[1], second.sizes[1])
    found = directml.multihead_attention(
        first,
        second,
        value,
        relative_position_bias=None if bias is None else tensor_of("bias", bias).broadcast_to(wanted),
        scale=1 / math.sqrt(first.sizes[-1] // count) if scale is None else scale,
        mask_filter_value=-10000.0,
        head_count=count,
    )
    return found.output


# ---- numbers of few bits, images -------------------------------------------------------------------------------------


@eager
def quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    axis: int | None = None,
    output_type: TypeLike | None = None,
    *,
    device: Where = None,
) -> Array:
    """x / scale + zero_point, rounded and saturated to INT8 or UINT8; see ``dequantize``."""
    tensor = tensor_of("x", x)
    places = (_along("scale", scale, tensor, axis), _along("zero_point", zero_point, tensor, axis))
    return directml.element_wise_quantize_linear(tensor, *places, output_type=output_type)


@eager
def dequantize(
    x: Operand, scale: Operand, zero_point: Operand | None = None, axis: int | None = None, *, device: Where = None
) -> Array:
    """(x - zero_point) * scale.

    Args:
        x: INT8 or UINT8.
        scale: one number, one per element along ``axis``, or whatever broadcasts to x.
        zero_point: likewise, of x's type.
        axis: along which scale and zero point change.
    """
    tensor = tensor_of("x", x)
    places = (_along("scale", scale, tensor, axis), _along("zero_point", zero_point, tensor, axis))
    return directml.element_wise_dequantize_linear(tensor, *places)


def _along(name: str, values: Any, x: Tensor, axis: int | None) -> Any:
    """Return numbers along an axis as seen with the dimensions of x; each operand broadcasts to x."""
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
    sizes: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
    mode: InterpolationMode | str = "linear",
    antialiased: bool = False,
    *,
    device: Where = None,
) -> Array:
    """An image of other sizes, pixels being squares whose centres lie half a pixel from the corner.

    Args:
        x: 1 to 4 dimensions.
        sizes: of the result, of all dimensions or of the last ones.
        scales: in their place, how much larger they become.
        mode: ``"nearest"``, where halves go to the lower pixel, or ``"linear"``.
        antialiased: whether shrinking averages.

    Raises:
        InvalidArgument: neither sizes nor scales, both, or more than x has dimensions.
    """
    tensor = tensor_of("x", x)
    if (sizes is None) == (scales is None):
        raise InvalidArgument(
            f"{caller()}: either sizes or scales must be given, got {'none' if sizes is None else 'both'}"
        )
    given: Any = sizes if scales is None else kinds.argument(caller(), "scales", _NUMBERS, scales)
    if scales is None:
        given = kinds.argument(caller(), "sizes", kinds.tuple_of(_POSITIVE, "integers"), given)
    if len(given) > tensor.ndim:
        raise InvalidArgument(f"{caller()}: at most {tensor.ndim} sizes or scales must be given, got {shown(given)}")
    rest = tensor.ndim - len(given)
    full = (*tensor.sizes[:rest], *given) if scales is None else ((1.0,) * rest + given)
    chosen = member(caller(), "mode", InterpolationMode, mode)
    is_nearest = chosen is InterpolationMode.NEAREST_NEIGHBOR
    return directml.resample3(
        tensor,
        interpolation_mode=chosen,
        # What is nearest is rounded up: half a pixel less rounds to the nearest one.
        input_pixel_offsets=(1.0,) * tensor.ndim if is_nearest else None,
        antialiased=antialiased,
        scales=None if scales is None else full,
        output_sizes=full if scales is None else None,
    )
