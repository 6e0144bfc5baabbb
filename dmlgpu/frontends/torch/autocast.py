"""``torch.autocast("dml")``: which operators compute in float16 or bfloat16, and which in float32;
``torch.amp.GradScaler``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.internals import AUTOCAST_KEYS, excluding_keys
from dmlgpu.frontends.torch.operators.registry import installed, overload

_HALF = (
    "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input",
    "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "mm", "mv", "linear",
    "addbmm", "baddbmm", "bmm", "chain_matmul", "conv_tbc", "linalg_multi_dot", "linalg_vecdot",
    "scaled_dot_product_attention", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell",
)  # fmt: skip

_FLOAT = (
    "acos", "asin", "binary_cross_entropy_with_logits", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy_loss", "ctc_loss.Tensor", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1",
    "group_norm", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p",
    "log2", "log_softmax.int", "logsumexp", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "nll_loss", "nll_loss2d", "norm.Scalar", "nuclear_norm", "pdist",
    "poisson_nll_loss", "pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "prod", "prod.dim_int", "reciprocal",
    "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax.int", "softplus", "sum",
    "sum.dim_IntList", "tan", "triplet_margin_loss",
)  # fmt: skip

_WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot", "cat",
    "stack", "scatter_add",
)  # fmt: skip

_LIBRARY = torch.library.Library("aten", "IMPL")
_FALLTHROUGH = torch.library.Library("_", "IMPL")


_weights: dict[Any, tuple[torch.Tensor, int, torch.Tensor]] = {}
"""Weights of the blocks of autocast that are active, with their versions and their casts, by id, dtype and whether
autograd records them."""


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype is dtype or value.device.type != adapters.NAME or value.dtype not in _COMPUTED:
            return value
        is_weight = value.requires_grad and value.is_leaf and value.dtype is torch.float32
        if not is_weight or not torch.is_autocast_cache_enabled():
            return value.to(dtype)
        key = id(value), dtype, torch.is_grad_enabled()
        weight, version, cast = _weights.get(key, (None, 0, None))
        if cast is None or weight is not value or version != value._version:
            cast = value.to(dtype)
            _weights[key] = value, value._version, cast
        return cast
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype) for item in value)
    return value


_COMPUTED = frozenset({torch.float16, torch.bfloat16, torch.float32})


def _clears_weights(original: Callable[[], None]) -> Callable[[], None]:
    """Return ``torch.clear_autocast_cache``, which PyTorch calls at the end of the outermost block."""

    @functools.wraps(original)
    def clear_autocast_cache() -> None:
        _weights.clear()
        original()

    return clear_autocast_cache


def _floats(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dtype.is_floating_point:
                yield value.dtype
        elif isinstance(value, list | tuple):
            yield from _floats(value)


def _widest(values: Any) -> torch.dtype:
    """Return the dtype of autocast, but float32 if an operand has it."""
    return torch.float32 if torch.float32 in _floats(values) else torch.get_autocast_dtype(adapters.NAME)


def _kernel(name: str, dtype_of: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    """Return a kernel that calls an operator on operands converted to the dtype that a function chooses."""
    target = overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with excluding_keys(AUTOCAST_KEYS):
            dtype = dtype_of((*args, *kwargs.values()))
            return target(
                *(_cast(value, dtype) for value in args), **{key: _cast(value, dtype) for key, value in kwargs.items()}
            )

    return kernel


class _WithoutFloat64(TorchFunctionMode):
    """Lets ``double`` return float32 tensors as they are."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if function is torch.Tensor.double else function(*args, **(kwargs or {}))


def _unscale(original: Callable[..., None]) -> Callable[..., None]:
    """Return the method of ``GradScaler`` that divides gradients by the scale, whose reciprocal is one of float32."""

    @functools.wraps(original)
    def unscale_(scaler: Any, optimizer: Any) -> None:
        parameters = (x for group in optimizer.param_groups for x in group["params"])
        if not any(x.device.type == adapters.NAME for x in parameters):
            return original(scaler, optimizer)
        with _WithoutFloat64():
            return original(scaler, optimizer)

    return unscale_


def register() -> None:
    """Register kernels for the lists; all other operators take their operands as they are."""
    torch.amp.GradScaler.unscale_ = _unscale(torch.amp.GradScaler.unscale_)  # type: ignore[method-assign]
    torch.clear_autocast_cache = _clears_weights(torch.clear_autocast_cache)
    _FALLTHROUGH.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    rules: tuple[tuple[tuple[str, ...], Callable[[Any], torch.dtype]], ...] = (
        (_HALF, lambda _: torch.get_autocast_dtype(adapters.NAME)),
        (_FLOAT, lambda _: torch.float32),
        (_WIDEST, _widest),
    )
    for names, rule in rules:
        for name in installed(names):
            _LIBRARY.impl(name, _kernel(name, rule), "AutocastPrivateUse1")
