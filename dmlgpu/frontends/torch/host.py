"""Tensors of the device where PyTorch expects bytes of the host: printing, DLPack, pinned memory, waiting.

PyTorch has no hooks for these on a device written in Python, so that its functions are replaced by ones that handle
tensors of the device and leave all others to the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack

from dmlgpu.frontends.torch import adapters, device

_PINNED = torch.library.Library("aten", "IMPL")


def _is_ours(x: Any) -> bool:
    return type(x) is not type and isinstance(x, torch.Tensor) and x.device.type == adapters.NAME


def _replaced(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Let a function of PyTorch call another one if its first argument is a tensor of the device."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(original, x, *args, **kwargs) if _is_ours(x) else original(x, *args, **kwargs)

    setattr(owner, name, function)


def _on_host(original: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call a function of PyTorch on a copy on the CPU."""
    return original(x.detach().cpu(), *args, **kwargs)


def _export(original: Callable[..., Any], x: torch.Tensor, **kwargs: Any) -> Any:
    """Export a copy on the CPU, as ``dmlgpu.Tensor`` does."""
    if x.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return original(x.cpu(), **{key: value for key, value in kwargs.items() if key not in {"stream", "dl_device"}})


def _synchronize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def synchronize(where: Any = None, /) -> None:
        if torch._C._accelerator_getAccelerator().type == adapters.NAME:
            device.synchronize(where)
        else:
            original(where)

    return synchronize


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs autograd's engine, which knows one device written in Python only."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if "device_ready_queues_" not in str(error):
                raise
            raise RuntimeError(
                "gradients are computed on dml:0 only, which PyTorch's autograd allows a device written in Python; "
                "DMLGPU_ADAPTER chooses the adapter that is dml:0"
            ) from None

    return run


def register() -> None:
    """Replace the functions."""
    _replaced(torch._tensor_str, "_tensor_str", _on_host)
    _replaced(torch.Tensor, "__dlpack__", _export)
    _replaced(torch.Tensor, "__dlpack_device__", lambda original, x: original(x.new_empty((), device="cpu")))
    for owner in (torch.utils.dlpack, torch._C, torch):
        if hasattr(owner, "to_dlpack"):
            _replaced(owner, "to_dlpack", _on_host)
    torch.autograd._engine_run_backward = _backward(torch.autograd._engine_run_backward)
    torch.accelerator.synchronize = _synchronize(torch.accelerator.synchronize)
    if torch._C._accelerator_getAccelerator().type == adapters.NAME:  # no other device pins memory
        _PINNED.impl("_pin_memory", lambda x, device=None: x, "CPU")
