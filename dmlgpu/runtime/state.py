"""State shared by a device and its objects: executor, lock, removal, order of submissions."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from dmlgpu.common.deferred import DeferredCalls
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidState, abridged
from dmlgpu.runtime.executor import Backend

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class DeviceState:
    """State of a device that its objects use.

    Attributes:
        backend: The executor.
        label: Name in messages.
        lock: Held during every non-blocking call of the executor.
        deferred: Functions to run under the lock before the next call of the executor.
        removed: Reason of the removal, or None.
        release_epoch: Incremented by every released buffer, to invalidate cached checks.
        last_serial: The latest submission, or None.
        waiters: Get an item when a fence is signaled or the device is removed.
    """

    def __init__(self, backend: Backend):
        self.backend = backend
        self.label = ""
        self.name(None)
        self.lock = threading.RLock()
        self.deferred = DeferredCalls(self.lock)
        self.removed: str | None = None
        self._epochs = itertools.count(1)  # one by one, whichever threads count
        self.release_epoch = 0
        self.last_serial: int | None = None
        self.waiters: set[SimpleQueue[None]] = set()
        self._lost_by_fork = False
        _states.add(self)

    def name(self, name: str | None) -> None:
        """Set the device's name."""
        where = f"on '{self.backend.info}'"
        self.label = f"device {abridged(name)!r} {where}" if name else f"device {where}"

    def check(self) -> None:
        """Raise DeviceRemoved if the device is removed, InvalidState if it belongs to the parent of a forked
        process."""
        if self.removed is not None:
            if self._lost_by_fork:
                raise InvalidState(f"{self.label}: {self.removed}")
            raise DeviceRemoved(f"{self.label} is removed: {abridged(self.removed)}; create a new device")

    def call(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the executor under the lock; a lost adapter removes the device."""
        with self.lock:
            self.deferred.run()
            self.check()
            return self.call_unlocked(function, *args, **kwargs)

    def call_unlocked(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Call the executor without the lock, for calls that wait; a lost adapter removes the device."""
        try:
            return function(*args, **kwargs)
        except DeviceRemoved as lost:
            self.remove(str(lost))
            raise

    def remove(self, reason: str) -> None:
        """Remove the device and close the executor. Only the first reason is stored."""
        with self.lock:
            if self.removed is not None:
                return
            self.removed = reason
            self.wake()
            with contextlib.suppress(DmlError):
                self.backend.close()

    def wake(self) -> None:
        """Wake all waiting threads to check their conditions."""
        for waiter in list(self.waiters):
            waiter.put(None)

    def after_fork(self) -> None:
        """Repair the lock in a forked child, whose other threads are gone, or forbid its use."""
        self.lock = threading.RLock()
        self.deferred = DeferredCalls(self.lock)
        reason = getattr(self.backend, "lost_by_fork", None)
        if reason is not None:
            self.removed, self._lost_by_fork = reason, True

    def free(self, memory: object) -> None:
        """Free memory without waiting for another thread; on a removed device it was freed already."""
        self.release_epoch = next(self._epochs)
        self.deferred.add(functools.partial(self._free, memory))

    def _free(self, memory: object) -> None:
        if self.removed is None:
            with contextlib.suppress(DeviceRemoved):
                self.call_unlocked(self.backend.destroy_buffer, memory)

    def is_in_flight(self, serial: int | None) -> bool:
        """Return whether a submission is in flight."""
        return serial is not None and not self.call(self.backend.is_done, serial)


_states: weakref.WeakSet[DeviceState] = weakref.WeakSet()


def _after_fork() -> None:
    for state in list(_states):
        state.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
