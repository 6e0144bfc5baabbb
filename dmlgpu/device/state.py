"""What a device shares with its objects: the executor, the lock, the removal, the order of submissions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dmlgpu.backend import Backend
from dmlgpu.errors import DeviceRemoved, DmlError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class DeviceState:
    """The part of a device that its objects use.

    Attributes:
        backend: the executor.
        label: the device as messages name it.
        lock: held around every call of the executor that does not block.
        removed: why the device is gone, or None.
        release_epoch: grows with every released buffer, so that cached checks know when to look again.
        last_serial: the latest submission, or None.
    """

    def __init__(self, backend: Backend):
        self.backend = backend
        self.label = ""
        self.name(None)
        self.lock = threading.RLock()
        self.removed: str | None = None
        self.release_epoch = 0
        self.last_serial: int | None = None

    def name(self, name: str | None) -> None:
        """Take over the device's name."""
        where = f"on '{self.backend.info}'"
        self.label = f"device {name!r} {where}" if name else f"device {where}"

    def check(self) -> None:
        """Raise DeviceRemoved when the device is gone."""
        if self.removed is not None:
            raise DeviceRemoved(f"{self.label} is removed: {self.removed}; create a new device")

    def call(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the executor under the lock; a lost adapter removes the device."""
        with self.lock:
            self.check()
            return self.call_unlocked(function, *args, **kwargs)

    def call_unlocked(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the executor; a lost adapter removes the device. For calls that wait, which must not hold the lock."""
        try:
            return function(*args, **kwargs)
        except DeviceRemoved as lost:
            self.remove(str(lost))
            raise

    def remove(self, reason: str) -> None:
        """Remove the device and close the executor; the first reason stays."""
        with self.lock:
            if self.removed is not None:
                return
            self.removed = reason
            with contextlib.suppress(DmlError):
                self.backend.close()

    def free(self, memory: object) -> None:
        """Give memory back; on a removed device it is gone already."""
        with self.lock:
            self.release_epoch += 1
            if self.removed is None:
                with contextlib.suppress(DeviceRemoved):
                    self.call_unlocked(self.backend.destroy_buffer, memory)

    def is_in_flight(self, serial: int | None) -> bool:
        """Return whether a submission is still being worked on."""
        return serial is not None and not self.call(self.backend.is_done, serial)
