"""The adapters of ``torch.device("dml", index)``, and the memory of their tensors."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from typing import Any

import torch

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters, choose
from dmlgpu.runtime.device import Device, as_device

NAME = "dml"
"""PyTorch's name of the device."""


class MemoryCounter:
    """Bytes of the storages of a device.

    Attributes:
        allocated: Now.
        peak: At most.
    """

    def __init__(self) -> None:
        self.allocated = self.peak = 0

    def add(self, size: int) -> None:
        """Count bytes; a negative number frees them."""
        self.allocated += size
        self.peak = max(self.peak, self.allocated)


memory: defaultdict[int, MemoryCounter] = defaultdict(MemoryCounter)
"""Bytes of storages by index."""

_devices: dict[int, Device] = {}
_indices: dict[Device, int] = {}
_thread = threading.local()


def current_index() -> int:
    """Return the index of this thread's current device."""
    return getattr(_thread, "index", 0)


def set_current(index: int) -> None:
    """Set the index of this thread's current device."""
    _thread.index = index


def index_from(device: Any) -> int:
    """Return the index of a torch device, a name or an index; None is the current device.

    Raises:
        RuntimeError: If it is of another kind, or there are not as many adapters.
    """
    if isinstance(device, int):
        index: int | None = device
    else:
        resolved = None if device is None else torch.device(device)
        if resolved is not None and resolved.type != NAME:
            raise RuntimeError(f"Expected a dml device, but got: {resolved}")
        index = None if resolved is None else resolved.index
    if index is None:
        return current_index()
    if not 0 <= index < len(all_adapters()):
        raise RuntimeError(
            f"dml device {index} does not exist: there are {len(all_adapters())}, see torch.dml.device_name"
        )
    return index


@functools.cache
def all_adapters() -> tuple[AdapterInfo, ...]:
    """Return the adapters by index: that of DMLGPU_ADAPTER or the first hardware adapter, then the others."""
    first = choose()
    return (first, *(info for info in adapters() if info != first))


def device_of(index: int) -> Device:
    """Return the device of an index, opened at first use, and again after its removal.

    Raises:
        RuntimeError: If there are not as many adapters.
    """
    device = _devices.get(index)
    if device is not None and device._state.removed is None:
        return device
    info = all_adapters()[index_from(index)]
    device = _devices[index] = as_device("torch.dml", str(info)) if index == 0 else Device(info)
    _indices[device] = index
    return device


def opened() -> list[Device]:
    """Return the opened devices."""
    return list(_devices.values())


def chosen_index(device: torch.device | None) -> int:
    """Return the index of a torch device of this kind, by default of the current one."""
    return current_index() if device is None or device.index is None else device.index


def index_of(device: Device) -> int:
    """Return the index of a device that ``device_of`` returned; 0 for others."""
    return _indices.get(device, 0)


@functools.cache  # bounded by the number of adapters
def torch_device(index: int) -> torch.device:
    """Return the torch device of an index."""
    return torch.device(NAME, index)
