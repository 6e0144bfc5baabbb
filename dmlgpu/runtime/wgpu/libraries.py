"""WebGPU libraries of this process: wgpu-native always, and Dawn if the package wgpudawn is installed.

Dawn is imported when its adapters are listed or used, so other programs do not wait for it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from dmlgpu.runtime.wgpu.library import Library
from dmlgpu.runtime.wgpu.native import NATIVE


@functools.cache
def dawn() -> Library | None:
    """Return Dawn; None if its package is not installed."""
    try:
        from dmlgpu.runtime.wgpu.dawn import DAWN  # noqa: PLC0415 - loads another driver library
    except ModuleNotFoundError as missing:
        if missing.name != "wgpudawn":
            raise
        return None
    return DAWN


def library_of(thing: Any) -> Library:
    """Return the library of an adapter, device or queue."""
    if type(thing).__module__.partition(".")[0] == "wgpudawn" and (library := dawn()) is not None:
        return library
    return NATIVE


def features_of(thing: Any) -> Collection[str]:
    """Return the features of an adapter or device under the names of wgpu-native."""
    return library_of(thing).features(thing.features, thing.limits)
