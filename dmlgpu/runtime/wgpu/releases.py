"""Giving OpenGL's objects back under the device's lock, whichever thread drops the last reference to them.

Giving one back needs OpenGL's context. A thread that runs long work holds that, and wgpu-native aborts the process when
another one waits for it for some seconds. So what is dropped while the lock is held elsewhere is deferred, and what a
dropped device leaves behind is given back by another one. Other backends need none of this.
"""

from __future__ import annotations

from typing import TypeVar

import wgpu

from dmlgpu.runtime.wgpu import native
from dmlgpu.runtime.wgpu.context import Context

Thing = TypeVar("Thing", bound=wgpu.GPUObjectBase)


def adopt(context: Context, thing: Thing) -> Thing:
    """Take care of how an object of a device is given back, and return it."""
    if context.info.backend == "OpenGL":
        native.on_release(thing, context.deferred.add)
    return thing
