"""Memory that tensors take and give back: buffers are kept by size, so that a loop of temporaries allocates nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dmlgpu.common.errors import OutOfMemory
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.state import DeviceState

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device

KEPT_BYTES = 256 << 20
"""Most bytes of unused buffers that a device keeps."""

_SMALLEST = 256


def rounded(size: int) -> int:
    """Return the size in bytes of the buffer for a tensor: at most an eighth more, so that few sizes occur."""
    step = 1 << max(4, size.bit_length() - 4)
    return max(_SMALLEST, -(-size // step) * step)


class Pool:
    """A device's unused buffers. Thread-safe.

    Args:
        state: the device's; the pool does not keep the device itself alive.
        forget: called when memory goes back to the executor, to drop what was recorded on it.

    Attributes:
        kept: bytes of unused buffers.
        allocations: how often the executor was asked for memory.
    """

    def __init__(self, state: DeviceState, forget: Callable[[], None]):
        self._state, self._forget = state, forget
        self._unused: dict[int, list[Any]] = {}
        self.kept = self.allocations = 0
        weakref.finalize(self, _free, state, self._unused).atexit = False

    def take(self, device: Device, size: int, label: str) -> Buffer:
        """Return a buffer of at least ``size`` bytes, whatever they hold; the pool has it back when it is released.

        Raises:
            OutOfMemory: the device has no room, even after all unused buffers went.
        """
        memory, whole = self.take_memory(size, label)
        return Buffer(
            device,
            self._state,
            size=whole,
            memory=memory,
            identity=memory,
            name=label,
            free=lambda given: self._state.deferred.add(lambda: self._give(given, whole)),
        )

    def take_memory(self, size: int, label: str) -> tuple[Any, int]:
        """Return the executor's memory alone, and its bytes, for ``give_back``. Raises as ``take``."""
        whole = rounded(size)
        with self._state.lock:  # reentrant: a collection of garbage within it may give buffers back
            self._state.deferred.run()
            unused = self._unused.get(whole)
            if unused:
                self.kept -= whole
                return unused.pop(), whole
        return self._allocate(size, whole, label)

    def give_back(self, taken: Iterable[tuple[Any, int]]) -> None:
        """Have back what ``take_memory`` returned. Work that was submitted may still use it: later work runs later."""
        with self._state.lock:
            for memory, size in taken:
                self._give(memory, size)

    def _allocate(self, size: int, whole: int, label: str) -> tuple[Any, int]:
        self.allocations += 1
        create = self._state.backend.create_buffer
        try:
            return self._state.call(create, whole, label), whole
        except OutOfMemory:
            self.clear()
        exact = -(-size // 16) * 16
        return self._state.call(create, exact, label), exact

    def _give(self, memory: Any, size: int) -> None:
        """Keep a buffer that nobody uses any more; where too many are kept, let them go. Hold the lock."""
        is_room = self._state.removed is None and size <= KEPT_BYTES // 2
        if is_room and self.kept + size <= KEPT_BYTES:
            self._unused.setdefault(size, []).append(memory)
            self.kept += size
            return
        if is_room:
            self.clear()
        self._forget()
        self._state.free(memory)

    def clear(self) -> None:
        """Give all unused buffers back to the executor."""
        with self._state.lock:
            unused = dict(self._unused)
            self._unused.clear()
            self.kept = 0
        self._forget()
        _free(self._state, unused)


def _free(state: DeviceState, unused: dict[int, list[Any]]) -> None:
    """Give buffers back to the executor."""
    for memories in unused.values():
        for memory in memories:
            state.free(memory)


class Kept:
    """Memory that goes back to the executor when nothing refers to it; unlike a buffer, it keeps no device alive.

    Attributes:
        memory: the executor's.
        size: its bytes.

    Raises:
        OutOfMemory: the device has no room.
    """

    def __init__(self, state: DeviceState, size: int, label: str):
        self.size = -(-size // 16) * 16
        self.memory: Any = state.call(state.backend.create_buffer, self.size, label)
        weakref.finalize(self, state.free, self.memory).atexit = False
