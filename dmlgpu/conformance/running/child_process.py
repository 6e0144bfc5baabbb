"""What child processes and those who start them share: a reserved standard output, and how an exit is described."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TextIO

PARENT_INTERVAL = 1.0
"""Seconds between two looks at whether the parent is still there."""

LAST_LINES = 5
"""Lines of what a child printed before it crashed that are kept."""


@contextlib.contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Standard output, for the caller alone: what drivers print there from now on goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def exit_with_parent(interval: float = PARENT_INTERVAL) -> None:
    """End this process when its parent is gone, even one that was killed while a case hangs here.

    Windows does not show it: there a child that is left behind ends with the case.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def describe_exit(code: int, printed: str) -> str:
    """A crash in words: the exit code, or the signal where it is negative, and the last lines of what was printed."""
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return "\n".join([f"the process ended with {ended}", *printed.splitlines()[-LAST_LINES:]])
