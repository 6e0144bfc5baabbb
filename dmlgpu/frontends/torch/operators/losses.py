"""Losses and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch.operators.activations import log_sigmoid_forward
from dmlgpu.frontends.torch.operators.registry import Promotion, Unsupported, aten, composes, decomposes, decomposition
from dmlgpu.frontends.torch.operators.transcendental import log1p
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor

_NONE, _MEAN, _SUM = range(3)
"""PyTorch's values of reductions."""

decomposes("binary_cross_entropy_backward", "soft_margin_loss_backward")


def _with_empty(name: str) -> Callable[..., Any]:
    """Return PyTorch's decomposition of a loss's gradient, which divides by the number of elements, also for none."""

    def gradient_of(gradient: torch.Tensor, x: torch.Tensor, *args: Any) -> Any:
        return decomposition(name)(gradient, x, *args) if x.numel() else torch.zeros_like(x)

    return gradient_of


for _name in ("smooth_l1_loss_backward", "huber_loss_backward"):
    composes(_name)(_with_empty(_name))


def _reduce(losses: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return losses
    return reduced(losses, ReduceFunction.AVERAGE if reduction == _MEAN else ReduceFunction.SUM, None, False)


@aten("mse_loss", wide=True, fused=True)
def mse_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Return squared differences, or their mean or sum."""
    return _reduce(directml.element_wise_difference_square(x, target), reduction)


@aten("mse_loss_backward", wide=True, fused=True)
def mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Return the gradient of the input of `mse_loss`."""
    difference = x - target
    result: Tensor = difference * (gradient * (2.0 / max(difference.size, 1) if reduction == _MEAN else 2.0))
    return result


@aten("smooth_l1_loss", promotes=Promotion.DEFAULT, wide=True, fused=True)
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Tensor:
    """Return squares of differences below `beta`, halved and divided by it, and differences without half of it."""
    distances: Any = directml.element_wise_abs(x - target)
    squares = distances * distances * 0.5 / beta
    return _reduce(squares._chosen(distances < beta, distances - 0.5 * beta), reduction)


@aten("huber_loss", promotes=Promotion.DEFAULT, wide=True, fused=True)
def huber_loss(x: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Tensor:
    """Return halved squares of differences up to `delta`, and multiples of larger ones."""
    distances: Any = directml.element_wise_abs(x - target)
    squares = distances * distances * 0.5
    return _reduce(squares._chosen(distances <= delta, (distances - 0.5 * delta) * delta), reduction)


@aten("binary_cross_entropy_with_logits", promotes=Promotion.DEFAULT, wide=True, fused=True)
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Return the cross entropy of sigmoids of `x` and probabilities."""
    likelihood: Any = log_sigmoid_forward(x)[0]
    if pos_weight is not None:
        likelihood = likelihood * ((pos_weight - 1.0) * target + 1.0)
    losses = (1.0 - target) * x - likelihood
    return _reduce(losses if weight is None else losses * weight, reduction)


@aten("binary_cross_entropy", wide=True, fused=True)
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Tensor:
    """Return the cross entropy of probabilities, whose logarithms are at least -100."""
    hits, misses = (
        directml.element_wise_max(logarithm, -100.0) for logarithm in (directml.element_wise_log(x), log1p(-x))
    )
    losses = (target - 1.0) * misses - target * hits
    return _reduce(losses if weight is None else losses * weight, reduction)


@aten("soft_margin_loss", promotes=Promotion.DEFAULT, wide=True, fused=True)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Return the logistic losses of classes of 1 and -1, or their mean or sum."""
    return _reduce(log1p(directml.element_wise_exp(-x * target)), reduction)


# ---- margins ---------------------------------------------------------------------------------------------------------


def _spread(gradient: Tensor, count: int, reduction: int) -> Tensor:
    """Return the gradient of each row's loss {rows, 1}."""
    shares = gradient * (1.0 / count) if reduction == _MEAN else gradient
    return shares.reshape(-1, 1)


@aten("multi_margin_loss", wide=True, fused=True)
def multi_margin_loss(
    x: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Return the margin losses of rows, or their mean or sum."""
    rows, classes = x.reshape(-1, x.sizes[-1] if x.ndim else 1), target.reshape(-1, 1)
    width = rows.sizes[1]
    of_class: Tensor = directml.gather_elements(rows, classes, axis=1)
    excess: Tensor = directml.element_wise_max(rows - of_class + margin, 0.0)
    excess = excess * excess if p == 2 else excess
    if weight is not None:
        excess = excess * weight._taken(classes.reshape(-1), 0, "multi_margin_loss").expand_dims(1)
    marks = classes == sequence(width, 0, 1, DataType.INT64, x.device).expand_dims(0)
    losses = reduced((excess * (1.0 / width))._chosen(~marks, 0.0), ReduceFunction.SUM, 1, False)
    return _reduce(losses if target.ndim else losses.reshape(()), reduction)


@aten("multi_margin_loss_backward", wide=True)
def multi_margin_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    p: int,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Return the gradient of the input of `multi_margin_loss`."""
    rows, classes = x.reshape(-1, x.sizes[-1] if x.ndim else 1), target.reshape(-1, 1)
    if not x.size:
        return filled(x, x.sizes)
    count, width = rows.sizes
    marks = classes == sequence(width, 0, 1, DataType.INT64, x.device).expand_dims(0)
    of_class: Tensor = directml.gather_elements(rows, classes, axis=1)
    excess = rows - of_class + float(margin)
    slopes = (excess * 2.0 if p == 2 else excess * 0.0 + 1.0)._chosen(excess > 0, 0.0)
    if weight is not None:
        slopes = slopes * weight._taken(classes.reshape(-1), 0, "multi_margin_loss").expand_dims(1)
    others = (slopes * (1.0 / width))._chosen(~marks, 0.0)
    result = (-reduced(others, ReduceFunction.SUM, 1, True)).broadcast_to(rows.sizes)._chosen(marks, others)
    return (result * _spread(gradient, count, reduction)).reshape(x.sizes)


def _listed(names: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return for rows of class numbers, which the first negative one ends, which count, and {rows, places, classes}."""
    ends: Tensor = directml.cumulative_summation((names < 0).astype(DataType.INT32), axis=1)
    columns = sequence(width, 0, 1, DataType.INT64, names.device).expand_dims((0, 1))
    counts = ends == 0
    return counts, (names.expand_dims(2) == columns) & counts.expand_dims(2)


@aten("multilabel_margin_loss_forward", wide=True)
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the margin losses of rows, or their mean or sum, and a mask of the classes that are targets."""
    if not x.size:
        losses = filled(x, x.sizes[:-1])
        return losses if reduction == _NONE else filled(x, (), math.nan if reduction == _MEAN else 0.0), x
    rows, names = (tensor.reshape(-1, x.sizes[-1] if x.ndim else 1) for tensor in (x, target))
    width = rows.sizes[1]
    counts, listed = _listed(names, width)
    is_target = reduced(listed.astype(x.data_type), ReduceFunction.MAX, 1, False)
    of_targets: Tensor = directml.gather_elements(rows, names._chosen(counts, 0), axis=1)
    excess: Tensor = directml.element_wise_max(rows.expand_dims(1) - of_targets.expand_dims(2) + 1.0, 0.0)
    excess = excess._chosen(counts.expand_dims(2) & (is_target.expand_dims(1) == 0), 0.0)
    losses = reduced(excess, ReduceFunction.SUM, (1, 2), False) * (1.0 / width)
    return _reduce(losses if x.ndim > 1 else losses.reshape(()), reduction), is_target.reshape(target.sizes)


@aten("multilabel_margin_loss_backward", wide=True)
def multilabel_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """Return the gradient of the input of `multilabel_margin_loss_forward`."""
    if not x.size:
        return filled(x, x.sizes)
    rows, names, targets = (tensor.reshape(-1, x.sizes[-1] if x.ndim else 1) for tensor in (x, target, is_target))
    count, width = rows.sizes
    _, listed = _listed(names, width)
    repeats = reduced(listed.astype(x.data_type), ReduceFunction.SUM, 1, False)
    exceeds = (rows.expand_dims(1) - rows.expand_dims(2) + 1.0) > 0
    pairs = repeats.expand_dims(2)._chosen(exceeds & (targets.expand_dims(1) == 0), 0.0) * (1.0 / width)
    result = reduced(pairs, ReduceFunction.SUM, 1, False) - reduced(pairs, ReduceFunction.SUM, 2, False)
    return (result * _spread(gradient, count, reduction)).reshape(x.sizes)


# ---- likelihood ------------------------------------------------------------------------------------------------------


def _shares(x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> tuple[Tensor, Tensor, int]:
    """Return the weight of each row, 0 for ignored ones, its class, and the axis of classes."""
    axis = 0 if x.ndim == 1 else 1
    counts = target != ignore_index
    classes = target._chosen(counts, 0)
    if weight is None:
        return counts.astype(x.data_type), classes, axis
    shares = weight._taken(classes.reshape(-1), 0, "nll_loss").reshape(classes.sizes)
    return shares._chosen(counts, 0.0), classes, axis


@aten("nll_loss_forward", "nll_loss2d_forward", wide=True, fused=True)
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the negative log likelihood of classes, and the sum of the rows' weights."""
    if target.data_type not in {DataType.INT64, DataType.UINT8} or target.is_boolean:
        raise Unsupported(f"target must be int64 or uint8, got {target.data_type.name}")
    target = target.astype(DataType.INT64)
    if not target.size:
        if reduction == _NONE:
            return filled(x, target.sizes), filled(x, ())
        return filled(x, (), float("nan") if reduction == _MEAN else 0.0), filled(x, ())
    shares, _, axis = _shares(x, target, weight, ignore_index)
    # The class of an ignored row may be any number, and so may its loss: it is not chosen.
    values: Tensor = directml.gather_elements(x, target.expand_dims(axis), axis=axis)
    losses = -(values.squeeze(axis) if x.ndim > 1 else values.reshape(target.sizes))
    losses = (losses if weight is None else losses * shares)._chosen(target != ignore_index, 0.0)
    if reduction == _NONE and x.ndim > 1:
        return losses, filled(x, ())
    weights = reduced(shares, ReduceFunction.SUM, None, False)
    loss = losses if reduction == _NONE else reduced(losses, ReduceFunction.SUM, None, False)
    return loss / weights if reduction == _MEAN else loss, weights


@aten("nll_loss_backward", "nll_loss2d_backward", wide=True, fused=True)
def nll_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Return the gradient of the log probabilities of `nll_loss_forward`."""
    if not x.size or not target.size:
        return filled(x, x.sizes)
    target = target.astype(DataType.INT64)
    shares, classes, axis = _shares(x, target, weight, ignore_index)
    share = -shares * (gradient / total_weight if reduction == _MEAN else gradient)
    share = share._chosen(target != ignore_index, 0.0)  # the total weight is 0 if all targets are ignored
    numbers = sequence(x.sizes[axis], 0, 1, DataType.INT64, x.device)
    numbers = numbers.expand_dims(tuple(index for index in range(x.ndim) if index != axis))
    if x.ndim == 1:
        marks = classes.reshape(1) == numbers
        return share.reshape(1).broadcast_to(x.sizes)._chosen(marks, 0.0)
    marks = classes.expand_dims(axis) == numbers
    spread: Any = share.expand_dims(axis).broadcast_to(x.sizes)
    result: Tensor = spread._chosen(marks, 0.0)
    return result
