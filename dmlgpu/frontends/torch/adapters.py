"""The adapters behind ``torch.device("dml", index)``: the default adapter is the first."""

from __future__ import annotations

import functools
from collections import defaultdict

import torch

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters, choose
from dmlgpu.runtime.device import Device, as_device

NAME = "dml"
"""PyTorch's name of the device."""

allocated: defaultdict[int, int] = defaultdict(int)
"""Bytes of storages by index."""

current = 0
"""Index of the current device."""

_devices: dict[int, Device] = {}
_indices: dict[Device, int] = {}


@functools.cache
def all_adapters() -> tuple[AdapterInfo, ...]:
    """Return the adapters by index: that of DMLGPU_ADAPTER or the first hardware adapter, then the others."""
    first = choose()
    return (first, *(info for info in adapters() if info != first))


def device_of(index: int) -> Device:
    """Return the device of an index, opened at first use.

    Raises:
        RuntimeError: If there are not as many adapters.
    """
    device = _devices.get(index)
    if device is not None:
        return device
    known = all_adapters()
    if not 0 <= index < len(known):
        raise RuntimeError(f"dml device {index} does not exist: there are {len(known)}, see torch.dml.device_name()")
    device = _devices[index] = Device(known[index]) if index else as_device("torch.dml", None)
    _indices[device] = index
    return device


def index_of(device: Device) -> int:
    """Return the index of a device that ``device_of`` returned."""
    return _indices[device]


@functools.cache
def torch_device(index: int) -> torch.device:
    """Return the torch device of an index."""
    return torch.device(NAME, index)
