"""Reading buffers while work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import TimedOut
from dmlgpu.runtime.child import DeviceChild
from dmlgpu.runtime.executor import Reading

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState


class Readback(DeviceChild):
    """Bytes of a buffer on their way to the host, made by ``Buffer.read_async``. Thread-safe.

    They are what the buffer held after all work that was submitted before the call: what is executed or written
    later, or a release of the buffer, changes nothing. Until the result is there they take memory of the device beside
    its memory budget; a readback that is dropped gives it back.
    """

    _kind = "readback"

    def __init__(
        self, device: Device, state: DeviceState, *, reading: Reading | None, source: str, begin: int, size: int
    ):
        super().__init__(device, state)
        self._reading, self._source, self._begin, self._size = reading, source, begin, size
        # Several threads may find the bytes at once: the first array counts.
        self._found = [np.empty(0, np.uint8)] if reading is None else []

    @property
    def description(self) -> str:
        return f"{super().description} of {self._source}"

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def done(self) -> bool:
        """Return whether ``result`` would wait no more.

        Raises:
            DeviceRemoved: the device is gone, and the bytes were not fetched before.
        """
        if self._found or self._reading is None:
            return True
        self._state.check()
        return self._state.call_unlocked(self._reading.is_done)

    def result(self, timeout: float | None = None) -> NDArray[np.uint8]:
        """Wait for the bytes. A signal handler's exception, KeyboardInterrupt for one, ends the wait.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            An array of uint8 that belongs to the caller, the same one at each call.

        Raises:
            TimedOut: the bytes are not there in time; a later call may find them.
            InvalidArgument: ``timeout`` is no number of seconds.
            DeviceRemoved: the device is gone, or goes meanwhile, and the bytes were not fetched before.
        """
        if timeout is not None:
            timeout = kinds.argument(self.description, "timeout", kinds.seconds, timeout)
        if not self._found and self._reading is not None:
            self._state.check()
            # The lock is not held: other threads go on submitting.
            words = self._state.call_unlocked(self._reading.result, timeout)
            if words is None:
                raise TimedOut(f"{self.description}: result: the bytes are not there after {timeout:g} s")
            self._found.append(words[self._begin : self._begin + self._size])
        return self._found[0]
