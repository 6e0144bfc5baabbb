"""Moving bytes between NumPy and buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.errors import DmlError
from dmlgpu.gpu import native
from dmlgpu.gpu.buffers import GpuBuffer
from dmlgpu.gpu.context import Context
from dmlgpu.gpu.queue import Queue
from dmlgpu.gpu.waiting import wait_until

_FLUSH_BYTES = 64 << 20
_SMALLEST_STAGING = 1 << 16
_KEPT_STAGING = 4
_MAP_ALIGNMENT = 8


class Transfers:
    """Uploads through wgpu's staging, read-back through kept staging buffers or straight from mappable memory."""

    def __init__(self, context: Context, queue: Queue):
        self._context, self._queue = context, queue
        self._unsent = 0
        self._staging: list[Any] = []
        self._replies: list[native.Reply] = []

    def write(self, buffer: GpuBuffer, offset: int, data: NDArray[np.uint8]) -> None:
        """Put bytes (offset and length multiples of 4) into a buffer, after all submitted work.

        Raises:
            InvalidState: when the buffer was released, or mapped or destroyed by its maker.
            DeviceRemoved: when the device is gone.
        """
        if data.size == 0:
            return
        context = self._context
        with context.lock:
            context.check()
            buffer.check("write")
            buffer.check_maker("write")
            context.end_mapping()
            self._unsent = data.nbytes + (self._unsent if self._queue.has_writes else 0)
            self._queue.has_writes = True
            with context.reporting(f"write of {data.nbytes:,} bytes to buffer {buffer.label!r}"):
                context.queue.write_buffer(buffer.wgpu, offset, np.ascontiguousarray(data))
            if self._unsent > _FLUSH_BYTES:  # wgpu keeps a copy of every write until the next submission
                self._queue.flush()

    def read(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a buffer (offset and size multiples of 4), once all submitted work is done.

        Raises:
            InvalidState: when the buffer was released, or mapped or destroyed by its maker.
            DeviceRemoved: when the device is gone.
        """
        if size == 0:
            return np.empty(0, np.uint8)
        if buffer.mappable:
            return self._read_in_place(buffer, offset, size)
        return self._read_through_staging(buffer, offset, size)

    def _read_in_place(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        # Writes that are held back would be missed. Waiting comes before the lock is taken, so that other threads
        # go on; the lock then keeps them from submitting a buffer that is mapped, which would abort the process.
        self._queue.wait(self._queue.flush())
        context = self._context
        with context.lock:
            context.check()
            buffer.check("read")
            return self._copy_out(buffer.wgpu, offset, size)

    def _read_through_staging(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        context = self._context
        with context.lock:
            context.check()
            buffer.check("read")
            buffer.check_maker("read")
            with context.reporting(f"read of {size:,} bytes of buffer {buffer.label!r}"):
                staging = self._take_staging(size)
                encoder = context.device.create_command_encoder()
                encoder.copy_buffer_to_buffer(buffer.wgpu, offset, staging, 0, size)
                serial = self._queue.send(encoder.finish())
        self._queue.wait(serial)
        # After an exception here the staging buffer is not kept, so that none is ever mapped when it is used.
        with context.lock:
            context.check()
            data = self._copy_out(staging, 0, size)
            self._keep_staging(staging)
        return data

    def _copy_out(self, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Map, copy, unmap. Call with the lock held."""
        start = offset // _MAP_ALIGNMENT * _MAP_ALIGNMENT
        extent = offset + size - start
        context = self._context
        reply = self._replies.pop() if self._replies else native.Reply("WGPUBufferMapCallback")
        with context.reporting(f"read of {size:,} bytes"), context.mapping(buffer):
            native.map_for_reading(buffer, start, extent, reply)
            wait_until(lambda: self._has_come(reply))
            if not native.is_mapped(reply):
                raise DmlError(f"{context.info}: the driver could not map {size:,} bytes for reading")
            data = native.mapped_bytes(buffer, start, extent)[offset - start :].copy()
        reply.clear()
        self._replies.append(reply)
        return data

    def _has_come(self, reply: native.Reply) -> bool:
        native.poll(self._context.device)
        return bool(reply.statuses)  # perhaps from another thread's poll, later than this one

    def _take_staging(self, size: int) -> Any:
        fitting = [staging for staging in self._staging if staging.size >= size]
        if fitting:
            staging = min(fitting, key=lambda staging: int(staging.size))
            self._staging.remove(staging)
            return staging
        room = max(1 << (size - 1).bit_length(), _SMALLEST_STAGING)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        room = min(room, self._context.limits["max-buffer-size"])
        return self._context.device.create_buffer(label="dmlgpu staging", size=max(room, size), usage=usage)

    def _keep_staging(self, staging: Any) -> None:
        self._staging.append(staging)
        if len(self._staging) > _KEPT_STAGING:
            self._staging.remove(smallest := min(self._staging, key=lambda kept: int(kept.size)))
            smallest.destroy()
