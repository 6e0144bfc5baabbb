"""Running the command line as users do: in a process of its own, its output in pipes."""

import os
import subprocess
import sys

WITHOUT = """from dmlgpu.operators.lowering import _LOWERINGS
from dmlgpu.reference.registry import _FUNCTIONS
for registry in (_LOWERINGS, _FUNCTIONS):
    registry.pop({!r}, None)
"""
"""Python that takes an operator's lowering and reference away, as if dmlgpu did not implement it."""

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
