"""``python -m dmlgpu.frontends.torch SCRIPT [ARGS]``: run a script that imports ``torch_directml``, as Python does.

``--install`` makes ``import torch_directml`` work in this environment without the runner, ``--uninstall`` ends that.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.frontends.scripts import run_script

_MODULE = "torch_directml"

_SHIM = f'''"""Imports dmlgpu's module of this name. `python -m {__package__} --uninstall` removes this file."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("{__package__}.{_MODULE}")
'''


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script, with the arguments of the command line or others; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) in (["--install"], ["--uninstall"]):
        return _change(Path(sysconfig.get_path("purelib")), is_installed=arguments[0] == "--install")
    package = str(__package__)
    description = (
        "Runs a script that imports torch_directml, on the device 'dml'. Instead of a script, --install makes the "
        "import work in this environment without this runner, and --uninstall ends that."
    )
    return run_script(package, description, _MODULE, lambda: importlib.import_module(f"{package}.{_MODULE}"), arguments)


def _change(folder: Path, *, is_installed: bool) -> int:
    """Write or remove the module in a folder of packages; returns the exit code. Modules of others stay."""
    path = folder / f"{_MODULE}.py"
    is_ours = path.exists() and path.read_text(encoding="utf-8") == _SHIM
    if not is_ours and (path.exists() or (folder / _MODULE).exists()):
        print(f"{folder / _MODULE} was installed by another package: uninstall torch-directml first", file=sys.stderr)
        return 1
    if is_installed:
        path.write_text(_SHIM, encoding="utf-8")
        print(f"import {_MODULE} works now: {path}")
    else:
        path.unlink(missing_ok=True)
        print(f"import {_MODULE} is no longer dmlgpu's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
