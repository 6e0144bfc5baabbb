"""The few calls of wgpu's C library that wgpu-py offers slowly, wrongly or not at all.

wgpu-py's promises start a polling thread per device (which OpenGL does not bear), ``on_submitted_work_done_async``
raises TypeError, and no call waits for one submission. Everything here takes wgpu-py's objects.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray
from wgpu.backends.wgpu_native._api import libf  # raises wgpu's errors as exceptions
from wgpu.backends.wgpu_native._ffi import ffi, lib

_BOOLEAN = 0xFF  # WGPUBool comes back with rubbish in its upper bits

# C holds a key instead of an object, so that a callback which never comes, or comes late, cannot hit freed memory.
_keys = itertools.count(1)
_awaiting: dict[int, Callable[[bool], None]] = {}


def _expect(action: Callable[[bool], None]) -> Any:
    key = next(_keys)
    _awaiting[key] = action
    return ffi.cast("void *", key)


def _arrived(userdata: Any, success: bool) -> None:
    action = _awaiting.pop(int(ffi.cast("uintptr_t", userdata)), None)
    if action is not None:
        action(success)


@ffi.callback("WGPUQueueWorkDoneCallback")
def _work_done(status: int, _message: Any, userdata: Any, _unused: Any) -> None:
    _arrived(userdata, status == lib.WGPUQueueWorkDoneStatus_Success)


@ffi.callback("WGPUBufferMapCallback")
def _mapped(status: int, _message: Any, userdata: Any, _unused: Any) -> None:
    _arrived(userdata, status == lib.WGPUMapAsyncStatus_Success)


def submit(queue: wgpu.GPUQueue, commands: wgpu.GPUCommandBuffer) -> Any:
    """Submit one command buffer; returns the submission's index for ``poll``."""
    handle = ffi.new("WGPUCommandBuffer[]", [commands._internal])
    return ffi.new("WGPUSubmissionIndex *", libf.wgpuQueueSubmitForIndex(queue._internal, 1, handle))


class Completion:
    """Tells when a queue's work is done. ``after`` is not reentrant: hold the device's lock."""

    def __init__(self, queue: wgpu.GPUQueue):
        self._queue = queue
        self._info = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        self._info.mode, self._info.callback = lib.WGPUCallbackMode_AllowProcessEvents, _work_done

    def after(self, action: Callable[[bool], None]) -> None:
        """Call ``action(success)`` from a later ``poll``, in any thread, once all work submitted so far is done."""
        self._info.userdata1 = _expect(action)
        libf.wgpuQueueOnSubmittedWorkDone(self._queue._internal, self._info[0])


def parameter_block(data: bytes) -> Any:
    """Return bytes where C can find them, for ``set_immediates``."""
    return ffi.new("uint8_t[]", list(data))  # from bytes, cffi would append a zero


def set_immediates(compute_pass: wgpu.GPUComputePassEncoder, block: Any) -> None:
    """Set a pass's immediates to a ``parameter_block``. wgpu-py looks the address up anew each time, for 3 us."""
    libf.wgpuComputePassEncoderSetImmediates(compute_pass._internal, 0, block, len(block))


def poll(device: wgpu.GPUDevice, index: Any = None) -> bool:
    """Run the callbacks that are due; with an index, wait for that submission first. True when the queue is empty."""
    if index is None:
        return bool(libf.wgpuDevicePoll(device._internal, False, ffi.NULL) & _BOOLEAN)
    return bool(libf.wgpuDevicePoll(device._internal, True, index) & _BOOLEAN)


def map_for_reading(buffer: wgpu.GPUBuffer, offset: int, size: int, action: Callable[[bool], None]) -> None:
    """Begin to map a range (offset a multiple of 8, size of 4); ``action(success)`` comes from a later ``poll``."""
    info = ffi.new("WGPUBufferMapCallbackInfo *")
    info.mode, info.callback, info.userdata1 = lib.WGPUCallbackMode_AllowProcessEvents, _mapped, _expect(action)
    libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, offset, size, info[0])


def mapped_bytes(buffer: wgpu.GPUBuffer, offset: int, size: int) -> NDArray[np.uint8]:
    """Return the mapped range itself, not a copy: invalid after ``unmap``."""
    pointer = libf.wgpuBufferGetConstMappedRange(buffer._internal, offset, size)
    return np.frombuffer(ffi.buffer(pointer, size), np.uint8)


def unmap(buffer: wgpu.GPUBuffer) -> None:
    """End a mapping."""
    libf.wgpuBufferUnmap(buffer._internal)


def without_cycle(device: wgpu.GPUDevice) -> wgpu.GPUDevice:
    """Return a new device to which neither itself nor its queue refers, as wgpu-py has it.

    Else one that is dropped would keep its memory until the next collection of garbage, which may be long.
    """
    device._device = device.queue._device = weakref.proxy(device)
    return device


def release(thing: wgpu.GPUObjectBase) -> None:
    """Give an object back before its last reference is gone: nothing may be done with it any more."""
    thing._release()


def on_release(thing: wgpu.GPUObjectBase, action: Callable[[Callable[[], None]], None]) -> None:
    """When wgpu-py would give an object back, call ``action`` with the function that does so, in any thread."""
    function, handles = type(thing)._release_function, [thing._internal]

    def give_back() -> None:
        if handles:  # wgpu-py may ask twice
            function(handles.pop())

    thing._release = lambda: action(give_back)


def timestamp_period(queue: wgpu.GPUQueue) -> float:
    """Return the nanoseconds per tick of a timestamp."""
    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))


def destroy(device: wgpu.GPUDevice) -> None:
    """Destroy a device without the alarm that wgpu-py logs for a lost one."""
    logger = logging.getLogger("wgpu")

    def expected(record: logging.LogRecord) -> bool:
        return "device was lost (destroyed)" not in record.getMessage() and "DEVICE LOST" not in record.getMessage()

    logger.addFilter(expected)
    try:
        device.destroy()
    finally:
        logger.removeFilter(expected)
