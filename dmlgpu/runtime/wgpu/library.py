"""Interface of a WebGPU library for the executor: wgpu-native (``native.py``) or Dawn (``dawn.py``).

The executor uses the objects of their Python packages, which both have the interface of wgpu-py. ``Library`` adds calls
of the C libraries that the packages do not wrap, or wrap slowly or incorrectly. They take the packages' objects.

wgpu-py's promises start a polling thread per device (using OpenGL from two threads aborts the process),
``on_submitted_work_done_async`` raises TypeError, and no call waits for one submission.
"""

from __future__ import annotations

import abc
import ctypes
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import Matrices
from dmlgpu.runtime.wgpu import forks
from dmlgpu.runtime.wgpu.waiting import wait_until

DispatchCalls: TypeAlias = tuple[Any, Any, Any, int, int, int, int]
"""Arguments of C for one dispatch: pipeline, bind group, parameter block with its size, and grid. If one of the first
three is None, that of the previous dispatch stays."""

NVIDIA: Final = 0x10DE
"""PCI vendor whose matrix units read either layout of workgroup memory."""


class Library(abc.ABC):
    """A WebGPU library. Subclasses implement the calls that differ; the other calls of C are the same.

    Args:
        name: The library's name.
        package: The Python package.
        api: Its module with the classes of objects.
        ffi: Its cffi interface.
        lib: Its C library.

    Attributes:
        lib: The C library, for calls that cannot fail, and for those whose failure aborts the process anyway.
        libf: The same, for calls that may fail: checking for an error takes longer than most calls.
    """

    def __init__(self, name: str, package: Any, api: Any, ffi: Any, lib: Any):
        self.name, self.package, self.api, self.ffi, self.lib, self.libf = name, package, api, ffi, lib, api.libf
        self._status, self._bytes = ffi.typeof("void(*)(int)"), ffi.typeof("uint8_t[]")
        self._commands, self._bindings = ffi.typeof("WGPUCommandBuffer[]"), ffi.typeof("WGPUBindGroupEntry[]")
        self._group = ffi.typeof("WGPUBindGroupDescriptor *")
        # Attributes that the packages' finalizers read. An object whose constructor was interrupted lacks some of them,
        # and would keep its memory.
        api.GPUObjectBase._internal = None
        api.GPUBuffer._mapped_memoryviews = ()
        forks.disable_in_children(api)

    # ---- adapters and devices ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def adapters(self) -> list[Any]:
        """Return the adapters that the library reaches."""

    @abc.abstractmethod
    def driver(self, info: Mapping[str, Any]) -> str:
        """Return the driver and its version, from an adapter's ``info``."""

    @abc.abstractmethod
    def features(self, raw: Collection[str], limits: Mapping[str, int]) -> Collection[str]:
        """Return features of an adapter or device under the names of wgpu-native.

        Args:
            raw: Features under the library's names.
            limits: Its limits.
        """

    @abc.abstractmethod
    def matrix_units(self, adapter: Any) -> Matrices | None:
        """Return the matrix units of an adapter with the feature ``cooperative-matrix``: as the library reports them,
        or assumed if it does not. None if kernels cannot use them.
        """

    @abc.abstractmethod
    def request_device(self, adapter: Any, features: Collection[str]) -> Any:
        """Return a device with features, under the names of wgpu-native, and all limits of the adapter.

        Raises:
            RuntimeError: If the driver cannot create a device.
        """

    @abc.abstractmethod
    def check_wrapped(self, device: Any) -> None:
        """Check that a device which the program created can be used.

        Raises:
            InvalidArgument: If it lacks a feature that the executor needs.
        """

    @abc.abstractmethod
    def poll(self, device: Any) -> None:
        """Poll the device: C calls the callbacks of completed operations. Does not wait."""

    @abc.abstractmethod
    def why_lost(self, device: Any) -> str | None:
        """Return why a device is lost if no call of it raises an error that says so; None if it is not lost."""

    @abc.abstractmethod
    def create_module(self, device: Any, label: str, wgsl: str) -> Any:
        """Return a shader module of a kernel of dmlgpu.

        Raises:
            GPUError: As ``GPUDevice.create_shader_module``.
        """

    @abc.abstractmethod
    def create_unchecked_module(self, device: Any, label: str, wgsl: str, bounds_loops: bool) -> Any:
        """Return a shader module without bounds checks, or with all of them if the library cannot omit them.

        Args:
            device: The device.
            label: Label of the module.
            wgsl: Source.
            bounds_loops: Whether to keep the limits of loops; clamps of indices are omitted in any case.

        Raises:
            GPUError: As ``GPUDevice.create_shader_module``.
        """

    @abc.abstractmethod
    def timestamp_period(self, queue: Any) -> float:
        """Return the nanoseconds per tick of a timestamp."""

    def destroy(self, device: Any) -> None:
        """Destroy a device without the error that wgpu-py logs for a lost device."""
        logger = logging.getLogger("wgpu")

        def expected(record: logging.LogRecord) -> bool:
            return "device was lost (destroyed)" not in record.getMessage() and "DEVICE LOST" not in record.getMessage()

        logger.addFilter(expected)
        try:
            device.destroy()
        finally:
            logger.removeFilter(expected)

    # ---- bindings ---------------------------------------------------------------------------------------------------

    def create_bind_group(
        self, device: Any, label: str, layout: Any, ranges: Sequence[tuple[Any, int, int]]
    ) -> wgpu.GPUBindGroup:
        """Return a bind group of ranges of buffers, numbered in order. wgpu-py takes four times as long.

        Raises:
            GPUError: As ``GPUDevice.create_bind_group``.
        """
        ffi = self.ffi
        null = ffi.NULL
        bindings = [
            (null, binding, buffer._internal, offset, size, null, null)
            for binding, (buffer, offset, size) in enumerate(ranges)
        ]
        entries, descriptor = ffi.new(self._bindings, bindings), ffi.new(self._group)
        name = ffi.from_buffer(label.encode())
        descriptor.label.data, descriptor.label.length = name, len(name)
        descriptor.layout, descriptor.entries, descriptor.entryCount = layout._internal, entries, len(bindings)
        group = self.libf.wgpuDeviceCreateBindGroup(device._internal, descriptor)
        return self.api.GPUBindGroup(label, group, device)

    def parameter_block(self, data: bytes) -> Any:
        """Return bytes in memory of C, for ``dispatch_calls``."""
        return self.ffi.new(self._bytes, list(data))  # from bytes, cffi would append a zero

    # ---- recording --------------------------------------------------------------------------------------------------

    # Encoders, passes and command buffers of C, without wgpu-py's objects around them, which take longer than the
    # calls. C reports errors when the encoder is finished.

    def create_encoder(self, device: Any) -> Any:
        """Return a command encoder.

        Raises:
            GPUError: If the driver rejects it.
        """
        encoder = self.libf.wgpuDeviceCreateCommandEncoder(device._internal, self.ffi.NULL)
        return self.ffi.gc(encoder, self.lib.wgpuCommandEncoderRelease)

    def finish(self, encoder: Any) -> Any:
        """Return the command buffer of an encoder.

        Raises:
            GPUError: If the driver rejects the recorded work.
        """
        commands = self.libf.wgpuCommandEncoderFinish(encoder, self.ffi.NULL)
        return self.ffi.gc(commands, self.lib.wgpuCommandBufferRelease)

    def begin_pass(self, encoder: Any) -> Any:
        """Begin a compute pass."""
        compute_pass = self.lib.wgpuCommandEncoderBeginComputePass(encoder, self.ffi.NULL)
        return self.ffi.gc(compute_pass, self.lib.wgpuComputePassEncoderRelease)

    def end_pass(self, compute_pass: Any) -> None:
        """End a compute pass."""
        self.lib.wgpuComputePassEncoderEnd(compute_pass)

    def copy(self, encoder: Any, source: tuple[Any, int], destination: tuple[Any, int], size: int) -> None:
        """Record a copy of bytes between two buffers, each with an offset."""
        (read, start), (written, to) = source, destination
        self.lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, read._internal, start, written._internal, to, size)

    def dispatch(self, compute_pass: Any, calls: Iterable[DispatchCalls]) -> None:
        """Record dispatches in a compute pass. wgpu-py takes four times as long."""
        lib, null = self.lib, self.ffi.NULL
        set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        set_immediates = lib.wgpuComputePassEncoderSetImmediates
        dispatch_workgroups = lib.wgpuComputePassEncoderDispatchWorkgroups
        for pipeline, group, block, size, x, y, z in calls:
            if pipeline is not None:
                set_pipeline(compute_pass, pipeline)
            if group is not None:
                set_group(compute_pass, 0, group, 0, null)
            if block is not None:
                set_immediates(compute_pass, 0, block, size)
            dispatch_workgroups(compute_pass, x, y, z)

    # ---- queue ------------------------------------------------------------------------------------------------------

    def submit(self, queue: Any, commands: Any) -> None:
        """Submit one command buffer of C.

        Raises:
            GPUError: If the library rejects it without aborting the process.
        """
        self.lib.wgpuQueueSubmit(queue._internal, 1, self.ffi.new(self._commands, [commands]))

    def write(self, queue: Any, buffer: Any, offset: int, data: NDArray[np.uint8]) -> None:
        """Write contiguous bytes to a buffer, after all submitted work."""
        data_of_c = self.ffi.from_buffer(data)
        self.libf.wgpuQueueWriteBuffer(queue._internal, buffer._internal, offset, data_of_c, data.nbytes)

    # ---- mapping ----------------------------------------------------------------------------------------------------

    def map_for_reading(self, buffer: Any, offset: int, size: int, reply: Reply) -> None:
        """Begin to map a range whose offset is a multiple of 8, and its size of 4.

        A reply of the kind "WGPUBufferMapCallback" receives the completion.
        """
        self.libf.wgpuBufferMapAsync(buffer._internal, self.lib.WGPUMapMode_Read, offset, size, reply.expected())

    def is_mapped(self, reply: Reply) -> bool:
        """Return whether the driver has mapped the range of a received reply."""
        return reply.statuses == [self.lib.WGPUMapAsyncStatus_Success]

    def mapped_bytes(self, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the mapped range itself, not a copy: invalid after ``unmap``."""
        pointer = self.lib.wgpuBufferGetConstMappedRange(buffer._internal, offset, size)
        return np.frombuffer(self.ffi.buffer(pointer, size), np.uint8)

    def unmap(self, buffer: Any) -> None:
        """End a mapping, also a pending one. wgpu-native raises GPUValidationError if there is none."""
        self.libf.wgpuBufferUnmap(buffer._internal)

    def read(self, device: Any, buffer: Any) -> NDArray[np.uint8]:
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
        reply = Reply(self, "WGPUBufferMapCallback")
        self.map_for_reading(staging, 0, buffer.size, reply)

        def has_come() -> bool:
            self.poll(device)
            return bool(reply.statuses)

        wait_until(has_come)
        if not self.is_mapped(reply):
            raise RuntimeError(f"the driver could not map {buffer.size:,} bytes for reading")
        data = self.mapped_bytes(staging, 0, buffer.size).copy()
        reply.clear()
        staging.destroy()
        return data


class Reply:
    """Callback of an asynchronous call of the C library.

    C calls a built-in method, so no Python code runs inside of the call: a signal handler that raises would run there,
    and cffi drops exceptions of a callback. The method takes only the status, because calling conventions let a
    function ignore its last arguments.

    Args:
        library: The library.
        kind: The callback's type in its header.

    Attributes:
        statuses: Empty until C has called, from a ``poll`` or a submission in any thread; then the status.
    """

    __slots__ = ("_function", "_info", "statuses")

    def __init__(self, library: Library, kind: str):
        self.statuses: list[int] = []
        ffi = library.ffi
        self._function = ffi.callback(library._status, self.statuses.append)
        self._info = ffi.new(f"{kind}Info *")
        self._info.mode = library.lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = ffi.cast(kind, self._function)
        # C calls once: replies that came and were never cleared belonged to a device that is gone.
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


class Completion:
    """Records which submissions are complete.

    Attributes:
        tracked: Serial number of the latest submission with a callback.
    """

    def __init__(self, library: Library, queue: Any):
        self._library, self._queue = library, queue
        self._under_way: deque[tuple[int, Reply]] = deque()
        self._free: list[Reply] = []
        self._lock = threading.RLock()
        self._done = 0
        self.tracked = 0

    def track(self, serial: int) -> None:
        """Request a callback from C when all submissions up to a serial number are done. Hold the device's lock."""
        # An exception may occur between any two lines: C knows of all entries of the deque.
        reply = self._free.pop() if self._free else Reply(self._library, "WGPUQueueWorkDoneCallback")
        self._library.lib.wgpuQueueOnSubmittedWorkDone(self._queue._internal, reply.expected())
        self._under_way.append((serial, reply))
        self.tracked = serial

    def done(self) -> int:
        """Return the serial number of the latest submission known to be done; ``poll`` updates it."""
        under_way = self._under_way
        if under_way and under_way[0][1].statuses:
            with self._lock:
                # In order: if two threads poll at once and the later reply comes first, it waits for the earlier one.
                while under_way and (first := under_way[0])[1].statuses:
                    self._done = max(self._done, first[0])
                    under_way.remove(first)
                    first[1].clear()
                    self._free.append(first[1])
        return self._done


def dispatch_calls(pipeline: Any, group: Any, block: Any, grid: tuple[int, int, int]) -> DispatchCalls:
    """Return the arguments of C for a dispatch; valid while the packages' objects, or None, and the
    ``parameter_block`` live."""
    return (
        None if pipeline is None else pipeline._internal,
        None if group is None else group._internal,
        block,
        0 if block is None else len(block),
        *grid,
    )


def without_cycle(device: Any) -> Any:
    """Remove the reference cycle of a new device, through itself and its queue, and return the device.

    Otherwise a dropped device would keep its memory until the next garbage collection, which may come late.
    """
    device._device = device.queue._device = weakref.proxy(device)
    return device


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
