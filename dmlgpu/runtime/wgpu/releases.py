"""Release of driver objects, and of the memory of dropped pipelines.

OpenGL: releasing an object needs OpenGL's context. A thread that runs long work holds it, and wgpu-native aborts the
process if another thread waits for the context for some seconds. So releases are deferred while another thread holds
the lock, and the objects of a dropped device are released by another device. Other backends need none of this.

Pipelines: dropping one is not enough. Mesa's lavapipe frees it during the next submission, which may never come, and
glibc keeps freed heap for the process until ``malloc_trim``. A finalizer cannot do either: it runs between any two
lines, possibly with the device's lock held. So finalizers only report bytes to one daemon thread per process, which
makes an empty submission, waits for it, and trims the heap. This never delays a run. Trimming took 2 ms with little
free heap and 76 ms with 190 MiB, on two busy cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

import wgpu

from dmlgpu.common.errors import DmlError
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.library import on_release

if TYPE_CHECKING:
    from dmlgpu.runtime.wgpu.queue import GpuQueue


Thing = TypeVar("Thing", bound=wgpu.GPUObjectBase)


def adopt(context: Context, thing: Thing) -> Thing:
    """Defer the release of an object as its backend requires, and return the object."""
    if context.info.backend == "OpenGL":
        on_release(thing, context.deferred.add)
    return thing


MIN_RELEASED: Final = 16 << 20
"""Minimum estimated bytes of dropped pipelines before the heap is trimmed."""

_SETTLE_SECONDS = 0.1
"""Seconds without a dropped pipeline before the heap is trimmed: a dropped session drops hundreds."""

_WAIT_SECONDS = 10.0

_reports: queue.SimpleQueue[tuple[weakref.ref[GpuQueue], int]] = queue.SimpleQueue()  # ``put`` is safe in finalizers
_lock = threading.Lock()
_process: list[int] = []


def watch(pipeline: Any, device_queue: GpuQueue, size: int) -> None:
    """Return the ``size`` bytes of a pipeline to the system soon after it is dropped. Not for finalizers."""
    with _lock:
        if _process != [os.getpid()]:  # threads do not survive a fork
            threading.Thread(target=_work, name="dmlgpu reclaiming", daemon=True).start()
            _process[:] = [os.getpid()]
    weakref.finalize(pipeline, _reports.put, (weakref.ref(device_queue), size)).atexit = False


def _work() -> None:
    released = 0
    queues: list[weakref.ref[GpuQueue]] = []  # a set would hash references whose queue is gone
    while True:
        try:
            reference, size = _reports.get(timeout=_SETTLE_SECONDS if released >= MIN_RELEASED else None)
        except queue.Empty:
            for reference in queues:
                _collect(reference)
            trim()
            released = 0
            queues.clear()
        else:
            released += size
            if reference not in queues:
                queues.append(reference)


def _collect(reference: weakref.ref[GpuQueue]) -> None:
    """Make a device's driver free dropped pipelines."""
    device_queue = reference()
    if device_queue is not None:
        with contextlib.suppress(DmlError):  # the device is gone, and its pipelines with it
            device_queue.wait(device_queue.submit(), _WAIT_SECONDS)


def trim() -> bool:
    """Return freed heap to the system; return whether the C library supports it (glibc)."""
    if sys.platform != "linux":
        return False
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is None:
        return False
    malloc_trim(0)
    return True
