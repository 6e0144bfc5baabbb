"""Adapters of the machine on which a device can be created."""

from __future__ import annotations

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters, why_unusable
from dmlgpu.runtime.numpy import NUMPY_ADAPTER


def usable_adapters(*, numpy: bool = False) -> tuple[AdapterInfo, ...]:
    """Return the adapters on which a device can be created, without those of Dawn, which test_dawn.py tests."""
    usable = (info for info in adapters() if not info.is_of_dawn and not why_unusable(info))
    return tuple(info for info in usable if numpy or info != NUMPY_ADAPTER)


def identifier(info: AdapterInfo) -> str:
    """Return the part of tests' ids that names an adapter."""
    return f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}"
