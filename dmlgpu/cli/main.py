"""Entry point of the ``dmlgpu`` command: errors become one line and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from dmlgpu.cli import streams
from dmlgpu.errors import AdapterNotFound, DmlError, InvalidArgument

OK, FAILED, USAGE = 0, 1, 2
"""Exit codes: done; could not be done, or a result is wrong; the command line or an input file is wrong."""

_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "packaging": "cli",
    "distributed": "cluster",
    "websockets": "browser",
    "segno": "browser",
    "PIL": "demo",
    "skimage": "demo",
}

_PLAIN_DEVICES = {("devices",): False, ("devices", "--json"): True}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: as after the command's name; None takes the process's own.
    """
    streams.prepare()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        streams.flush()
        return code
    except (DmlError, OSError) as error:
        with contextlib.suppress(OSError):
            streams.flush()
        if "--debug" in arguments:
            raise
        print(f"dmlgpu: {_describe(error)}", file=sys.stderr)
        return USAGE if isinstance(error, InvalidArgument | AdapterNotFound | OSError) else FAILED
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"dmlgpu: this needs {error.name}; install it with: pip install 'dmlgpu[{extra}]'", file=sys.stderr)
        return FAILED


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: Sequence[str]) -> int:
    """Run the verb; returns the exit code."""
    as_json = _PLAIN_DEVICES.get(tuple(arguments))
    if as_json is not None:
        # Parsing the command line takes a third of the time of listing adapters; there is nothing to parse here.
        verb("devices").show(as_json=as_json)
    else:
        try:
            verb("app").app(args=arguments, prog_name="dmlgpu")
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else FAILED
    return OK


def verb(name: str) -> Any:
    """Import the module of a verb when it runs: `dmlgpu ops` needs no GPU driver, `dmlgpu devices` no image library."""
    return importlib.import_module(f"dmlgpu.cli.{name}")
