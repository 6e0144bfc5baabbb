"""Running the command line: as users do, in a process of its own; or in this one, which takes no time to start."""

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

from dmlgpu.cli.main import main

START = "import sys; from dmlgpu.cli.main import main; sys.exit(main())"


def dmlgpu(*arguments, setup="", environment=None, directory=None):
    """The finished process of ``dmlgpu ARGUMENTS``; ``setup`` is Python that runs first in it."""
    variables = {name: value for name, value in os.environ.items() if name != "DMLGPU_ADAPTER"}
    return subprocess.run(
        [sys.executable, "-c", f"{setup}\n{START}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        env=variables | (environment or {}),
    )


def run_here(*arguments):
    """What ``dmlgpu`` returns and prints, called in this process; its output is no terminal either."""
    command = ["dmlgpu", *map(str, arguments)]
    with (
        mock.patch.dict(os.environ),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        os.environ.pop("DMLGPU_ADAPTER", None)
        code = main(command[1:])
    return subprocess.CompletedProcess(command, code, out.getvalue(), errors.getvalue())
