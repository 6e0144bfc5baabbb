"""Functions of PyTorch that are replaced: printing, DLPack, pinned memory, waiting, the default of ``torch.compile``.

They expect tensors in host memory or of PyTorch's own devices, and have no hooks for a device written in Python. The
replacements handle tensors of the device and pass all others to the original.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from dmlgpu.frontends.torch import adapters, device, streams
from dmlgpu.frontends.torch.internals import (
    CLOSENESS,
    INDUCTOR,
    PARALLEL_DEVICE_TYPE,
    PRINTING,
    RUN_BACKWARD,
    accelerator,
    device_type_for_parallel,
)
from dmlgpu.frontends.torch.operators.registry import installed

_PINNED = torch.library.Library("aten", "IMPL")


def _is_ours(x: Any) -> bool:
    return type(x) is not type and isinstance(x, torch.Tensor) and x.device.type == adapters.NAME


def _replaced(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Replace a function of PyTorch by another one if its first argument is a tensor of the device."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(original, x, *args, **kwargs) if _is_ours(x) else original(x, *args, **kwargs)

    setattr(owner, name, function)


def _on_host(original: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call a function of PyTorch on a copy on the CPU."""
    return original(x.detach().cpu(), *args, **kwargs)


def _compare_on_host() -> None:
    """Let `torch.testing.assert_close` compare copies on the CPU, which computes float64: `torch.jit.trace` checks
    its results in float64."""
    original = getattr(*CLOSENESS)

    @functools.wraps(original)
    def compare(self: Any, *values: torch.Tensor, **options: Any) -> Any:
        return original(self, *(x.cpu() if _is_ours(x) else x for x in values), **options)

    setattr(*CLOSENESS, compare)


def _export(original: Callable[..., Any], x: torch.Tensor, **kwargs: Any) -> Any:
    """Export a copy on the CPU, as ``dmlgpu.Tensor`` does."""
    if x.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return original(x.cpu(), **{key: value for key, value in kwargs.items() if key not in {"stream", "dl_device"}})


def _no_peak(where: Any = None) -> None:
    raise RuntimeError("the largest memory_reserved() is not counted; max_memory_allocated() is that of tensors")


_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "current_device_index": device.current_device,
    "current_stream": streams.current_stream,
    "device_index": device.device,
    "empty_cache": device.empty_cache,
    "empty_host_cache": lambda: None,  # PyTorch's crashes without an allocator of pinned memory
    "get_device_capability": device.get_device_capability,
    "get_memory_info": device.mem_get_info,
    "max_memory_allocated": device.max_memory_allocated,
    "max_memory_reserved": _no_peak,
    "memory_allocated": device.memory_allocated,
    "memory_reserved": device.memory_reserved,
    "memory_stats": device.memory_stats,
    "reset_accumulated_memory_stats": lambda where=None: None,  # memory_stats has none
    "reset_peak_memory_stats": device.reset_peak_memory_stats,
    "set_device_index": lambda where: None if where == -1 else device.set_device(where),
    "set_stream": streams.set_stream,
    "synchronize": device.synchronize,
}
"""Functions of ``torch.accelerator`` that require a device written in C++."""


def _of_accelerator(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``torch.accelerator`` that calls another one while the accelerator is the device."""

    @functools.wraps(original)
    def function(*args: Any) -> Any:
        return (ours if accelerator().type == adapters.NAME else original)(*args)

    return function


def _type_in_parallel() -> str | None:
    """Return the device type that ``DataParallel`` spreads a module over; without one, it calls the module."""
    kind: str | None = device_type_for_parallel()
    return None if kind == adapters.NAME else kind


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs autograd's engine in the calling thread once the device is in use.

    The engine supports one device thread for a device written in Python, and rejects gradients of other devices there.
    """

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not adapters.opened():
            return original(*args, **kwargs)
        with torch.autograd.set_multithreading_enabled(False):
            return original(*args, **kwargs)

    return run


def _compile_by_default() -> None:
    """Let ``torch.compile`` without a backend compile graphs with tensors of the device as ``backend="dmlgpu"`` does.

    Its default, inductor, has no kernels for them. Modes and options belong to inductor and have no effect.
    """
    original = getattr(*INDUCTOR)

    @functools.wraps(original)
    def compile_graph(self: Any, module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        tensors = itertools.chain(inputs, (node.meta.get("example_value") for node in module.graph.nodes))
        if not any(map(_is_ours, tensors)):
            return original(self, module, inputs, **options)
        from dmlgpu.frontends.torch.compiled import backend  # noqa: PLC0415 - Dynamo takes seconds

        return backend(module, inputs)

    setattr(*INDUCTOR, compile_graph)


def register() -> None:
    """Replace the functions."""
    _replaced(*PRINTING, _on_host)
    _replaced(torch.Tensor, "__dlpack__", _export)
    _replaced(torch.Tensor, "__dlpack_device__", lambda original, x: original(x.new_empty((), device="cpu")))
    for owner in (torch.utils.dlpack, torch):
        _replaced(owner, "to_dlpack", _on_host)
    _compare_on_host()
    setattr(*RUN_BACKWARD, _backward(getattr(*RUN_BACKWARD)))
    for name, ours in _ACCELERATOR.items():
        setattr(torch.accelerator, name, _of_accelerator(getattr(torch.accelerator, name), ours))
    setattr(*PARALLEL_DEVICE_TYPE, _type_in_parallel)
    _compile_by_default()
    if accelerator().type == adapters.NAME:  # no other device pins memory
        for name in installed(("_pin_memory",)):
            _PINNED.impl(name, lambda x, device=None: x, "CPU")
