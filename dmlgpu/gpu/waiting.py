"""Waiting in steps, which a signal or a time limit can end."""

from __future__ import annotations

import time
from collections.abc import Callable

_AWAKE = 100e-6
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-6, 1e-3
_PAUSE_SHARE = 1 / 16


def wait_until(is_done: Callable[[], bool], timeout: float | None = None) -> bool:
    """Ask until something is done; return False when ``timeout`` seconds pass first.

    A blocking call of the driver would keep Python from running signal handlers, and other threads from OpenGL's one
    context. Pauses between questions are a share of the time that has passed, so that they delay little.

    Raises: what ``is_done`` raises.
    """
    start = time.monotonic()
    while not is_done():
        elapsed = time.monotonic() - start
        if timeout is not None and elapsed >= timeout:
            return False
        if elapsed > _AWAKE:
            pause = min(max(elapsed * _PAUSE_SHARE, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            time.sleep(pause if timeout is None else min(pause, timeout - elapsed))
    return True
