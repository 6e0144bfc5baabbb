"""``torch.UntypedStorage`` on the device: PyTorch's own methods would read bytes at an invalid address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dmlgpu.frontends.torch import adapters, storage
from dmlgpu.frontends.torch.internals import SHARING, read_file, write_file
from dmlgpu.frontends.torch.views import bytes_of

_Storage = torch.UntypedStorage


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == adapters.NAME


def _new(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Create a storage; one of the device has uninitialized memory, or the bytes of a sequence."""
    if not _is_ours(device):
        return _original_new(cls, *args, **({} if device is None else {"device": device}), **kwargs)
    device = torch.device(device)
    index = adapters.current_index() if device.index is None else device.index
    content = args[0] if args else kwargs.get("size", 0)
    if isinstance(content, int):
        return storage.allocated_storage(index, content, "UntypedStorage")
    x = torch.tensor(list(content), dtype=torch.uint8).to(adapters.torch_device(index))
    return x.untyped_storage()


_original_new: Callable[..., Any] = _Storage.__new__


def _all_bytes(source: Any) -> torch.Tensor:
    memory = storage.memory_in(source)
    return bytes_of(source, memory.index, memory.size)


def _size(source: Any) -> int:
    """Return the bytes of a storage; those of fake tensors have no memory."""
    memory = getattr(source, "memory", None)
    return storage.bytes_in(source) if memory is None else memory.size


def _resize(source: Any, size: int) -> Any:
    memory = storage.memory_in(source)
    if size > storage.bytes_in(source):
        raise RuntimeError(
            f"a dml storage of {storage.bytes_in(source)} bytes cannot grow to {size}; "
            "tensor.resize_() gives a tensor a new one"
        )
    grown = storage.allocated_storage(memory.index, size, "resize_")
    count = min(memory.size, size)
    if count:
        old = storage.tensor_of(bytes_of(source, memory.index, count))
        storage.write(bytes_of(grown, memory.index, count), old)
    source.memory = grown.memory
    return source


def _fill(source: Any, value: int) -> Any:
    _all_bytes(source).fill_(value)
    return source


def _get(source: Any, index: Any) -> Any:
    if isinstance(index, slice):
        return _all_bytes(source)[index].clone().untyped_storage()
    return _all_bytes(source)[index].item()


def _put(source: Any, index: Any, value: Any) -> None:
    _all_bytes(source)[index] = value


def _read_file(source: Any, *args: Any) -> Any:
    return source.copy_(read_file(_Storage(source.nbytes()), *args))


def _shared(source: Any, *_: Any) -> Any:
    raise RuntimeError(
        "memory of the dml device is not shared between processes; move the tensor with .cpu() before it is sent"
    )


_METHODS: dict[str, Callable[..., Any]] = {
    "nbytes": _size,
    "size": _size,
    "resize_": _resize,
    "fill_": _fill,
    "__getitem__": _get,
    "__setitem__": _put,
    "tolist": lambda source: _all_bytes(source).tolist(),
    "is_pinned": lambda source, device=None: False,
    "is_shared": lambda source: False,
    write_file.__name__: lambda source, *args: write_file(source.cpu(), *args),
    read_file.__name__: _read_file,
    **dict.fromkeys(SHARING, _shared),
    "share_memory_": _shared,
}


def _dispatching(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (ours if self.device.type == adapters.NAME else original)(self, *args, **kwargs)

    method.__name__, method.__doc__ = original.__name__, original.__doc__
    return method


def register() -> None:
    """Let storages of the device be created, read and written."""
    _Storage.__new__ = staticmethod(_new)  # type: ignore[method-assign]
    for name, ours in _METHODS.items():
        setattr(_Storage, name, _dispatching(getattr(_Storage, name), ours))
