"""Giving OpenGL's objects back under the device's lock, whichever thread drops the last reference to them.

Giving one back needs OpenGL's context. A thread that runs long work holds that, and wgpu-native aborts the process when
another one waits for it for some seconds. So what is dropped while the lock is held elsewhere waits here, until
something else is dropped or ``run`` is called. Other backends need none of this.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import wgpu

from dmlgpu.gpu import native
from dmlgpu.gpu.context import Context

Thing = TypeVar("Thing", bound=wgpu.GPUObjectBase)

# All OpenGL devices share one lock, and what a dropped device leaves behind is given back by another one.
_pending: Final[deque[Callable[[], None]]] = deque()


def adopt(context: Context, thing: Thing) -> Thing:
    """Take care of how an object of a device is given back, and return it."""
    if context.info.backend == "OpenGL":
        native.on_release(thing, functools.partial(_give_back, context))
    return thing


def run(context: Context) -> None:
    """Give back what waits, unless another thread holds the lock."""
    if _pending and context.lock.acquire(blocking=False):
        try:
            while _pending:
                _pending.popleft()()
        finally:
            context.lock.release()


def _give_back(context: Context, release: Callable[[], None]) -> None:
    _pending.append(release)
    run(context)
