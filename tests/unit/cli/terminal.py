"""A terminal of 80 columns and 24 lines, for output without a pipe."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

from tests.unit.cli.cli_process import START

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(*arguments, setup="", columns=80, lines=24, environment=None, directory=None):
    """The exit code of ``dmlgpu ARGUMENTS`` in a terminal, and what it shows, without colors.

    As the installed script does, it imports nothing from the current folder.
    """
    import fcntl
    import pty
    import struct
    import termios

    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"{setup}\n{START}", *map(str, arguments)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=directory,
        env={**variables, "TERM": "xterm", **(environment or {})},
    )
    os.close(terminal)
    shown = bytearray()
    with contextlib.suppress(OSError):  # what Linux says when the last process has closed the terminal
        while block := os.read(controller, 1 << 16):
            shown += block
    os.close(controller)
    return process.wait(), _CONTROL.sub("", shown.decode()).replace("\r\n", "\n")
