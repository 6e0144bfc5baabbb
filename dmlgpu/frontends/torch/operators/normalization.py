"""Normalization over batches, layers and groups, and its gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.internals import below_autograd, dual_level
from dmlgpu.frontends.torch.operators.registry import DIFFERENTIABLE, aten, composes, overload
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import filled, widened
from dmlgpu.tensors.gradients.rules import mean as mean_of
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing import compiled

Three = tuple[Tensor | None, Tensor | None, Tensor | None]


def _mixed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a normalization or its gradient take 16-bit floats with float32 weights and statistics, as autocast does.

    The first result has the dtype of the first operand, others have that of the weights.
    """

    @functools.wraps(function)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        kinds = {operand.data_type for operand in (*args, *kwargs.values()) if isinstance(operand, Tensor)}
        if not x.data_type.is_reduced_float or DataType.FLOAT32 not in kinds:
            return function(x, *args, **kwargs)
        operands = (widened(operand) if isinstance(operand, Tensor) else operand for operand in (x, *args))
        named = {name: widened(value) if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        results = function(*operands, **named)
        if isinstance(results, Tensor):
            return results.astype(x.data_type)
        first, *others = results
        return (None if first is None else first.astype(x.data_type), *others)

    return call


def _inverse(variance: Tensor, eps: float) -> Tensor:
    """Return 1 / sqrt(variance + eps)."""
    result: Tensor = directml.element_wise_recip(directml.element_wise_sqrt(variance + eps))
    return result


def _number(x: Tensor, number: float) -> Tensor:
    """Return a number in the type of a tensor and with its dimensions, in a graph as a constant, which takes no
    binding."""
    trace = recorder()
    if trace is None:
        return filled(x, (1,) * x.ndim, number)
    constant: Tensor = trace._number(number, x.data_type).reshape((1,) * x.ndim)
    return constant


def _normalized(
    x: Tensor, sizes: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize `x` over the axes in which `sizes` is 1, then scale and shift; return also mean and variance."""
    ones, zeros = (_number(x, index).broadcast_to(tuple(sizes)) for index in (1, 0))
    is_per_channel = all(tensor is None or tensor.sizes == tuple(sizes) for tensor in (weight, bias))
    outputs: Any = directml.batch_normalization_training(
        x,
        weight if is_per_channel and weight is not None else ones,
        bias if is_per_channel and bias is not None else zeros,
        epsilon=eps,
    )
    output = outputs.output
    if not is_per_channel:
        output = output if weight is None else output * weight
        output = output if bias is None else output + bias
    return output, outputs.output_mean, outputs.output_variance


@compiled.compile
def _normalized_with_inverse(
    x: Tensor, sizes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of ``_normalized``, with the reciprocal of the deviation in place of the variance, in the
    dtypes of ``_mixed``.

    It is compiled because an eager call takes as long as its kernels are many.
    """
    kind = _statistics_type(x, weight, bias)
    weight, bias = _wide(weight, bias)
    output, mean, variance = _normalized(widened(x), sizes, weight, bias, eps)
    return output.astype(x.data_type), mean.astype(kind), _inverse(variance, eps).astype(kind)


def _wide(*operands: Tensor | None) -> list[Tensor | None]:
    return [None if operand is None else widened(operand) for operand in operands]


def _statistics_type(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> DataType:
    """Return the dtype of mean and reciprocal of the deviation: float32 if one of the operands has it."""
    kinds = {operand.data_type for operand in (x, weight, bias) if operand is not None}
    return DataType.FLOAT32 if DataType.FLOAT32 in kinds else x.data_type


@compiled.compile
def _normalized_alone(
    x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float, use_mean: bool = True
) -> Tensor:
    """Return the first result of ``_normalized``, of the dtype of `x`, by a single kernel. Without the mean, it divides
    by the root mean square."""
    output: Tensor = directml.mean_variance_normalization2(widened(x), axes=axes, use_mean=use_mean, epsilon=eps)
    weight, bias = _wide(weight, bias)
    output = output if weight is None else output * weight
    return (output if bias is None else output + bias).astype(x.data_type)


def _without_gradient(name: str, with_statistics: Callable[..., torch.Tensor]) -> None:
    """Call a normalization of the table unless a gradient may be computed, which needs the statistics.

    Args:
        name: The operator, which PyTorch composes of one that returns statistics.
        with_statistics: Computes it by that one.
    """
    target = overload(name)

    def normalize(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if needs_gradient or dual_level() >= 0 or not all(x.is_floating_point() for x in tensors):
            return with_statistics(*args, **kwargs)
        with below_autograd():
            result: torch.Tensor = target(*args, **kwargs)
        return result

    DIFFERENTIABLE[name] = normalize


@compiled.compile
def _gradients(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    axes: Sequence[int],
    others: Sequence[int],
    mask: Sequence[bool],
    fixed: bool = False,
) -> Three:
    """Return the gradients of input, weight and bias of a normalization over `axes`; those of weight and bias are sums
    over `others`. With `fixed` statistics, these do not depend on the input."""
    normalized = (x - mean) * inverse
    if axes == others and mask[0] and not fixed and gradient.data_type is DataType.FLOAT32:
        sums = total(gradient * normalized, others), total(gradient, others)
        scale = inverse if weight is None else inverse * weight
        count = math.prod(x.sizes[axis] for axis in axes)
        of_input = scale * (gradient - sums[1] * (1 / count) - normalized * (sums[0] * (1 / count)))
        return of_input, *(part if is_needed else None for part, is_needed in zip(sums, mask[1:], strict=True))
    of_input = None
    if mask[0]:
        scaled = gradient if weight is None else gradient * weight
        if not fixed:
            scaled = scaled - mean_of(scaled, axes) - normalized * mean_of(scaled * normalized, axes)
        of_input = scaled * inverse
    return (
        of_input,
        total(gradient * normalized, others) if mask[1] else None,
        total(gradient, others) if mask[2] else None,
    )


# ---- batches ---------------------------------------------------------------------------------------------------------


def _per_channel(values: Tensor | None, x: Tensor) -> Tensor | None:
    """Return a vector along the second axis."""
    return None if values is None else values.expand_dims((0, *range(2, x.ndim)))


def batch_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalize a batch by its own mean and variance; return also these, and the reciprocal of the deviation."""
    channels = x.sizes[1]
    if not x.size:
        return x, filled(x, (channels,)), filled(x, (channels,)), filled(x, (channels,), math.nan)
    sizes = (1, channels, *(1,) * (x.ndim - 2))
    output, mean, variance = _normalized(x, sizes, _per_channel(weight, x), _per_channel(bias, x), eps)
    mean, variance = mean.reshape(channels), variance.reshape(channels)
    return output, mean, variance, _inverse(variance, eps)


def normalized_batch(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Normalize a batch by a given mean and variance."""
    if not x.size:
        return x
    channels = x.sizes[1:2]
    scale = filled(x, (1,), 1).broadcast_to(channels) if weight is None else weight
    shift = filled(x, (1,), 0).broadcast_to(channels) if bias is None else bias
    parts: list[Any] = [_per_channel(vector, x) for vector in (mean, variance, scale, shift)]
    result: Tensor = directml.batch_normalization(x, *parts, spatial=True, epsilon=eps)
    return result


@aten("_native_batch_norm_legit.no_stats", wide=True, fused=True)
@_mixed
def batch_norm_without_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize a batch by its own mean and variance."""
    output, mean, _, inverse = batch_statistics(x, weight, bias, eps)
    return output, mean, inverse


@aten("_native_batch_norm_legit_no_training")
@_mixed
def batch_norm_of_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize a batch by running statistics."""
    nothing = filled(x, (0,))
    return normalized_batch(x, running_mean, running_variance, weight, bias, eps), nothing, nothing


@composes("native_batch_norm")
def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize a batch; while training, by its own statistics, which update the running ones."""
    if not training:
        return torch.ops.aten._native_batch_norm_legit_no_training(
            x, weight, bias, running_mean, running_variance, momentum, eps
        )
    if running_mean is None and running_variance is None:
        return torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, eps)
    means, variances = (
        x.new_zeros(x.shape[1]) if statistics is None else statistics for statistics in (running_mean, running_variance)
    )
    return torch.ops.aten._native_batch_norm_legit(x, weight, bias, means, variances, True, momentum, eps)


@composes("_batch_norm_with_update")
def batch_norm_with_update(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_variance: torch.Tensor,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize a batch by its own statistics, and update the running ones."""
    results = native_batch_norm(x, weight, bias, running_mean, running_variance, True, momentum, eps)
    return *results, x.new_empty(0, dtype=torch.uint8)


@composes("batch_norm_backward")
def batch_norm_with_update_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_variance: torch.Tensor | None,
    mean: torch.Tensor | None,
    inverse: torch.Tensor | None,
    update: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: torch.Tensor,
) -> Any:
    """Return the gradients of input, weight and bias of `_batch_norm_with_update`."""
    return torch.ops.aten.native_batch_norm_backward(
        gradient, x, weight, running_mean, running_variance, mean, inverse, update, eps, mask
    )


@aten("native_batch_norm_backward", wide=True, fused=True)
@_mixed
def batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    mean: Tensor | None,
    inverse: Tensor | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> Three:
    """Return the gradients of input, weight and bias of a batch normalization."""
    channels = x.sizes[1]
    if not x.size:
        return x, filled(x, (channels,)), filled(x, (channels,))
    if not train:
        assert running_variance is not None
        mean, inverse = running_mean, _inverse(running_variance, eps)
    others = (0, *range(2, x.ndim))
    parts: list[Any] = [_per_channel(vector, x) for vector in (mean, inverse, weight)]
    results = _gradients(gradient, x, parts[0], parts[1], parts[2], others, others, mask, not train)
    of_input, *sums = results
    return of_input, *(None if gradient is None else gradient.reshape(channels) for gradient in sums)  # type: ignore[return-value]


@aten("_native_batch_norm_legit_functional", wide=True, fused=True)
@_mixed
def batch_norm_with_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalize a batch by its own mean and variance, and return updated running ones; else normalize by the running
    ones."""
    if not training:
        output = normalized_batch(x, running_mean, running_variance, weight, bias, eps)
        return output, filled(x, (0,)), filled(x, (0,)), running_mean, running_variance
    output, mean, variance, inverse = batch_statistics(x, weight, bias, eps)
    count = x.size // max(1, x.sizes[1])
    unbiased = variance * (count / max(1, count - 1))
    return (
        output,
        mean,
        inverse,
        running_mean * (1 - momentum) + mean * momentum,
        running_variance * (1 - momentum) + unbiased * momentum,
    )


# ---- layers ----------------------------------------------------------------------------------------------------------


@aten("native_layer_norm")
def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize the last axes; return also the mean and the reciprocal of the deviation."""
    outer = x.sizes[: x.ndim - len(normalized_shape)]
    statistics_shape = (*outer, *(1,) * len(normalized_shape))
    if not x.size:
        nothing = filled(x, statistics_shape).astype(_statistics_type(x, weight, bias))
        return x, nothing, nothing
    rows = x.reshape(math.prod(outer), -1)
    weight, bias = (None if vector is None else vector.reshape(1, -1) for vector in (weight, bias))
    output, mean, inverse = _normalized_with_inverse(rows, (rows.sizes[0], 1), weight, bias, eps)
    return output.reshape(x.sizes), mean.reshape(statistics_shape), inverse.reshape(statistics_shape)


@aten("layer_norm")
def layer_norm_alone(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalize the last axes."""
    if not x.size:
        return x
    rows = x.reshape(math.prod(x.sizes[: x.ndim - len(normalized_shape)]), -1)
    weight, bias = (None if vector is None else vector.reshape(1, -1) for vector in (weight, bias))
    result: Tensor = _normalized_alone(rows, (1,), weight, bias, eps).reshape(x.sizes)
    return result


_without_gradient(
    "layer_norm",
    lambda x, shape, weight=None, bias=None, eps=1e-5, *_, **__: torch.native_layer_norm(x, shape, weight, bias, eps)[
        0
    ],
)


@aten("rms_norm")
def rms_norm_alone(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide the last axes by their root mean square."""
    if not x.size:
        return x
    eps = torch.finfo(torch.float32).eps if eps is None else eps  # of the type that it computes in
    rows = x.reshape(math.prod(x.sizes[: x.ndim - len(normalized_shape)]), -1)
    weight = None if weight is None else weight.reshape(1, -1)
    result: Tensor = _normalized_alone(rows, (1,), weight, None, eps, False).reshape(x.sizes)
    return result


@aten("_fused_rms_norm", fused=True)
def rms_norm_with_inverse(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """Divide the last axes by their root mean square; return also its reciprocal, float32."""
    outer = x.sizes[: x.ndim - len(normalized_shape)]
    statistics_shape = (*outer, *(1,) * len(normalized_shape))
    if not x.size:
        return x, filled(x, statistics_shape).astype(DataType.FLOAT32)
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    rows = widened(x).reshape(math.prod(outer), -1)
    inverse = _inverse(mean_of(rows * rows, (1,)), eps)
    output = rows * inverse
    output = output if weight is None else output * widened(weight).reshape(1, -1)
    return output.reshape(x.sizes).astype(x.data_type), inverse.reshape(statistics_shape)


@aten("_fused_rms_norm_backward", fused=True)
def rms_norm_backward(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    inverse: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of input and weight of a root mean square normalization."""
    if not x.size:
        return x, filled(x, tuple(normalized_shape)) if mask[1] else None
    count = math.prod(x.sizes[: x.ndim - len(normalized_shape)])
    rows, gradients = (widened(tensor).reshape(count, -1) for tensor in (x, gradient))
    inverse = inverse.reshape(count, 1)
    normalized = rows * inverse
    of_input = of_weight = None
    if mask[0]:
        scaled = gradients if weight is None else gradients * widened(weight).reshape(1, -1)
        of_rows: Tensor = (scaled - normalized * mean_of(scaled * normalized, (1,))) * inverse
        of_input = of_rows.reshape(x.sizes).astype(x.data_type)
    if mask[1] and weight is not None:
        of_weight = total(gradients * normalized, (0,)).reshape(tuple(normalized_shape)).astype(weight.data_type)
    return of_input, of_weight


_without_gradient(
    "rms_norm",
    lambda x, shape, weight=None, eps=None: torch.ops.aten._fused_rms_norm(x, shape, weight, eps)[0],
)


@aten("native_layer_norm_backward", wide=True)
@_mixed
def layer_norm_backward(
    gradient: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Three:
    """Return the gradients of input, weight and bias of a layer normalization."""
    first = x.ndim - len(normalized_shape)
    if not x.size:
        zeros = filled(x, tuple(normalized_shape))
        return x, zeros if mask[1] else None, zeros if mask[2] else None
    mask = (mask[0], mask[1] and weight is not None, mask[2] and bias is not None)
    rows, gradients = (tensor.reshape(math.prod(x.sizes[:first]), -1) for tensor in (x, gradient))
    mean, inverse = mean.reshape(-1, 1), inverse.reshape(-1, 1)
    scale = None if weight is None else weight.reshape(1, -1)
    results = _gradients(gradients, rows, mean, inverse, scale, (1,), (0,), mask)
    shapes = (x.sizes, tuple(normalized_shape), tuple(normalized_shape))
    return tuple(  # type: ignore[return-value]
        None if part is None else part.reshape(shape) for part, shape in zip(results, shapes, strict=True)
    )


# ---- groups ----------------------------------------------------------------------------------------------------------


@aten("native_group_norm")
def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    area: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize groups of channels; return also the mean and the reciprocal of the deviation of each."""
    if not x.size:
        kind = _statistics_type(x, weight, bias)
        zeros, inverse = filled(x, (batch, groups)), filled(x, (batch, groups), math.nan if batch else 0)
        return x, zeros.astype(kind), inverse.astype(kind)
    rows = x.reshape(batch, groups, channels // groups, area)
    weight, bias = (
        None if vector is None else vector.reshape(1, groups, channels // groups, 1) for vector in (weight, bias)
    )
    output, mean, inverse = _normalized_with_inverse(rows, (batch, groups, 1, 1), weight, bias, eps)
    return output.reshape(x.sizes), mean.reshape(batch, groups), inverse.reshape(batch, groups)


@aten("group_norm")
def group_norm_alone(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalize groups of channels."""
    if not x.size:
        return x
    batch, channels = x.sizes[:2]
    width = channels // num_groups
    rows = x.reshape(batch, num_groups, width, -1)
    weight, bias = (None if vector is None else vector.reshape(1, num_groups, width, 1) for vector in (weight, bias))
    result: Tensor = _normalized_alone(rows, (2, 3), weight, bias, eps).reshape(x.sizes)
    return result


def _group_norm_with_statistics(
    x: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    batch, channels = x.shape[:2]
    area = math.prod(x.shape[2:])
    return torch.native_group_norm(x, weight, bias, batch, channels, area, num_groups, eps)[0]


_without_gradient("group_norm", _group_norm_with_statistics)


@aten("native_group_norm_backward", wide=True)
@_mixed
def group_norm_backward(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    area: int,
    groups: int,
    mask: Sequence[bool],
) -> Three:
    """Return the gradients of input, weight and bias of a group normalization."""
    if not x.size:
        return x, filled(x, (channels,)), filled(x, (channels,))
    shape = (batch, groups, channels // groups, area)
    rows, gradients = x.reshape(shape), gradient.reshape(shape)
    mean, inverse = (statistic.reshape(batch, groups, 1, 1) for statistic in (mean, inverse))
    scale = None if weight is None else weight.reshape(1, groups, channels // groups, 1)
    of_input, *sums = _gradients(gradients, rows, mean, inverse, scale, (2, 3), (0, 3), mask)
    return (
        None if of_input is None else of_input.reshape(x.sizes),
        *(None if gradient is None else gradient.reshape(channels) for gradient in sums),  # type: ignore[return-value]
    )
