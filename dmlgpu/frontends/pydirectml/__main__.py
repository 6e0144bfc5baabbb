"""``python -m dmlgpu.frontends.pydirectml SCRIPT [ARGS]``: run a script that imports ``pydirectml``, as Python does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dmlgpu.frontends.scripts import run_script

MODULE = "pydirectml"
"""The name under which scripts import the package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script, with the arguments of the command line or others; returns the exit code."""
    package = str(__package__)
    return run_script(
        package, "Runs a script that imports pydirectml.", MODULE, lambda: sys.modules[package], arguments
    )


if __name__ == "__main__":
    sys.exit(main())
