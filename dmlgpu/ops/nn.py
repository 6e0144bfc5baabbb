"""Neural network functions under their usual names: normalization, products, attention, quantization, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlgpu.catalog.enums import InterpolationMode
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.creation import diagonals
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of, widened
from dmlgpu.tensors.layout import broadcast_strides, checked_axes, checked_axis
from dmlgpu.tensors.preparation import member
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import matmul as product
from dmlgpu.tensors.types import TypeLike

__all__ = [
    "BatchNormResult", "attention", "batch_norm", "batch_norm_training", "dequantize", "group_norm", "instance_norm",
    "layer_norm", "linear", "matmul", "quantize", "resize", "rms_norm",
]  # fmt: skip

_POSITIVE = coercion.between(1, 2**32 - 1)
_NUMBERS = coercion.tuple_of(coercion.real, "numbers")

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
    """Normalize `x` along `axis` to mean 0 and variance 1, then scale and shift.

    Args:
        x: Tensor or array of float32 or float16, rank 1 to 8.
        weight: Factor of the normalized elements; broadcasts to `x`. Defaults to None, no scaling.
        bias: Summand of the normalized elements; broadcasts to `x`. Defaults to None, no summand.
        axis: Axis or axes to normalize over; negative axes count from the end. Defaults to the last axis.
        eps: Added to the variance; defaults to 1e-5.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, `weight` or `bias` does not broadcast to `x`, or dtypes differ.

    Examples:
        >>> ops.layer_norm([[1.0, 2.0, 3.0]]).round(3)
        array([[-1.225,  0.   ,  1.225]], dtype=float32)

    See also:
        `rms_norm`, `group_norm`, `batch_norm`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`).
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
    """Divide `x` by its root mean square along `axis`, then scale.

    Args:
        x: Tensor or array of float32 or float16, rank 1 to 8.
        weight: Factor of the normalized elements; broadcasts to `x`. Defaults to None, no scaling.
        axis: Axis or axes to normalize over; negative axes count from the end. Defaults to the last axis.
        eps: Added to the mean square; defaults to 1e-6.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, `weight` does not broadcast to `x`, or dtypes differ.

    Examples:
        >>> ops.rms_norm([[3.0, 4.0]]).round(3)
        array([[0.849, 1.131]], dtype=float32)

    See also:
        `layer_norm`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`) without the
    mean.
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
    """Normalize each group of channels to mean 0 and variance 1, then scale and shift.

    Args:
        x: Tensor or array of float32 or float16, {N, C, ...}.
        groups: Number of groups; divides C.
        weight: Factor per channel, {C}. Defaults to None, no scaling.
        bias: Summand per channel, {C}. Defaults to None, no summand.
        eps: Added to the variance; defaults to 1e-5.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `groups` does not divide C, `weight` or `bias` is not {C}, or dtypes differ.

    Examples:
        >>> ops.group_norm([[[1.0, 2.0], [3.0, 4.0]]], groups=1).round(3)
        array([[[-1.342, -0.447],
                [ 0.447,  1.342]]], dtype=float32)

    See also:
        `instance_norm`, `layer_norm`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`).
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
    """Normalize each channel of each image to mean 0 and variance 1, then scale and shift.

    Args:
        x: Tensor or array of float32 or float16, {N, C, ...}, rank 3 to 8.
        weight: Factor per channel, {C}. Defaults to None, no scaling.
        bias: Summand per channel, {C}. Defaults to None, no summand.
        eps: Added to the variance; defaults to 1e-5.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has no spatial axis, `weight` or `bias` is not {C}, or dtypes differ.

    Examples:
        >>> ops.instance_norm([[[1.0, 2.0], [3.0, 5.0]]]).round(3)
        array([[[-1.,  1.],
                [-1.,  1.]]], dtype=float32)

    See also:
        `group_norm`, `batch_norm`.

    Computed by MEAN_VARIANCE_NORMALIZATION2 (`ns-directml-dml_mean_variance_normalization2_operator_desc`).
    """
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
    """Normalize channels with a known mean and variance, then scale and shift.

    For inference: mean and variance are not computed from `x`.

    Args:
        x: Tensor or array of float32 or float16, {N, C, ...}.
        mean: Mean per channel, {C}.
        variance: Variance per channel, {C}.
        weight: Factor per channel, {C}. Defaults to None, no scaling.
        bias: Summand per channel, {C}. Defaults to None, no summand.
        eps: Added to the variance; defaults to 1e-5.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If a statistic, `weight` or `bias` is not {C}, or dtypes differ.

    Examples:
        >>> ops.batch_norm([[1.0, 2.0]], [0.0, 1.0], [1.0, 4.0]).round(3)
        array([[1. , 0.5]], dtype=float32)

    See also:
        `layer_norm`, `instance_norm`.

    Computed by BATCH_NORMALIZATION (`ns-directml-dml_batch_normalization_operator_desc`).
    """
    tensor = _channelled(x)
    statistics = (_per_channel("mean", mean, tensor), _per_channel("variance", variance, tensor))
    return directml.batch_normalization(
        tensor, *statistics, *_scale_and_shift(weight, bias, tensor), spatial=True, epsilon=eps
    )


class BatchNormResult(NamedTuple):
    """Outputs of ``batch_norm_training``.

    Attributes:
        output: Normalized elements, {N, C, ...}.
        mean: Mean of each channel, {C}.
        variance: Variance of each channel, {C}, whose divisor is the element count.
    """

    output: Array
    mean: Array
    variance: Array


@eager
def batch_norm_training(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    *,
    device: Where = None,
) -> BatchNormResult:
    """Normalize channels with their own mean and variance, then scale and shift.

    For training. Running statistics are the caller's: `running = 0.9 * running + 0.1 * mean`, for instance. PyTorch's
    running variance divides by the element count less 1.

    Args:
        x: Tensor or array of float32 or float16, {N, C, ...}.
        weight: Factor per channel, {C}. Defaults to None, no scaling.
        bias: Summand per channel, {C}. Defaults to None, no summand.
        eps: Added to the variance; defaults to 1e-5.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        `BatchNormResult`: the normalized elements, of the shape and dtype of `x`, and the mean and the variance, which
        are float32 also for float16.

    Raises:
        InvalidArgument: If `weight` or `bias` is not {C}, or dtypes differ.

    Examples:
        >>> ops.batch_norm_training([[1.0, 2.0], [3.0, 6.0]]).mean
        array([2., 4.], dtype=float32)

    See also:
        `batch_norm`, which takes known statistics.

    Computed by BATCH_NORMALIZATION_TRAINING (`ns-directml-dml_batch_normalization_training_operator_desc`).
    """
    tensor = _channelled(x)
    scale, shift = _scale_and_shift(weight, bias, tensor)
    outputs: Any = directml.batch_normalization_training(widened(tensor), widened(scale), widened(shift), epsilon=eps)
    mean, variance = (statistic.reshape(-1) for statistic in (outputs.output_mean, outputs.output_variance))
    return BatchNormResult(outputs.output.astype(tensor.data_type), mean, variance)


def _scale_and_shift(weight: Any, bias: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors and summands of channels, with the axes of x."""
    ones, zeros = (Tensor(np.full(1, value), x.data_type, device=x.device) for value in (1, 0))
    channels = x.sizes[1:2]
    return (
        _per_channel("weight", ones.broadcast_to(channels) if weight is None else weight, x),
        _per_channel("bias", zeros.broadcast_to(channels) if bias is None else bias, x),
    )


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
    """Return the product of matrices, or of stacks of matrices.

    Integers are multiplied and added in their own dtype.

    Args:
        a: Tensor or array {..., M, K} of float32, float16 or integers, or a vector {K}, which is a row.
        b: Tensor or array {..., K, N} of the dtype of `a`, or a vector {K}, which is a column. The leading axes
            broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., M, N} (an array if both operands are arrays); M or N is absent if `a` or `b` is a vector.

    Raises:
        InvalidArgument: If an operand is a scalar, the dtypes have no common one, or the shapes do not fit.

    Examples:
        >>> ops.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
        array([3., 7.], dtype=float32)

    See also:
        `linear`; `a @ b` of Tensors.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`) for floating-point dtypes.
    """
    return product(tensor_of("a", a), tensor_of("b", b), caller())


@eager
def linear(x: Operand, weight: Operand, bias: Operand | None = None, *, device: Where = None) -> Array:
    """Return x times the transposed `weight`, plus `bias`.

    Args:
        x: Tensor or array of float32 or float16, {..., K}.
        weight: {N, K}, of the dtype of `x`.
        bias: {N}; defaults to None, no summand.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., N} of the dtype of `x` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If the shapes do not fit, or dtypes differ.

    Examples:
        >>> ops.linear([[1.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]], [10.0, 20.0])
        array([[11., 23.]], dtype=float32)

    See also:
        `matmul`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`).
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
    mask: Operand | None = None,
    causal: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return scaled dot-product attention per head: softmax(query @ key.T * scale + bias) @ value.

    Args:
        query: Tensor or array of float32 or float16, {N, H, S, E}, or {N, S, H * E} with `num_heads`.
        key: {N, K, T, E}, or {N, T, K * E}. K is H, or divides it: in grouped-query attention, H / K heads of the query
            share a head.
        value: {N, K, T, V}, or {N, T, K * V}.
        num_heads: Number of heads of a query of rank 3; defaults to 1. Operands of rank 4 have an axis of heads.
        bias: Summand of the scaled products; broadcasts to {N, H, S, T}. Defaults to None.
        scale: Factor of the products; defaults to None, 1 / sqrt(E).
        mask: Bool tensor, true for visible positions, or a summand like `bias`. Broadcasts to {N, H, S, T}; a mask of
            rank 3 for operands of rank 3 is {N, S, T}. Defaults to None.
        causal: Whether position s sees positions up to s only, counted from the first, also if S is not T; defaults to
            False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {N, H, S, V} or {N, S, H * V} of the dtype of `query` (an array if no operand is a Tensor). Rows without
        a visible position are NaN, as in PyTorch's definition.

    Raises:
        InvalidArgument: If the shapes do not fit, or `num_heads` does not divide the last axis of `query`.

    Examples:
        >>> x = np.eye(3, dtype=np.float32)[None, None]
        >>> ops.attention(x, x, x, causal=True)[0, 0, 0].tolist()
        [1.0, 0.0, 0.0]
        >>> ops.attention(np.ones((1, 2, 4), np.float32), *[np.ones((1, 3, 4), np.float32)] * 2, num_heads=2).shape
        (1, 2, 4)

    See also:
        `softmax`, `matmul`.

    Computed by MULTIHEAD_ATTENTION (`ns-directml-dml_multihead_attention_operator_desc`).
    """
    queries, keys, values = tensor_of("query", query), tensor_of("key", key), tensor_of("value", value)
    operands = (queries, keys, values)
    count = coercion.argument(caller(), "num_heads", _POSITIVE, num_heads)
    if any(x.ndim != queries.ndim for x in operands) or queries.ndim not in (3, 4):
        raise InvalidArgument(
            f"{caller()}: query, key and value must have sizes {{N, H, S, E}} or {{N, S, H * E}}, got "
            f"{', '.join(str(list(x.sizes)) for x in operands)}"
        )
    is_split = queries.ndim == 4
    if is_split:
        heads = [x.sizes[1] for x in operands]
        if heads[1] != heads[2] or not heads[1] or heads[0] % heads[1] or count not in (1, heads[0]):
            raise InvalidArgument(
                f"{caller()}: key and value must have as many heads, of which those of query are a multiple, and "
                f"num_heads that of query if it is passed, got {', '.join(map(str, heads))}"
            )
        count, groups = heads[0], heads[0] // heads[1]
    else:
        groups = _groups(queries, keys, values, count)
        queries, keys, values = (
            x.reshape(*x.sizes[:2], heads, -1).transpose(0, 2, 1, 3)
            for x, heads in ((queries, count), (keys, count // groups), (values, count // groups))
        )
    if keys.sizes[3] != queries.sizes[3]:
        raise InvalidArgument(
            f"{caller()}: query and key must have heads of equal size, got {queries.sizes[3]} and {keys.sizes[3]}"
        )
    products = (*queries.sizes[:3], keys.sizes[2])
    addend = _attention_bias(queries, products, bias, mask, causal, is_split)
    output: Tensor = directml.multihead_attention(
        _joined_heads(_folded(queries, groups)),
        _joined_heads(keys),
        _joined_heads(values),
        relative_position_bias=None if addend is None else _folded(addend, groups),
        scale=1 / math.sqrt(queries.sizes[3]) if scale is None else scale,
        mask_filter_value=-10000.0,
        head_count=count // groups,
    ).output
    if groups == 1 and not is_split:
        return output
    # Rows of a head: groups, then positions.
    parts = output.reshape(queries.sizes[0], groups, queries.sizes[2], count // groups, values.sizes[3])
    if is_split:
        return parts.transpose(0, 3, 1, 2, 4).reshape(*products[:3], values.sizes[3])
    return parts.transpose(0, 2, 3, 1, 4).reshape(queries.sizes[0], queries.sizes[2], count * values.sizes[3])


def _groups(query: Tensor, key: Tensor, value: Tensor, count: int) -> int:
    """Return how many heads of a query {N, S, H * E} share one of key and value."""
    width = query.sizes[2] // count
    shared = key.sizes[2] // width if width else 0
    if query.sizes[2] % count or not shared or key.sizes[2] % width or count % shared or value.sizes[2] % shared:
        raise InvalidArgument(
            f"{caller()}: last sizes must be whole heads, those of query a multiple of those of key and value, "
            f"got {list(query.sizes)}, {list(key.sizes)}, {list(value.sizes)} and num_heads {count}"
        )
    return count // shared


def _folded(x: Tensor, groups: int) -> Tensor:
    """Return heads {N, H, S, E} with those of a group as more rows of one head, {N, H / groups, groups * S, E}.

    Key and value are read by one head instead of being repeated for each of its group.
    """
    if groups == 1:
        return x
    batch, heads, rows, width = x.sizes
    shared = [axis for axis in (0, 1) if x.strides[axis] == 0]  # broadcast axes stay so
    index = tuple(slice(0, groups if axis else 1) if axis in shared else slice(None) for axis in (0, 1))
    part = x[index]
    folded = part.reshape(part.sizes[0], part.sizes[1] // groups, groups * rows, width)
    return folded.broadcast_to((batch, heads // groups, groups * rows, width))


def _joined_heads(x: Tensor) -> Tensor:
    """Return heads {N, H, S, E} side by side, {N, S, H * E}."""
    return x.transpose(0, 2, 1, 3).reshape(x.sizes[0], x.sizes[2], x.sizes[1] * x.sizes[3])


def _attention_bias(
    like: Tensor, products: tuple[int, ...], bias: Any, mask: Any, causal: Any, is_split: bool
) -> Tensor | None:
    """Return the sum of all addends of the products of attention, -inf at masked positions; None if there are none."""
    addends = [] if bias is None else [tensor_of("bias", bias).broadcast_to(products)]
    unseen: list[Tensor] = []
    if mask is not None:
        tensor = tensor_of("mask", mask)
        tensor = tensor.expand_dims(1) if tensor.ndim == 3 and not is_split else tensor
        if tensor.is_boolean:
            unseen.append(~tensor)
        else:
            addends.append(tensor.astype(like.data_type).broadcast_to(products))
    if coercion.argument(caller(), "causal", coercion.boolean, causal):
        unseen.append(diagonals((products[2], products[3]), like.device) > 0)
    if unseen:
        hidden = unseen[0] if len(unseen) == 1 else unseen[0] | unseen[1]
        zeros = like._beside(0.0, like.data_type).broadcast_to(hidden.sizes)
        masked = like._beside(-math.inf, like.data_type)._chosen(hidden, zeros)
        addends.append(masked.broadcast_to(products))
    total: Tensor | None = None
    for addend in addends:
        total = addend if total is None else total + addend
    return total


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
    """Return x / scale + zero_point, rounded and saturated to int8 or uint8.

    Args:
        x: Tensor or array of float32, float16 or int32.
        scale: Tensor or array of float32 or float16: one element, one per element along `axis`, or a shape that
            broadcasts to `x`.
        zero_point: Likewise, of the dtype of the result; defaults to None, 0.
        axis: Axis along which scale and zero point change; defaults to None, for values that broadcast to `x`.
        dtype: int8 or uint8; defaults to the dtype of `zero_point`, uint8 without one.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` and of int8 or uint8 (an array if all operands are arrays).

    Raises:
        InvalidArgument: If scale or zero point does not broadcast to `x`, or a dtype is not supported.

    Examples:
        >>> ops.quantize([0.1, 1.0, 99.0], [0.1])
        array([  1,  10, 255], dtype=uint8)

    See also:
        `dequantize`.

    Computed by ELEMENT_WISE_QUANTIZE_LINEAR (`ns-directml-dml_element_wise_quantize_linear_operator_desc`).
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
        x: Tensor or array of int8, uint8, int16, uint16, int32 or uint32.
        scale: Tensor or array of float32 or float16: one element, one per element along `axis`, or a shape that
            broadcasts to `x`.
        zero_point: Likewise, of the dtype of `x`; defaults to None, 0.
        axis: Axis along which scale and zero point change; defaults to None, for values that broadcast to `x`.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the shape of `x` and the dtype of `scale` (an array if all operands are arrays).

    Raises:
        InvalidArgument: If scale or zero point does not broadcast to `x`, or a dtype is not supported.

    Examples:
        >>> ops.dequantize(np.array([0, 10], np.uint8), [0.5])
        array([0., 5.], dtype=float32)

    See also:
        `quantize`.

    Computed by ELEMENT_WISE_DEQUANTIZE_LINEAR (`ns-directml-dml_element_wise_dequantize_linear_operator_desc`).
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
        axis = checked_axis(caller(), "axis", axis, x.ndim)
        tensor = tensor.expand_dims(tuple(other for other in range(x.ndim) if other != axis))
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
    """Resample an image to another shape.

    Pixel centers are half a pixel from the corner, as with PyTorch's `align_corners=False`.

    Args:
        x: Tensor or array of float32, float16, int8 or uint8, rank 1 to 4.
        shape: Shape of the result, of all axes or of the last ones.
        scales: Factors of the shape, instead of `shape`.
        mode: `"nearest"`, with ties to the lower pixel, or `"linear"`, the default, also called `"bilinear"` and
            `"trilinear"`.
        antialiased: Whether shrinking averages pixels; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the new shape and the dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If neither or both of `shape` and `scales` are given, or they have more entries than `x` has
            axes.

    Examples:
        >>> ops.resize([[1.0, 2.0]], shape=[4])
        array([[1.  , 1.25, 1.75, 2.  ]], dtype=float32)

    See also:
        `interpolate`, with all of PyTorch's modes; `conv_transpose2d`, `avg_pool2d`.

    Computed by RESAMPLE3 (`ns-directml-dml_resample3_operator_desc`).
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
    interpolation = member(caller(), "mode", InterpolationMode, "linear" if mode in ("bilinear", "trilinear") else mode)
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
