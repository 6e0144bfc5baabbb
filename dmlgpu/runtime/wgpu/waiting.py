"""Waiting in steps, which a signal or a time limit can end, and for what no signal may cut short."""

from __future__ import annotations

import _thread
import queue
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

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


def without_signals(function: Callable[[], Result]) -> Result:
    """Call a function that Python's signal handlers do not interrupt; they end the wait for it, not the call.

    They run on the main thread only. What one raises inside a callback of the driver's is lost, and so is what the
    callback was told.

    Raises: what ``function`` raises.
    """
    answers: queue.SimpleQueue[Callable[[], Result]] = queue.SimpleQueue()

    def call() -> None:
        try:
            result = function()
        except BaseException as raised:  # for the thread that waits
            error = raised

            def fail() -> Result:
                raise error

            answers.put(fail)
        else:
            answers.put(lambda: result)

    # What threading offers waits for the thread's beginning, in which a handler may raise.
    _thread.start_new_thread(call, ())
    return answers.get()()
