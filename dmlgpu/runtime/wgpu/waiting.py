"""Waits that a signal or timeout can end, and calls that signals do not interrupt."""

from __future__ import annotations

import _thread
import queue
import time
from collections.abc import Callable
from typing import TypeVar, cast

Result = TypeVar("Result")

_AWAKE = 100e-6
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-6, 1e-3
_PAUSE_SHARE = 1 / 16


def wait_until(is_done: Callable[[], bool], timeout: float | None = None) -> bool:
    """Poll until something is done; return False after ``timeout`` seconds.

    A blocking driver call would keep Python from running signal handlers, and other threads from the single OpenGL
    context. Pauses are a fraction of the elapsed time, so they add little delay.

    Raises: As ``is_done``.
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
    """Call a function without interruption by Python's signal handlers: they end the wait for it, not the call.

    Handlers run on the main thread only. An exception raised by one inside of a driver callback is lost, along with the
    callback's arguments.

    Raises: As ``function``.
    """
    results: queue.SimpleQueue[Result] = queue.SimpleQueue()
    errors: list[BaseException] = []
    functions = [function]

    # No variable of the thread refers to function, result or exception when the wait ends. They refer to devices, which
    # would live as long as the thread, or, in frames of tracebacks, as the exceptions that wgpu-py's promises keep.
    def call() -> None:
        try:
            results.put(functions.pop()())
        except BaseException as raised:  # for the thread that waits
            errors.append(raised)
            results.put(cast("Result", None))

    # threading.Thread.start waits for the start of the thread, during which a handler may raise.
    _thread.start_new_thread(call, ())
    result = results.get()
    if errors:
        raise errors.pop()
    return result
