"""Tables for people: drawn by rich on a terminal, aligned plain text in a pipe, and where rich is not installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from typing import Any

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
