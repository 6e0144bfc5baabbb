"""How far a run of ``dmlgpu test`` is, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

INTERVAL = 10.0
"""Seconds between two lines where nobody watches a terminal."""


class Progress:
    """Tells how many cases are done: on a terminal in a line that overwrites itself, elsewhere in one now and then.

    The last line says how long it took.

    Args:
        file: where it is told.
        count: of all cases.
        where: what the adapter is called, if that is to be said.
        clock: returns seconds.
    """

    def __init__(self, file: TextIO, count: int, where: str = "", clock: Callable[[], float] = time.monotonic):
        self._file, self._count, self._clock = file, count, clock
        self._prefix = f"{where}: " if where else ""
        self._start = self._told = clock()

    def show(self, done: int, bad: int) -> None:
        """Tell how many cases are done, and how many of them are not as they should be."""
        now = self._clock()
        ended = done == self._count
        cases = "case" if self._count == 1 else "cases"
        text = f"{self._prefix}{done} of {self._count} {cases}, {bad} not as they should be"
        if ended:
            text += f", in {now - self._start:.0f} s"
        if self._file.isatty():
            print(f"\r{text}", end="\n" if ended else "", file=self._file, flush=True)
        elif ended or now - self._told >= INTERVAL:
            print(text, file=self._file, flush=True)
            self._told = now
