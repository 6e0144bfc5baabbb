"""The module ``torch_directml`` of Microsoft's wheel, on the device "dml".

``python -m dmlgpu.frontends.torch SCRIPT`` runs a script that imports it; ``install()`` makes it importable in the
calling process. Devices are ``torch.device("dml", index)``, which PyTorch also calls ``privateuseone:index``.
"""

from __future__ import annotations

import sys

import torch

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch import device as _module

__all__ = [
    "default_device", "device", "device_count", "device_name", "disable_tiled_resources", "gpu_memory",
    "has_float64_support", "install", "is_available",
]  # fmt: skip


def device(device_id: int | None = None) -> torch.device:
    """Return the torch device of an adapter.

    Args:
        device_id: Index; defaults to None, the default device.

    Raises:
        RuntimeError: If there is no such adapter.
    """
    return adapters.torch_device(adapters.index_from(default_device() if device_id is None else device_id))


def default_device() -> int:
    """Return the index of the default device."""
    return 0


def device_count() -> int:
    """Return the number of adapters."""
    return _module.device_count()


def device_name(device_id: int) -> str:
    """Return the name of an adapter."""
    return _module.device_name(device_id)


def is_available() -> bool:
    """Return whether there is an adapter."""
    return _module.is_available()


def has_float64_support(device_id: int = 0) -> bool:
    """Return False: float64 is moved and cast only."""
    adapters.index_from(device_id)
    return False


def gpu_memory(device_id: int = 0, mb_per_tile: int = 1) -> list[float]:
    """Return how full the tiles of a device's memory are: the memory of tensors, in tiles of a size.

    Args:
        device_id: Index of the adapter.
        mb_per_tile: Size of a tile in MiB.

    Returns:
        A number from 0 to 1 for each tile that tensors and kept memory reach.
    """
    tile = mb_per_tile << 20
    used, reserved = _module.memory_allocated(device_id), _module.memory_reserved(device_id)
    return [min(max(used - start, 0) / tile, 1.0) for start in range(0, reserved, tile)]


def disable_tiled_resources(is_disabled: bool) -> None:
    """Do nothing: memory has no tiles."""


def install() -> None:
    """Let ``import torch_directml`` of this process give this module."""
    sys.modules["torch_directml"] = sys.modules[__name__]
