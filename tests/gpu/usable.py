"""Adapters of the machine on which a device can be created."""

from __future__ import annotations

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters, why_unusable
from dmlgpu.runtime.numpy import NUMPY_ADAPTER


def usable_adapters(*, numpy: bool = False) -> tuple[AdapterInfo, ...]:
    """Return the adapters on which a device can be created."""
    return tuple(info for info in adapters() if not why_unusable(info) and (numpy or info != NUMPY_ADAPTER))


def identifier(info: AdapterInfo) -> str:
    """Return the part of tests' ids that names an adapter."""
    return f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}"
