"""Progress of commands, on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Yield what tells the present step: in a line of a terminal, and nowhere else."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for those who watch

    with Console(stderr=True).status("starting") as line:
        yield line.update


class BenchProgress:
    """Tells on a terminal, in a line that overwrites itself, what is being measured; elsewhere nothing.

    Args:
        file: where it is told.
        count: of all workloads.
    """

    def __init__(self, file: TextIO, count: int):
        self._file, self._count, self._shown = file, count, 0

    def show(self, number: int, name: str, text: str) -> None:
        """Tell that the workload with a number, from 0, is where a text says."""
        if not self._file.isatty():
            return
        done = round(20 * number / max(1, self._count))
        line = f"[{'#' * done}{'.' * (20 - done)}] {number + 1} of {self._count}: {name}, {text}"[:118]
        print(f"\r{line:{self._shown}}", end="", file=self._file, flush=True)
        self._shown = len(line)

    def clear(self) -> None:
        """Take the line away, for others to print theirs."""
        if self._shown:
            print(f"\r{'':{self._shown}}\r", end="", file=self._file, flush=True)
            self._shown = 0

    def finish(self) -> None:
        """Tell nothing more."""
        self.clear()
