"""Transfers between NumPy and buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError
from dmlgpu.runtime.executor import Reading
from dmlgpu.runtime.wgpu import releases
from dmlgpu.runtime.wgpu.buffers import GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.library import Reply
from dmlgpu.runtime.wgpu.queue import CopyWork, GpuQueue
from dmlgpu.runtime.wgpu.waiting import wait_until

_FLUSH_BYTES = 64 << 20
_SMALLEST_STAGING = 1 << 16
_MAX_KEPT_STAGING, _MAX_KEPT_BYTES = 64, 256 << 20
_MAP_ALIGNMENT = 8


class Transfers:
    """Uploads through wgpu's staging; reads through cached staging buffers or directly from mappable memory."""

    def __init__(self, context: Context, queue: GpuQueue):
        self._context, self._queue = context, queue
        self._unsent = 0
        self._staging: list[Any] = []
        self._replies: list[Reply] = []

    def write(self, buffer: GpuBuffer, offset: int, data: NDArray[np.uint8]) -> None:
        """Put bytes (offset and length multiples of 4) into a buffer, after all submitted work.

        Raises:
            InvalidState: If the buffer was released, or mapped or destroyed by its maker.
            DeviceRemoved: If the device is gone.
        """
        if data.size == 0:
            return
        context = self._context
        with context.lock:
            context.check()
            buffer.check("write")
            buffer.check_maker("write")
            if self._queue.enqueue_write(buffer, offset, data):
                return
            self._queue.send_enqueued()  # a write comes before the next submission
            context.end_mapping()
            self._unsent = data.nbytes + (self._unsent if self._queue.has_writes else 0)
            self._queue.has_writes = True
            try:
                context.library.write(context.queue, buffer.wgpu, offset, np.ascontiguousarray(data))
            except wgpu.GPUError as error:
                raise context.translate(error, f"write of {data.nbytes:,} bytes to buffer {buffer.label!r}") from error
            if self._unsent > _FLUSH_BYTES:  # wgpu keeps a copy of every write until the next submission
                self._queue.flush()

    def read(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a buffer (offset and size multiples of 4), once all submitted work is done.

        Raises:
            InvalidState: If the buffer was released, or mapped or destroyed by its maker.
            DeviceRemoved: If the device is gone.
        """
        if size == 0:
            return np.empty(0, np.uint8)
        if buffer.mappable:
            return self._read_in_place(buffer, offset, size)
        data = self.read_async(buffer, offset, size).result()
        assert data is not None  # without a time limit
        return data

    def read_async(self, buffer: GpuBuffer, offset: int, size: int) -> StagedReading:
        """Begin to read the bytes of a buffer (offset and size multiples of 4, size not 0), after all submitted work.

        The copy into a staging buffer is submitted at once, whether or not the buffer's memory can be read in place:
        the next work may write it.

        Raises:
            InvalidState: If the buffer was released, or mapped or destroyed by its maker.
            DeviceRemoved: If the device is gone.
            OutOfMemory: If the driver has no more for a staging buffer.
        """
        context = self._context
        with context.lock:
            context.check()
            buffer.check("read")
            buffer.check_maker("read")
            with context.reporting(f"read of {size:,} bytes of buffer {buffer.label!r}"):
                staging = self._take_staging(size)
                guard = Guard((buffer,), -1)
                serial = self._queue.send_copy(CopyWork(buffer.wgpu, offset, staging, 0, size, guard, "read"))
        return StagedReading(self, self._queue, staging, size, serial)

    def _read_in_place(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        # Writes that are held back would be missed. Waiting comes before the lock is taken, so that other threads
        # go on; the lock then keeps them from submitting a buffer that is mapped, which would abort the process.
        self._queue.wait(self._queue.flush())
        context = self._context
        with context.lock:
            context.check()
            buffer.check("read")
            return self._copy_out(buffer.wgpu, offset, size)

    def fetch(self, reading: StagedReading) -> None:
        """Copy received bytes from their staging buffer, and cache the buffer for other reads."""
        context = self._context
        with context.lock:
            context.check()
            if reading.data is None:  # or another thread was first
                reading.data = self._copy_out(reading.staging, 0, reading.size)
                self._keep(reading.staging)
                reading.staging = None

    def _copy_out(self, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Copy bytes by mapping a buffer. Call with the lock held."""
        start = offset // _MAP_ALIGNMENT * _MAP_ALIGNMENT
        extent = offset + size - start
        context = self._context
        reply = self._replies.pop() if self._replies else Reply(context.library, "WGPUBufferMapCallback")
        context.begin_mapping(buffer)
        try:
            context.library.map_for_reading(buffer, start, extent, reply)
            wait_until(lambda: self._has_come(reply))
            if not context.library.is_mapped(reply):
                raise DmlError(f"{context.info}: the driver could not map {size:,} bytes for reading")
            data = context.library.mapped_bytes(buffer, start, extent)[offset - start :].copy()
        except wgpu.GPUError as error:
            raise context.translate(error, f"read of {size:,} bytes") from error
        finally:
            context.end_mapping()
        reply.clear()
        self._replies.append(reply)
        return data

    def _has_come(self, reply: Reply) -> bool:
        self._context.library.poll(self._context.device)
        return bool(reply.statuses)  # perhaps from another thread's poll, later than this one

    def _take_staging(self, size: int) -> Any:
        """Return a staging buffer of at least this size, cached if possible. Call with the lock held.

        After an exception in ``_copy_out`` it may still be mapped; every submission ends mappings.
        """
        room = max(1 << (size - 1).bit_length(), _SMALLEST_STAGING)
        room = max(min(room, self._context.limits["max-buffer-size"]), size)
        for index, staging in enumerate(self._staging):
            if staging.size == room:
                return self._staging.pop(index)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        new = self._context.device.create_buffer(label="dmlgpu staging", size=room, usage=usage)
        return releases.adopt(self._context, new)

    def _keep(self, staging: Any) -> None:
        """Cache a staging buffer, evicting the least recently used ones. Call with the lock held."""
        self._staging.append(staging)
        size = sum(buffer.size for buffer in self._staging)
        while len(self._staging) > _MAX_KEPT_STAGING or (size > _MAX_KEPT_BYTES and len(self._staging) > 1):
            oldest = self._staging.pop(0)
            size -= oldest.size
            oldest.destroy()


class StagedReading(Reading):
    """An asynchronous read through a staging buffer, which is cached after the read, or freed if the read is dropped.

    Attributes:
        staging: Staging buffer; None after the bytes are fetched.
        size: Number of bytes.
        data: The bytes, after they are fetched.
    """

    def __init__(self, transfers: Transfers, queue: GpuQueue, staging: Any, size: int, serial: int):
        self._transfers, self._queue, self._serial = transfers, queue, serial
        self.staging, self.size = staging, size
        self.data: NDArray[np.uint8] | None = None

    def is_done(self) -> bool:
        """Return whether ``result`` returns without waiting."""
        return self.data is not None or self._queue.is_done(self._serial)

    def result(self, timeout: float | None = None) -> NDArray[np.uint8] | None:
        """Return the bytes, the same array each time; None after ``timeout`` seconds.

        An exception of a signal handler ends the wait, and changes nothing else.

        Raises:
            DeviceRemoved: If the device is gone.
        """
        if self.data is None and self._queue.wait(self._serial, timeout):
            self._transfers.fetch(self)
        return self.data
