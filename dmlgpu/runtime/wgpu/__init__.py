"""The executor on wgpu. This package alone imports wgpu; importing it is what loads the driver library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dmlgpu.runtime.wgpu import native as native  # makes wgpu-py start quickly
from dmlgpu.runtime.wgpu.adapter import adapters, target_of

if TYPE_CHECKING:
    from dmlgpu.runtime.wgpu.backend import GpuBackend

__all__ = ["GpuBackend", "adapters", "target_of"]


def __getattr__(name: str) -> Any:
    # Listing adapters must not pay for the renderer that GpuBackend brings along.
    if name == "GpuBackend":
        return importlib.import_module("dmlgpu.runtime.wgpu.backend").GpuBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
