"""What a command is doing, on standard error, where somebody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Yield what tells the present step: in a line of a terminal, and nowhere else."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for those who watch

    with Console(stderr=True).status("starting") as line:
        yield line.update
