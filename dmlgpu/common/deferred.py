"""Calls that run under a lock without waiting for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class DeferredCalls:
    """Actions under a lock: they run immediately, or at the next ``run`` if another thread holds the lock.

    Finalizers free memory this way. Python collects garbage in any thread, between any two lines. If a finalizer in a
    thread with the executor's lock waited for the device's lock, while another thread with the device's lock waits for
    the executor's, both would deadlock.

    Args:
        lock: Reentrant lock. A thread that holds it for long calls ``run`` first.
    """

    def __init__(self, lock: threading.RLock):
        self._lock = lock
        self._actions: deque[Callable[[], None]] = deque()

    def add(self, action: Callable[[], None]) -> None:
        """Run an action now, or queue it for the lock's holder. It must not raise."""
        self._actions.append(action)
        self.run()

    def run(self) -> None:
        """Run waiting calls, unless another thread holds the lock."""
        while self._actions:
            held: list[bool] = []
            try:
                # A single C call acquires the lock and records it: no signal handler can raise in between.
                held.extend(map(self._lock.acquire, (False,)))
                if not held[0]:
                    return
                while self._actions:
                    self._actions.popleft()()
            finally:
                if held and held[0]:
                    self._lock.release()
