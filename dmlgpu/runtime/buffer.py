"""Device memory that operators read and write (Direct3D 12: buffer resources)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common import coercion
from dmlgpu.common.coercion import UINT64_MAX, as_index
from dmlgpu.common.errors import InvalidArgument, InvalidState, TimedOut, abridged, shown
from dmlgpu.runtime.child import DeviceChild, DmlObject
from dmlgpu.runtime.executor import WORD_BYTES, Range, Reading

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState


class Buffer(DeviceChild):
    """A range of device memory, created by ``Device.create_buffer`` and filled with zeros.

    The memory is freed by ``release``, at the end of a ``with`` block, or when the buffer is garbage-collected. Reads
    and writes are ordered after all work submitted before them.

    Attributes:
        identity: The memory; two buffers over one wgpu buffer have the same identity.

    Args:
        free: Frees the memory; None returns it to the executor.
    """

    _kind = "buffer"

    def __init__(
        self,
        device: Device,
        state: DeviceState,
        *,
        size: int,
        memory: Any,
        identity: object,
        name: str | None,
        free: Callable[[], None] | None = None,
    ):
        super().__init__(device, state, name)
        self._size, self._memory = size, memory
        self.identity = identity
        self._released = False
        self._free = [free or functools.partial(state.free, memory)]

    @classmethod
    def from_wgpu(cls, device: Device, wgpu_buffer: Any, name: str | None = None) -> Buffer:
        """Create a buffer over the memory of a wgpu buffer; releasing it does not destroy the wgpu buffer.

        Args:
            device: A device on the same wgpu device, see ``Device.from_wgpu``.
            wgpu_buffer: A ``wgpu.GPUBuffer`` with usage STORAGE; reading needs COPY_SRC, writing COPY_DST.

        Raises:
            InvalidArgument: If it is not a wgpu buffer, belongs to another device, or lacks a usage.
        """
        wrap = getattr(device, "wrap_buffer", None)
        if wrap is None or not isinstance(device, DmlObject):
            raise InvalidArgument(f"Buffer.from_wgpu: device must be a Device, got {type(device).__name__}")
        return wrap(wgpu_buffer, name)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def memory(self) -> Any:
        """The executor's own buffer, for direct use with ``Device.backend``."""
        return self._memory

    @property
    def released(self) -> bool:
        """Whether the memory was freed."""
        return self._released

    @property
    def description(self) -> str:
        return f"buffer {abridged(self._name)!r}" if self._name else f"buffer of {self._size} bytes"

    def write(self, data: Any, offset: int = 0) -> None:
        """Write bytes, after all submitted work. Fastest if offset and length are multiples of 4.

        Args:
            data: A bytes-like object or a NumPy array of numbers.
            offset: First byte to write. Defaults to 0.

        Raises:
            InvalidArgument: If the data do not fit, or are no plain bytes.
            InvalidState: If the buffer is released.
        """
        raw = _as_bytes(self.description, data)
        offset, _ = self._check_range("write", offset, raw.size)
        begin, size = _whole_words(offset, raw.size)
        if (begin, size) == (offset, raw.size):
            self._state.call(self._state.backend.write, self._memory, offset, raw)
            return
        with self._state.lock:
            words = self._state.call(self._state.backend.read, self._memory, begin, size).copy()
            words[offset - begin : offset - begin + raw.size] = raw
            self._state.call(self._state.backend.write, self._memory, begin, words)

    def read(self, offset: int = 0, size: int | None = None) -> NDArray[np.uint8]:
        """Wait for all submitted work and read bytes.

        Args:
            offset: First byte to read. Defaults to 0.
            size: Number of bytes; None (the default) reads to the end.

        Returns:
            An array of uint8 owned by the caller; ``.view(np.float32)`` reinterprets it.

        Raises:
            InvalidArgument: If the range is outside the buffer.
            InvalidState: If the buffer is released.
        """
        offset, size = self._check_part("read", offset, size)
        if size == 0:
            return np.empty(0, np.uint8)
        begin, rounded = _whole_words(offset, size)
        words = self._state.call(self._state.backend.read, self._memory, begin, rounded)
        return words[offset - begin : offset - begin + size]

    def read_async(self, offset: int = 0, size: int | None = None) -> Readback:
        """Start to read a range. Work executed later runs while the bytes are transferred.

        Does not wait, unless the driver accepts a submission only after the previous one is done, as Mesa's lavapipe
        does. There, do work that should overlap a frame between ``Queue.execute`` and this call.

        Args:
            offset: First byte to read. Defaults to 0.
            size: Number of bytes; None (the default) reads to the end.

        Returns:
            A Readback of the bytes after all work submitted before; later work does not change it.

        Raises:
            InvalidArgument: If the range is outside the buffer.
            InvalidState: If the buffer is released.
            OutOfMemory: If the adapter has no memory for the staging copy.
        """
        offset, size = self._check_part("read_async", offset, size)
        begin, rounded = _whole_words(offset, size)
        reading = self._state.call(self._state.backend.read_async, self._memory, begin, rounded) if size else None
        return Readback(
            self._device, self._state, reading=reading, source=self.description, begin=offset - begin, size=size
        )

    def release(self) -> None:
        """Free the memory once submitted work is done. Later use of the buffer raises InvalidState."""
        self._released = True
        self._free_memory()

    def _free_memory(self) -> None:
        """Free the memory, once, whichever threads release the buffer; not at the end of the process."""
        try:
            free = self._free.pop()
        except (IndexError, AttributeError):  # the latter if the constructor raised
            return
        if not self._is_finalizing():
            free()

    __del__ = _free_memory
    _is_finalizing = staticmethod(sys.is_finalizing)  # the module's globals may be gone by then

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def check_usable(self, caller: str, argument: str) -> None:
        """Raise InvalidState if the buffer is released."""
        if self._released:
            raise InvalidState(f"{caller}: {argument}, {self.description}, is released")

    def _check_part(self, verb: str, offset: int, size: int | None) -> tuple[int, int]:
        """Return offset and size of a range to read; size None extends to the end."""
        begin, count = self._check_range(verb, offset, 0 if size is None else size)
        return begin, self._size - begin if size is None else count

    def _check_range(self, verb: str, offset: int, size: int) -> tuple[int, int]:
        self._state.check()
        if self._released:
            raise InvalidState(f"{self.description}: {verb} after release")
        return check_range(f"{self.description}: {verb}", self, offset, size)


Ranges: TypeAlias = tuple[Range[Buffer] | None, ...]


def check_range(caller: str, buffer: Buffer, offset: Any, size: Any) -> tuple[int, int]:
    """Return offset and size of a byte range inside a buffer.

    Raises:
        InvalidArgument: If they are not integers, negative, or beyond the end.
    """
    begin, length = natural(caller, "offset", offset), natural(caller, "size", size)
    if begin + length > buffer.size:
        raise InvalidArgument(
            f"{caller}: bytes {begin} to {begin + length} are not inside {buffer.description}"
            + (f" ({buffer.size} bytes)" if buffer.name else "")
        )
    return begin, length


def natural(caller: str, argument: str, value: Any) -> int:
    """Return an argument as an ``int``, since NumPy's small integers would overflow in sums.

    Raises:
        InvalidArgument: If it is not an integer from 0 to 2^64 - 1.
    """
    integer = as_index(value)
    if integer is None or not 0 <= integer <= UINT64_MAX:
        rule = "below 2^64" if integer is not None and integer > 0 else "of at least 0"
        raise InvalidArgument(f"{caller}: {argument} must be an integer {rule}, got {shown(value)}")
    return integer


def _whole_words(offset: int, size: int) -> tuple[int, int]:
    """Return offset and size of the whole words around a range, the unit of transfers."""
    begin = offset // WORD_BYTES * WORD_BYTES
    return begin, -(-(offset + size - begin) // WORD_BYTES) * WORD_BYTES


def _as_bytes(caller: str, data: Any) -> NDArray[np.uint8]:
    """Return the bytes of an array or bytes-like object, copied only if not contiguous."""
    try:
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    except Exception:  # whatever a foreign buffer raises
        array = None
    if array is None or array.dtype.hasobject or not array.dtype.itemsize:
        kind = f"an array of {data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
        raise InvalidArgument(f"{caller}: write takes bytes or a NumPy array of numbers, got {kind}")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Readback(DeviceChild):
    """An asynchronous read, created by ``Buffer.read_async``. Thread-safe.

    It holds the bytes after all work submitted before the call; later work, or a release of the buffer, does not affect
    it. Until the result is fetched it takes device memory beyond the memory budget, which is freed if the readback is
    dropped.
    """

    _kind = "readback"

    def __init__(
        self, device: Device, state: DeviceState, *, reading: Reading | None, source: str, begin: int, size: int
    ):
        super().__init__(device, state)
        self._reading, self._source, self._begin, self._size = reading, source, begin, size
        # Several threads may find the bytes at once: the first array counts.
        self._results = [np.empty(0, np.uint8)] if reading is None else []

    @property
    def description(self) -> str:
        return f"{super().description} of {self._source}"

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def done(self) -> bool:
        """Return whether ``result`` returns without waiting.

        Raises:
            DeviceRemoved: If the device was removed before the bytes were fetched.
        """
        if self._results or self._reading is None:
            return True
        self._state.check()
        return self._state.call_unlocked(self._reading.is_done)

    def result(self, timeout: float | None = None) -> NDArray[np.uint8]:
        """Wait for the bytes. An exception in a signal handler, such as KeyboardInterrupt, ends the wait.

        Args:
            timeout: Seconds; None (the default) waits without limit.

        Returns:
            An array of uint8 owned by the caller, the same one at each call.

        Raises:
            TimedOut: If the bytes are not available in time; call again to wait longer.
            InvalidArgument: If `timeout` is not a number of seconds.
            DeviceRemoved: If the device is removed before the bytes are fetched.
        """
        if timeout is not None:
            timeout = coercion.argument(self.description, "timeout", coercion.seconds, timeout)
        if not self._results and self._reading is not None:
            self._state.check()
            # The lock is not held: other threads go on submitting.
            words = self._state.call_unlocked(self._reading.result, timeout)
            if words is None:
                raise TimedOut(f"{self.description}: result: the bytes are not available after {timeout:g} s")
            self._results.append(words[self._begin : self._begin + self._size])
        return self._results[0]
