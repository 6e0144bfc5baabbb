"""Views: strides and offsets over shared memory. PyTorch's CPU kernels compute these, and touch no elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dmlgpu.catalog.tensor_desc import span
from dmlgpu.frontends.torch import storage
from dmlgpu.frontends.torch.internals import CPU_KEYS
from dmlgpu.frontends.torch.operators.registry import installed, overload


def _by_cpu(name: str) -> Callable[..., Any]:
    """Return a kernel that computes sizes, strides and offset of a view by the CPU's kernel."""
    redispatch = overload(name).redispatch

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return redispatch(CPU_KEYS, *args, **kwargs)

    return kernel


def resize(x: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    """Resize a tensor. A storage that is too small is replaced by a larger one with the same elements."""
    sizes = tuple(size)
    strides = torch.empty(sizes, device="meta", memory_format=memory_format or torch.contiguous_format).stride()
    count = 0 if 0 in sizes else span(sizes, strides)
    offset = int(x.storage_offset())
    needed = (offset + count) * x.element_size() if count else 0
    source = x.untyped_storage()
    memory = storage.memory_in(source)
    if needed > memory.size:
        source = storage.allocated_storage(memory.index, needed, "resize_")
        if memory.size:
            old = bytes_of(x.untyped_storage(), memory.index, memory.size)
            storage.write(bytes_of(source, memory.index, memory.size), storage.tensor_of(old))
    return _set_strided(x, source, offset, sizes, strides)


def _set_strided(x: torch.Tensor, source: Any, offset: int, sizes: Any, strides: Any) -> torch.Tensor:
    return overload("set_.source_Storage_storage_offset").redispatch(CPU_KEYS, x, source, offset, sizes, strides)


def bytes_of(source: Any, index: int, size: int) -> torch.Tensor:
    """Return the first bytes of a storage as a tensor."""
    return storage.over(source, index, torch.uint8, (size,), (1,))


def _set_storage(x: torch.Tensor, source: Any) -> torch.Tensor:
    count = source.nbytes() // x.element_size()
    return _set_strided(x, source, 0, (count,), (1,))


def _set_tensor(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set_strided(x, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())


def _set_nothing(x: torch.Tensor) -> torch.Tensor:
    return _set_strided(x, storage.allocated_storage(x.device.index, 0, "set_"), 0, (0,), (1,))


KERNELS: dict[str, Callable[..., Any]] = {
    **{
        name: _by_cpu(name)
        for name in installed(
            (
                "view",
                "view_as_complex",
                "view_as_real",
                "as_strided",
                "_reshape_alias",
                "unfold",
                "alias",
                "set_.source_Storage_storage_offset",
            )
        )
    },
    "set_.source_Storage": _set_storage,
    "set_.source_Tensor": _set_tensor,
    "set_": _set_nothing,
    "resize_": resize,
}
"""Kernels by name."""
