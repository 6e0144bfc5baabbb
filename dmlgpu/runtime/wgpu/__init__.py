"""The executor on wgpu. Only this package imports wgpu; the import loads the driver library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dmlgpu.runtime.wgpu import native as native  # makes wgpu-py start quickly
from dmlgpu.runtime.wgpu.adapter import adapters, check_variables, dawn_adapters, target_of

if TYPE_CHECKING:
    from dmlgpu.runtime.wgpu.backend import GpuBackend
    from dmlgpu.runtime.wgpu.context import why_unusable

__all__ = ["GpuBackend", "adapters", "check_variables", "dawn_adapters", "target_of", "why_unusable"]


def __getattr__(name: str) -> Any:
    # Listing adapters must not pay for the renderer that GpuBackend brings along.
    if name == "GpuBackend":
        return importlib.import_module("dmlgpu.runtime.wgpu.backend").GpuBackend
    if name == "why_unusable":
        return importlib.import_module("dmlgpu.runtime.wgpu.context").why_unusable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
