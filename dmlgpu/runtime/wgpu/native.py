"""Calls of wgpu's C library that wgpu-py does not wrap, or wraps slowly or incorrectly, and its C types.

wgpu-py requests C types from cffi by name. For each new string like ``"WGPULimits *"``, cffi has pycparser parse a line
for every one of the hundreds of types in wgpu's header: 10 ms each, some forty times before the first result of a
process. Parsing one string with all of them takes as long as one, so they are parsed in one batch when this module is
imported. The results go into cffi's own cache; cffi parses other strings as before.

wgpu-py's promises start a polling thread per device (using OpenGL from two threads aborts the process),
``on_submitted_work_done_async`` raises TypeError, and no call waits for one submission. All functions take wgpu-py's
objects.

``libf`` checks for a wgpu error after each call, which takes longer than most calls. ``lib`` is for calls that cannot
fail, and for those whose failure aborts the process anyway.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import cffi  # type: ignore[import-untyped]
import numpy as np
import wgpu
from numpy.typing import NDArray
from wgpu.backends.wgpu_native import _api
from wgpu.backends.wgpu_native._api import libf  # raises wgpu's errors as exceptions
from wgpu.backends.wgpu_native._ffi import ffi, lib

from dmlgpu.runtime.wgpu.waiting import wait_until

C_TYPES = (
    *("char []", "uint8_t[]", "uint8_t []", "uint8_t *", "uintptr_t", "void(*)(int)"),
    *("WGPUAdapter[]", "WGPUAdapterInfo *", "WGPUInstanceDescriptor *", "WGPULimits *", "WGPUNativeLimits *"),
    *("WGPUChainedStruct *", "WGPUChainedStruct * ", "WGPUStringView *", "WGPUFeatureName[]"),
    *("WGPUDeviceDescriptor *", "WGPUDeviceExtras *", "WGPUQueueDescriptor *"),
    *("WGPUDeviceLostCallbackInfo *", "WGPUUncapturedErrorCallbackInfo *", "WGPURequestDeviceCallbackInfo *"),
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    *("WGPUBindGroupLayoutEntry *", "WGPUBindGroupLayoutEntry[]", "WGPUBindGroupLayoutDescriptor *"),
    *("WGPUBufferBindingLayout *", "WGPUBindGroupLayout[]", "WGPUPipelineLayoutDescriptor *"),
    *("WGPUShaderSourceWGSL *", "WGPUShaderModuleDescriptor *", "WGPUConstantEntry *", "WGPUConstantEntry[]"),
    *("WGPUComputeState *", "WGPUComputePipelineDescriptor *"),
    *("WGPUBufferDescriptor *", "WGPUBindGroupEntry *", "WGPUBindGroupEntry[]", "WGPUBindGroupDescriptor *"),
    *("WGPUCommandEncoderDescriptor *", "WGPUComputePassDescriptor *", "WGPUCommandBufferDescriptor *"),
    *("WGPUQuerySetDescriptor *", "WGPUPassTimestampWrites *", "WGPUCommandBuffer[]"),
    *("WGPUQueueWorkDoneCallbackInfo *", "WGPUQueueWorkDoneCallback"),
    *("WGPUBufferMapCallbackInfo *", "WGPUBufferMapCallback"),
)
"""Type names that wgpu-py and this module pass to cffi when a device computes."""


def look_up_together(known: cffi.FFI, texts: Iterable[str]) -> None:
    """Parse types in one string, and add each to the cache of an FFI.

    That cache is private to cffi: versions of cffi without it, and headers that lack one of the types, change nothing.
    """
    parsed: Any = getattr(known, "_parsed_types", None)
    if not isinstance(parsed, dict):
        return
    missing = [text for text in texts if text not in parsed]
    try:
        # Arguments of a function may be of any type but arrays, of which pointers are taken.
        function = known.typeof(f"void(*)({', '.join(text.replace('[', '(*)[') for text in missing)})")
    except (cffi.FFIError, cffi.CDefError):
        return
    for text, c_type in zip(missing, function.args, strict=True):
        is_function = "(" in text and "(*" not in text  # which stands for a pointer to it, in callbacks alone
        parsed[text] = (c_type.item if "[" in text else c_type), is_function


look_up_together(ffi, C_TYPES)

_STATUS, _BYTES, _COMMANDS = map(ffi.typeof, ("void(*)(int)", "uint8_t[]", "WGPUCommandBuffer[]"))
_BINDINGS, _GROUP = map(ffi.typeof, ("WGPUBindGroupEntry[]", "WGPUBindGroupDescriptor *"))

# Attributes that wgpu-py's finalizers read. An object whose constructor was interrupted lacks some of them,
# and would keep its memory.
_api.GPUObjectBase._internal = None
_api.GPUBuffer._mapped_memoryviews = ()


class Reply:
    """Callback of an asynchronous call of the C library.

    C calls a built-in method, so no Python code runs inside of the call: a signal handler that raises would run there,
    and cffi drops exceptions of a callback. The method takes only the status, because calling conventions let a
    function ignore its last arguments.

    Args:
        kind: The callback's type in wgpu's header.

    Attributes:
        statuses: Empty until C has called, from a ``poll`` or a submission in any thread; then the status.
    """

    __slots__ = ("_function", "_info", "statuses")

    def __init__(self, kind: str):
        self.statuses: list[int] = []
        self._function = ffi.callback(_STATUS, self.statuses.append)
        self._info = ffi.new(f"{kind}Info *")
        self._info.mode, self._info.callback = lib.WGPUCallbackMode_AllowProcessEvents, ffi.cast(kind, self._function)
        # C calls once: those that came and were never cleared belonged to a device that is gone.
        expected_replies.difference_update([reply for reply in tuple(expected_replies) if reply.statuses])

    def expected(self) -> Any:
        """Return the callback info for C; the reply stays alive as long as C may call it."""
        expected_replies.add(self)
        return self._info[0]

    def clear(self) -> None:
        """Reset a received reply for reuse."""
        self.statuses.clear()
        expected_replies.discard(self)


expected_replies: set[Reply] = set()
# Never freed: when the interpreter ends, devices are dropped after the globals of modules, and C then calls for the
# work that is still under way.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(expected_replies))


def submit(queue: wgpu.GPUQueue, commands: Any) -> None:
    """Submit one command buffer of C."""
    lib.wgpuQueueSubmit(queue._internal, 1, ffi.new(_COMMANDS, [commands]))


def write(queue: wgpu.GPUQueue, buffer: wgpu.GPUBuffer, offset: int, data: NDArray[np.uint8]) -> None:
    """Write contiguous bytes to a buffer, after all submitted work."""
    libf.wgpuQueueWriteBuffer(queue._internal, buffer._internal, offset, ffi.from_buffer(data), data.nbytes)


class Completion:
    """Tracker of completed submissions.

    Attributes:
        tracked: The latest serial number of which C notifies.
    """

    def __init__(self, queue: wgpu.GPUQueue):
        self._queue = queue
        self._under_way: deque[tuple[int, Reply]] = deque()
        self._free: list[Reply] = []
        self._lock = threading.RLock()
        self._done = 0
        self.tracked = 0

    def track(self, serial: int) -> None:
        """Request a callback from C when all submissions up to a serial number are done. Hold the device's lock."""
        # An exception may occur between any two lines: C knows of all entries of the deque.
        reply = self._free.pop() if self._free else Reply("WGPUQueueWorkDoneCallback")
        lib.wgpuQueueOnSubmittedWorkDone(self._queue._internal, reply.expected())
        self._under_way.append((serial, reply))
        self.tracked = serial

    def done(self) -> int:
        """Return the serial number of the latest submission known to be done; ``poll`` updates it."""
        under_way = self._under_way
        if under_way and under_way[0][1].statuses:
            with self._lock:
                # In order: where two threads poll at once and the later reply comes first, it waits for the earlier.
                while under_way and (first := under_way[0])[1].statuses:
                    self._done = max(self._done, first[0])
                    under_way.remove(first)
                    first[1].clear()
                    self._free.append(first[1])
        return self._done


def create_bind_group(
    device: wgpu.GPUDevice,
    label: str,
    layout: wgpu.GPUBindGroupLayout,
    ranges: Sequence[tuple[wgpu.GPUBuffer, int, int]],
) -> wgpu.GPUBindGroup:
    """Return a bind group of ranges of buffers, numbered in order. wgpu-py takes four times as long.

    Raises:
        GPUError: As ``GPUDevice.create_bind_group``.
    """
    null = ffi.NULL
    bindings = [
        (null, binding, buffer._internal, offset, size, null, null)
        for binding, (buffer, offset, size) in enumerate(ranges)
    ]
    entries, descriptor, name = ffi.new(_BINDINGS, bindings), ffi.new(_GROUP), ffi.from_buffer(label.encode())
    descriptor.label.data, descriptor.label.length = name, len(name)
    descriptor.layout, descriptor.entries, descriptor.entryCount = layout._internal, entries, len(bindings)
    return _api.GPUBindGroup(label, libf.wgpuDeviceCreateBindGroup(device._internal, descriptor), device)


def parameter_block(data: bytes) -> Any:
    """Return bytes in memory of C, for ``dispatch_calls``."""
    return ffi.new(_BYTES, list(data))  # from bytes, cffi would append a zero


DispatchCalls: TypeAlias = tuple[Any, Any, Any, int, int, int, int]
"""Arguments of C for one dispatch: pipeline, bind group, parameter block with its size, and grid. None for any of the
first three leaves it unchanged."""


def dispatch_calls(pipeline: Any, group: Any, block: Any, grid: tuple[int, int, int]) -> DispatchCalls:
    """Return the arguments of C for a dispatch; valid while wgpu-py's objects, or None, and the ``parameter_block``
    live."""
    return (
        None if pipeline is None else pipeline._internal,
        None if group is None else group._internal,
        block,
        0 if block is None else len(block),
        *grid,
    )


# Encoders, passes and command buffers of C, without wgpu-py's objects around them, which take longer than the calls. C
# reports errors when the encoder is finished.


def create_encoder(device: wgpu.GPUDevice) -> Any:
    """Return a command encoder.

    Raises:
        GPUError: If the driver rejects it.
    """
    encoder = libf.wgpuDeviceCreateCommandEncoder(device._internal, ffi.NULL)
    return ffi.gc(encoder, lib.wgpuCommandEncoderRelease)


def finish(encoder: Any) -> Any:
    """Return the command buffer of an encoder.

    Raises:
        GPUError: If the driver rejects the recorded work.
    """
    return ffi.gc(libf.wgpuCommandEncoderFinish(encoder, ffi.NULL), lib.wgpuCommandBufferRelease)


def begin_pass(encoder: Any) -> Any:
    """Begin a compute pass."""
    return ffi.gc(lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL), lib.wgpuComputePassEncoderRelease)


def end_pass(compute_pass: Any) -> None:
    """End a compute pass."""
    lib.wgpuComputePassEncoderEnd(compute_pass)


def copy(encoder: Any, source: tuple[Any, int], destination: tuple[Any, int], size: int) -> None:
    """Record a copy of bytes between two buffers, each with an offset."""
    (read, start), (written, to) = source, destination
    lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, read._internal, start, written._internal, to, size)


def dispatch(this: Any, calls: Iterable[DispatchCalls]) -> None:
    """Record dispatches in a compute pass. wgpu-py takes four times as long."""
    set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
    set_immediates = lib.wgpuComputePassEncoderSetImmediates
    dispatch_workgroups = lib.wgpuComputePassEncoderDispatchWorkgroups
    null = ffi.NULL
    for pipeline, group, block, size, x, y, z in calls:
        if pipeline is not None:
            set_pipeline(this, pipeline)
        if group is not None:
            set_group(this, 0, group, 0, null)
        if block is not None:
            set_immediates(this, 0, block, size)
        dispatch_workgroups(this, x, y, z)


def poll(device: wgpu.GPUDevice) -> None:
    """Poll the device: C calls the callbacks of completed operations. Does not wait."""
    lib.wgpuDevicePoll(device._internal, False, ffi.NULL)


def map_for_reading(buffer: wgpu.GPUBuffer, offset: int, size: int, reply: Reply) -> None:
    """Begin to map a range (offset a multiple of 8, size of 4); a ``Reply("WGPUBufferMapCallback")`` receives the
    completion."""
    libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, offset, size, reply.expected())


def is_mapped(reply: Reply) -> bool:
    """Return whether the driver has mapped the range of a received reply."""
    return reply.statuses == [lib.WGPUMapAsyncStatus_Success]


def mapped_bytes(buffer: wgpu.GPUBuffer, offset: int, size: int) -> NDArray[np.uint8]:
    """Return the mapped range itself, not a copy: invalid after ``unmap``."""
    pointer = lib.wgpuBufferGetConstMappedRange(buffer._internal, offset, size)
    return np.frombuffer(ffi.buffer(pointer, size), np.uint8)


def unmap(buffer: wgpu.GPUBuffer) -> None:
    """End a mapping, also a pending one. Raises GPUValidationError if there is none."""
    libf.wgpuBufferUnmap(buffer._internal)


def read(device: wgpu.GPUDevice, buffer: wgpu.GPUBuffer) -> NDArray[np.uint8]:
    """Return a copy of the bytes of a buffer with the usage COPY_SRC, once all submitted work is done.

    The promises of wgpu-py's ``read_buffer`` are reference cycles that keep the device until the next collection of
    garbage.

    Raises:
        RuntimeError: If the driver cannot map memory.
    """
    usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
    staging = device.create_buffer(size=buffer.size, usage=usage)
    encoder = device.create_command_encoder()
    encoder.copy_buffer_to_buffer(buffer, 0, staging, 0, buffer.size)
    device.queue.submit([encoder.finish()])
    reply = Reply("WGPUBufferMapCallback")
    map_for_reading(staging, 0, buffer.size, reply)

    def has_come() -> bool:
        poll(device)
        return bool(reply.statuses)

    wait_until(has_come)
    if not is_mapped(reply):
        raise RuntimeError(f"the driver could not map {buffer.size:,} bytes for reading")
    data = mapped_bytes(staging, 0, buffer.size).copy()
    reply.clear()
    staging.destroy()
    return data


def without_cycle(device: wgpu.GPUDevice) -> wgpu.GPUDevice:
    """Remove the reference cycle of a new wgpu-py device, through itself and its queue, and return the device.

    Else one that is dropped would keep its memory until the next collection of garbage, which may be long.
    """
    device._device = device.queue._device = weakref.proxy(device)
    return device


def create_unchecked_module(device: wgpu.GPUDevice, label: str, wgsl: str, bounds_loops: bool) -> wgpu.GPUShaderModule:
    """Return a shader module without wgpu's clamps of indices, and without its bounds of loops unless ``bounds_loops``.

    Raises:
        GPUError: As ``GPUDevice.create_shader_module``.
    """
    text, name = ffi.from_buffer(wgsl.encode()), ffi.from_buffer(label.encode())
    source, descriptor = ffi.new("WGPUShaderSourceWGSL *"), ffi.new("WGPUShaderModuleDescriptor *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = text, len(text)
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name, len(name)
    checks = lib.WGPUShaderRuntimeChecks_ForceLoopBounding if bounds_loops else lib.WGPUShaderRuntimeChecks_None
    module = libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
    return _api.GPUShaderModule(label, module, device)


def release(thing: wgpu.GPUObjectBase) -> None:
    """Release an object before its last reference is gone; it must not be used afterwards."""
    thing._release()


def on_release(thing: wgpu.GPUObjectBase, action: Callable[[Callable[[], None]], None]) -> None:
    """Call ``action`` in place of wgpu-py's release of an object, with the function that releases it, in any thread."""
    function, handles = type(thing)._release_function, [thing._internal]

    def give_back() -> None:
        if handles:  # wgpu-py may release twice
            function(handles.pop())

    thing._release = lambda: action(give_back)


def timestamp_period(queue: wgpu.GPUQueue) -> float:
    """Return the nanoseconds per tick of a timestamp."""
    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))


def destroy(device: wgpu.GPUDevice) -> None:
    """Destroy a device without the error that wgpu-py logs for a lost device."""
    logger = logging.getLogger("wgpu")

    def expected(record: logging.LogRecord) -> bool:
        return "device was lost (destroyed)" not in record.getMessage() and "DEVICE LOST" not in record.getMessage()

    logger.addFilter(expected)
    try:
        device.destroy()
    finally:
        logger.removeFilter(expected)
