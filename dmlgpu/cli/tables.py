"""Tables, drawn by rich on a terminal, plain text in a pipe and without rich; and progress on standard error."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

Row = Sequence[str]


def is_terminal() -> bool:
    """Return whether standard output is watched by a person, and rich is there to draw for them."""
    return sys.stdout.isatty() and importlib.util.find_spec("rich") is not None


def table(columns: Row, rows: Iterable[Row], right: Sequence[int] = ()) -> None:
    """Print a table.

    Args:
        columns: the headings.
        rows: one text per column.
        right: numbers of the columns to align to the right.
    """
    rows = list(rows)
    if is_terminal():
        _rich_table(columns, rows, right)
        return
    widths = [max(len(row[column]) for row in [columns, *rows]) for column in range(len(columns))]
    for row in [columns, *rows]:
        cells = [
            text.rjust(widths[column]) if column in right else text.ljust(widths[column])
            for column, text in enumerate(row)
        ]
        print("  ".join(cells).rstrip())


def text(block: str) -> None:
    """Print a block of lines, the first of which is its heading."""
    if not is_terminal():
        print(block)
        return
    heading, _, rest = block.partition("\n")
    console, _ = _rich()
    console.print(heading, style="bold")
    if rest:
        console.print(rest)


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print a title and named facts below it; a fact of several lines stays in its column. Empty ones are left out."""
    pairs = [(name, text) for name, text in pairs if text]
    if is_terminal():
        _rich_facts(title, pairs)
        return
    print(title)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        first, *rest = text.splitlines()
        print(f"  {name:{width}}  {first}")
        for line in rest:
            print(f"  {'':{width}}  {line}")


def _rich_table(columns: Row, rows: Sequence[Row], right: Sequence[int]) -> None:
    console, rich_table = _rich()
    drawn = rich_table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        # Only the last column, the one with sentences, may break into lines.
        last = number == len(columns) - 1
        drawn.add_column(column, justify="right" if number in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn)


def _rich_facts(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    console, rich_table = _rich()
    console.print(title, style="bold")
    drawn = rich_table.grid(padding=(0, 2, 0, 2))
    drawn.add_column(style="cyan", no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in pairs:
        drawn.add_row(*row)
    console.print(drawn)


def _rich() -> tuple[Any, Any]:
    from rich.console import Console  # noqa: PLC0415 - only for those who watch
    from rich.table import Table  # noqa: PLC0415

    return Console(markup=False, highlight=False), Table


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
