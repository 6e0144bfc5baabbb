"""Standard output and standard error, also where they are closed or nobody reads them any more.

What a command does and its exit code do not depend on who reads what it prints: text for a stream that is closed, or
whose reader (``head``, a pager) has gone, is dropped. Standard output that cannot be stored is an error.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

_OUTPUT, _ERRORS = 1, 2


def prepare() -> None:
    """Make the standard streams of this process safe to print to; those that somebody replaced are left alone.

    Descriptors that are closed are opened on the null device, lest the next file that is opened, a driver's perhaps,
    gets what is printed. What an encoding lacks is written with backslashes.
    """
    for descriptor in (0, _OUTPUT, _ERRORS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_OUTPUT, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_ERRORS, sys.stderr)


def flush() -> None:
    """Write what standard output still holds back.

    Raises:
        OSError: that fails. The text is dropped, so that Python does not fail once more when it ends.
    """
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        raise


class _Output(io.FileIO):
    """The descriptor of a standard stream; it drops what nobody can read."""

    def write(self, data: Any, /) -> int:
        """Write bytes; returns how many."""
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) or self.fileno() == _ERRORS:
                return len(data)
            error.filename = "standard output"
            raise


def _stream(descriptor: int, stream: TextIO | None) -> TextIO:
    """What takes the place of a stream; None stands for one that was closed when Python started."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            return stream
    encoding = "utf-8" if stream is None else stream.encoding
    file = io.BufferedWriter(_Output(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=descriptor == _ERRORS)
