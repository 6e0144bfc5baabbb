"""Adapters of the machine on which a device can be created."""

from __future__ import annotations

import functools

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.wgpu.context import why_unusable


@functools.cache
def why_skipped(info: AdapterInfo) -> str:
    """Return why tests skip an adapter: OpenGL of GPUs, whose kind is unknown, may lack compute shaders."""
    return why_unusable(info) if info.kind == "unknown" else ""


def usable_adapters(*, numpy: bool = False) -> tuple[AdapterInfo, ...]:
    """Return the adapters on which a device can be created."""
    return tuple(info for info in adapters() if not why_skipped(info) and (numpy or info != NUMPY_ADAPTER))
