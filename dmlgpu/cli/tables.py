"""Tables that fit the terminal (plain text in a pipe, and without rich), and progress on standard error."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

Row = Sequence[str]


def is_terminal() -> bool:
    """Return whether standard output is a terminal and rich is installed."""
    return sys.stdout.isatty() and importlib.util.find_spec("rich") is not None


def table(columns: Row, rows: Iterable[Row], right: Sequence[int] = ()) -> None:
    """Print a table.

    Args:
        columns: Headings.
        rows: One text per column.
        right: Indices of right-aligned columns.
    """
    rows = list(rows)
    if is_terminal():
        _terminal_table(columns, rows, right)
        return
    widths = [max(len(row[column]) for row in [columns, *rows]) for column in range(len(columns))]
    for row in [columns, *rows]:
        cells = [
            text.rjust(widths[column]) if column in right else text.ljust(widths[column])
            for column, text in enumerate(row)
        ]
        print("  ".join(cells).rstrip())


def text(block: str) -> None:
    """Print lines, the first as a heading."""
    if not is_terminal():
        print(block)
        return
    heading, _, rest = block.partition("\n")
    console, _ = _rich()
    console.print(heading, style="bold")
    if rest:
        console.print(rest)


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print a title and named facts below it. Empty facts are skipped; lines of a fact stay in its column."""
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


def _terminal_table(columns: Row, rows: Sequence[Row], right: Sequence[int]) -> None:
    console, _ = _rich()
    headings, lines = laid_out(columns, rows, right, console.width)
    for line in headings:
        console.print(line, style="bold", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


_GAP = 2
_MIN_SENTENCE = 24
"""Minimum width of a column of sentences, in characters."""


def laid_out(columns: Row, rows: Sequence[Row], right: Sequence[int], width: int) -> tuple[list[str], list[str]]:
    """Lay out a table for a terminal without cutting numbers or names.

    Sentences, such as an adapter's name, are wrapped between words if there is no room. If that is not enough, the
    widest column moves to lines of its own above its row.

    Args:
        columns: Headings.
        rows: One text per column.
        right: Indices of right-aligned columns, which are never wrapped.
        width: Width of the terminal, in characters.

    Returns:
        The lines of the headings, and those of the rows.
    """
    table_columns = list(range(len(columns)))
    above: list[int] = []
    indent = 0
    while True:
        natural = {column: max(len(row[column]) for row in [columns, *rows]) for column in table_columns}
        minimum = {
            column: _least_width(columns[column], [row[column] for row in rows], column in right)
            for column in table_columns
        }
        room = width - indent - _GAP * (len(table_columns) - 1)
        if sum(minimum.values()) <= room or len(table_columns) < 2:
            break
        widest = max(table_columns, key=lambda column: minimum[column])
        table_columns.remove(widest)
        above.append(widest)
        indent = _GAP
    widths = natural
    for limit in range(max(natural.values()), 0, -1):
        widths = {column: max(minimum[column], min(natural[column], limit)) for column in table_columns}
        if sum(widths.values()) <= room:
            break

    def lines_of(row: Row) -> Iterator[str]:
        for column in above:
            yield from _wrapped(row[column], width)
        cells = [_wrapped(row[column], widths[column]) for column in table_columns]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            aligned = (
                text.rjust(widths[column]) if column in right else text.ljust(widths[column])
                for column, text in zip(table_columns, line, strict=True)
            )
            yield f"{'':{indent}}{(' ' * _GAP).join(aligned)}".rstrip()

    return list(lines_of(columns)), [line for row in rows for line in lines_of(row)]


def _least_width(heading: str, cells: Sequence[str], is_number: bool) -> int:
    """Return the minimum width of a column: numbers unbroken, whole words of sentences and headings."""
    longest = max((len(word) for text in [heading, *([] if is_number else cells)] for word in text.split()), default=0)
    maximum = max(map(len, cells), default=0)
    return max(longest, maximum if is_number else min(max(maximum, len(heading)), _MIN_SENTENCE))


def _wrapped(text: str, width: int) -> list[str]:
    lines = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return [piece for line in lines for piece in line or [""]]


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
"""Seconds between two lines of progress if standard error is no terminal."""


MIN_ELAPSED, MIN_DONE = 3.0, 10
"""Seconds, and cases or per cent of them, after which the remaining time is estimated."""


class Progress:
    """Reports progress: on a terminal, a line that is overwritten and names the running case; else a line now and then.

    The remaining time is estimated. The last line has the elapsed time.

    Args:
        file: Output stream.
        count: Number of cases.
        where: Name of the adapter to print, if any.
        clock: Returns seconds.
    """

    def __init__(self, file: TextIO, count: int, where: str = "", clock: Callable[[], float] = time.monotonic):
        self._file, self.count, self._clock = file, count, clock
        self._prefix = f"{where}: " if where else ""
        self._start = self._last = clock()
        self._lock = threading.Lock()
        self._done = self._unexpected = self._shown = 0
        self._running = ""

    def start(self, name: str) -> None:
        """Report that a case starts. Thread-safe."""
        with self._lock:
            self._running = name
            if self._file.isatty() and self._done < self.count:
                self._overwrite(self._text(self._clock()))

    def show(self, done: int, unexpected: int) -> None:
        """Report the number of cases done, and of unexpected results."""
        with self._lock:
            now = self._clock()
            self._done, self._unexpected = done, unexpected
            text = self._text(now)
            ended = done == self.count
            if self._file.isatty():
                self._overwrite(text)
                if ended:
                    print(file=self._file, flush=True)
                    self._shown = 0
            elif ended or now - self._last >= INTERVAL:
                print(text, file=self._file, flush=True)
                self._last = now

    def clear(self) -> None:
        """Erase the line, so that something else can be printed."""
        with self._lock:
            if self._shown:
                self._overwrite("")
                print("\r", end="", file=self._file, flush=True)
                self._shown = 0

    def _text(self, now: float) -> str:
        cases = "case" if self.count == 1 else "cases"
        text = f"{self._prefix}{self._done:,} of {self.count:,} {cases}, {self._unexpected:,} unexpected"
        elapsed = now - self._start
        if self._done == self.count:
            return f"{text}, in {elapsed:.0f} s"
        if elapsed >= MIN_ELAPSED and self._done >= min(MIN_DONE, self.count * MIN_DONE / 100):
            text += f", about {duration(elapsed / self._done * (self.count - self._done))} left"
        return f"{text}: {self._running}" if self._running and self._file.isatty() else text

    def _overwrite(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text:{self._shown}}", end="", file=self._file, flush=True)
        self._shown = len(text)


def duration(seconds: float) -> str:
    """Format seconds: ``40 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextlib.contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step in a line of the terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for those who watch

    with Console(stderr=True).status("starting") as line:
        yield line.update


@contextlib.contextmanager
def patience(text: str, file: TextIO, interval: float = 1.0) -> Iterator[None]:
    """Print what a long step does, and a dot per interval while it lasts if the stream is a terminal."""
    print(f"dmlgpu: {text} ...", end="", file=file, flush=True)
    ended = threading.Event()

    def tell() -> None:
        while file.isatty() and not ended.wait(interval):
            print(end=".", file=file, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    start = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print(f" {time.monotonic() - start:.0f} s", file=file, flush=True)


class BenchProgress:
    """Reports on a terminal the workload being measured or compiled, in a line that is overwritten; silent elsewhere.

    Args:
        file: Output stream.
        count: Number of workloads or shapes.
    """

    def __init__(self, file: TextIO, count: int):
        self._file, self._count, self._shown = file, count, 0

    def show(self, index: int, name: str, text: str) -> None:
        """Report the state of the workload with this index."""
        if not self._file.isatty():
            return
        done = round(20 * index / max(1, self._count))
        line = f"[{'#' * done}{'.' * (20 - done)}] {index + 1} of {self._count}: {name}, {text}"[:118]
        print(f"\r{line:{self._shown}}", end="", file=self._file, flush=True)
        self._shown = len(line)

    def clear(self) -> None:
        """Erase the line, so that something else can be printed."""
        if self._shown:
            print(f"\r{'':{self._shown}}\r", end="", file=self._file, flush=True)
            self._shown = 0

    def finish(self) -> None:
        """Erase the line for good."""
        self.clear()
