"""``python -m dmlgpu.frontends.torch SCRIPT [ARGS]``: run a script that imports ``torch_directml``, as Python does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from dmlgpu.frontends.scripts import run_script


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script, with the arguments of the command line or others; returns the exit code."""
    package, module = str(__package__), "torch_directml"
    description = "Runs a script that imports torch_directml, on the device 'dml'."
    return run_script(package, description, module, lambda: importlib.import_module(f"{package}.{module}"), arguments)


if __name__ == "__main__":
    sys.exit(main())
