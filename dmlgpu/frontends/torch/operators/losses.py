"""Losses and their gradients."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch.operators.registry import aten, decomposes
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor

_NONE, _MEAN, _SUM = range(3)
"""PyTorch's numbers of reductions."""

decomposes(
    "binary_cross_entropy", "binary_cross_entropy_backward", "multi_margin_loss", "multilabel_margin_loss_forward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward", "soft_margin_loss",
    "soft_margin_loss_backward", "binary_cross_entropy_with_logits",
)  # fmt: skip


def _reduce(losses: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return losses
    return reduced(losses, ReduceFunction.AVERAGE if reduction == _MEAN else ReduceFunction.SUM, None, False)


@aten("mse_loss")
def mse_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Return squared differences, or their mean or sum."""
    return _reduce(directml.element_wise_difference_square(x, target), reduction)


@aten("mse_loss_backward")
def mse_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Return the gradient of the input of `mse_loss`."""
    difference = x - target
    result: Tensor = difference * (gradient * (2.0 / max(difference.size, 1) if reduction == _MEAN else 2.0))
    return result


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


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the negative log likelihood of classes, and the sum of the rows' weights."""
    if not target.size:
        if reduction == _NONE:
            return filled(x, target.sizes), filled(x, ())
        return filled(x, (), float("nan") if reduction == _MEAN else 0.0), filled(x, ())
    shares, classes, axis = _shares(x, target, weight, ignore_index)
    values: Tensor = directml.gather_elements(x, classes.expand_dims(axis), axis=axis)
    losses = -(values.squeeze(axis) if x.ndim > 1 else values.reshape(target.sizes)) * shares
    losses = losses._chosen(target != ignore_index, 0.0)
    if reduction == _NONE and x.ndim > 1:
        return losses, filled(x, ())
    weights = reduced(shares, ReduceFunction.SUM, None, False)
    loss = losses if reduction == _NONE else reduced(losses, ReduceFunction.SUM, None, False)
    return loss / weights if reduction == _MEAN else loss, weights


@aten("nll_loss_backward", "nll_loss2d_backward")
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
    shares, classes, axis = _shares(x, target, weight, ignore_index)
    share = -shares * (gradient / total_weight if reduction == _MEAN else gradient)
    numbers = sequence(x.sizes[axis], 0, 1, DataType.INT64, x.device)
    numbers = numbers.expand_dims(tuple(number for number in range(x.ndim) if number != axis))
    if x.ndim == 1:
        marks = classes.reshape(1) == numbers
        return share.reshape(1).broadcast_to(x.sizes)._chosen(marks, 0.0)
    marks = classes.expand_dims(axis) == numbers
    spread: Any = share.expand_dims(axis).broadcast_to(x.sizes)
    result: Tensor = spread._chosen(marks, 0.0)
    return result
