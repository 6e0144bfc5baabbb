"""Steps of ``GradScaler``, and of optimizers with ``fused=True``, computed from operators on lists of tensors."""

from __future__ import annotations

from typing import Any

import torch

from dmlgpu.frontends.torch.operators.registry import composes


@composes("_amp_foreach_non_finite_check_and_unscale_")
def unscale(grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Multiply gradients by a number; write 1 into ``found_inf`` if one is not finite."""
    for grad in grads:
        found_inf.copy_(torch.maximum(found_inf, (~grad.isfinite()).any()))
        grad.mul_(inv_scale)


@composes("_amp_update_scale_")
def update_scale(
    scale: torch.Tensor,
    tracker: torch.Tensor,
    found_inf: torch.Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> torch.Tensor:
    """Lower the scale after an infinity; raise it after an interval without one."""
    is_inf, count = found_inf != 0, tracker + 1
    is_due = count == growth_interval
    grown = scale * growth_factor
    grown = torch.where(is_due & grown.isfinite(), grown, scale)
    scale.copy_(torch.where(is_inf, scale * backoff_factor, grown))
    tracker.copy_(torch.where(is_inf | is_due, 0, count))
    return scale


def _is_skipped(grads: list[torch.Tensor], grad_scale: Any, found_inf: Any) -> bool:
    """Return whether gradients have infinities; otherwise, divide them by the scale of a GradScaler."""
    if found_inf is not None and found_inf.item():
        return True
    if grad_scale is not None:
        torch._foreach_div_(grads, grad_scale)
    return False


def _directions(params: list[torch.Tensor], grads: list[torch.Tensor], weight_decay: float, maximize: bool) -> Any:
    """Return the gradients with the decay of the weights; negated if the loss is maximized."""
    directions: Any = torch._foreach_neg(grads) if maximize else grads
    return torch._foreach_add(directions, params, alpha=weight_decay) if weight_decay else directions


@composes("_fused_sgd_", "_fused_sgd_.tensor_lr")
def fused_sgd(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    momentum_buffers: list[torch.Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    """Update parameters by one step of SGD."""
    if _is_skipped(grads, grad_scale, found_inf):
        return
    directions = _directions(params, grads, weight_decay, maximize)
    if momentum:
        if is_first_step:
            torch._foreach_copy_(momentum_buffers, directions)
        else:
            torch._foreach_mul_(momentum_buffers, momentum)
            torch._foreach_add_(momentum_buffers, directions, alpha=1 - dampening)
        directions = torch._foreach_add(directions, momentum_buffers, alpha=momentum) if nesterov else momentum_buffers
    torch._foreach_add_(params, torch._foreach_mul(directions, -float(lr)))


def _adam(
    is_decoupled: bool,
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    averages: list[torch.Tensor],
    squares: list[torch.Tensor],
    largest: list[torch.Tensor],
    steps: list[torch.Tensor],
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    """Update parameters by one step of Adam; if decoupled, weights decay as in AdamW."""
    if _is_skipped(grads, grad_scale, found_inf):
        return
    lr = float(lr)
    if is_decoupled:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    directions = _directions(params, grads, 0.0 if is_decoupled else weight_decay, maximize)
    torch._foreach_lerp_(averages, directions, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, directions, directions, 1 - beta2)
    if amsgrad:
        torch._foreach_maximum_(largest, squares)
    for param, average, square, step in zip(params, averages, largest if amsgrad else squares, steps, strict=True):
        rate = lr / (1 - beta1**step)
        param.sub_(rate * average / ((square / (1 - beta2**step)).sqrt() + eps))


@composes("_fused_adam_", "_fused_adam_.tensor_lr")
def fused_adam(*args: Any, **kwargs: Any) -> None:
    """Update parameters by one step of Adam."""
    _adam(False, *args, **kwargs)


@composes("_fused_adamw_", "_fused_adamw_.tensor_lr")
def fused_adamw(*args: Any, **kwargs: Any) -> None:
    """Update parameters by one step of AdamW."""
    _adam(True, *args, **kwargs)


@composes("_fused_adagrad_", "_fused_adagrad_.tensor_lr")
def fused_adagrad(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    sums: list[torch.Tensor],
    steps: list[torch.Tensor],
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    """Update parameters by one step of Adagrad."""
    if _is_skipped(grads, grad_scale, found_inf):
        return
    directions = _directions(params, grads, weight_decay, maximize)
    torch._foreach_addcmul_(sums, directions, directions, 1)
    for param, direction, total, step in zip(params, directions, sums, steps, strict=True):
        param.sub_(float(lr) / (1 + (step - 1) * lr_decay) * direction / (total.sqrt() + eps))
