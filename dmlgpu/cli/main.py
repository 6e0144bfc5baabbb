"""Entry point of the ``dmlgpu`` command: standard streams, error messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.common.errors import AdapterNotFound, DmlError, InvalidArgument

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

EXIT_CODES = {
    OK: "success: every result is as expected",
    FAILED: "failure, or a wrong result: an unexpected result in `test`; a regression in `compare` or `bench compare`; "
    "a failed measurement or a wrong result in `bench`; a result of `demo` that differs from NumPy, onnxruntime or "
    "torch; a problem in `doctor`; an extra that is not installed",
    USAGE: "invalid command line, input file or adapter name, or a file that cannot be read or written",
    INTERRUPTED: "interrupted by Ctrl-C",
}
"""Meaning of the exit codes, the same for all commands."""

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "packaging": "cli",
    "distributed": "cluster",
    "matplotlib": "bench",
    "websockets": "browser",
    "segno": "browser",
    "PIL": "demo",
    "skimage": "demo",
    "scipy": "ocr",
    "sklearn": "train",
    "onnx": "onnx",
    "tokenizers": "llm",
    "gguf": "llm",
    "llguidance": "grammar",
    "starlette": "server",
    "uvicorn": "server",
    "torch": "torch",
}
"""The extra that installs an optional module."""

_show_by_python = warnings.showwarning

_PLAIN = {
    (name, *option): (name, bool(option)) for name in ("devices", "doctor", "ops") for option in ((), ("--json",))
}
"""Command lines that need no parser: the command, and whether it prints JSON."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Words after the name of the command; None takes ``sys.argv``.
    """
    prepare_streams()
    warnings.showwarning = _show_warning
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        flush_output()
        return code
    except (DmlError, OSError) as error:
        with contextlib.suppress(OSError):
            flush_output()
        if "--debug" in arguments:
            raise
        print(f"dmlgpu: {_describe(error)}", file=sys.stderr)
        return USAGE if isinstance(error, InvalidArgument | AdapterNotFound | OSError) else FAILED
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"dmlgpu: {error.name} is not installed; install it with: pip install 'dmlgpu[{extra}]'", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning of dmlgpu as one line; others as Python does."""
    if category.__module__.startswith("dmlgpu."):
        print(f"dmlgpu: {message}", file=sys.stderr)
    else:
        _show_by_python(message, category, *place, **more)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if tuple(arguments) in _PLAIN:
        # Importing the parser takes as long as the command, and `doctor` must run without it.
        name, as_json = _PLAIN[tuple(arguments)]
        return FAILED if verb(name).show(as_json=as_json) is False else OK
    try:
        verb("app").app(args=arguments, prog_name="dmlgpu")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return OK


def invocation() -> list[str]:
    """Return the words that started this program: ``dmlgpu``, ``python -m dmlgpu``, or the path of the executable if
    ``dmlgpu`` on the PATH is another one."""
    words = list(sys.orig_argv)
    if "-m" in words[:-1] and words[words.index("-m") + 1] == "dmlgpu":
        return words[: words.index("-m") + 2]
    program = Path(sys.argv[0])
    if program.stem != "dmlgpu":  # called from another program
        return ["dmlgpu"]
    on_path = shutil.which("dmlgpu")
    is_on_path = on_path is not None and Path(on_path).resolve() == program.resolve()
    return ["dmlgpu" if is_on_path else str(program.absolute())]


def verb(name: str) -> Any:
    """Import the module of a command when it runs: `dmlgpu ops` needs no GPU driver, `dmlgpu devices` no image
    library."""
    return importlib.import_module(f"dmlgpu.cli.{name}")


_OUTPUT, _ERRORS = 1, 2


def prepare_streams() -> None:
    """Make the standard streams of this process safe to print to. Replaced streams are left alone.

    Closed descriptors are opened on the null device, so that the next opened file (of a driver, for example) does not
    receive the output. Characters that the encoding lacks are escaped with backslashes.
    """
    for descriptor in (0, _OUTPUT, _ERRORS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, this one
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_OUTPUT, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_ERRORS, sys.stderr)


def flush_output() -> None:
    """Flush standard output.

    Raises:
        OSError: If that fails. The output is discarded, so that Python does not fail again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        raise


class _Output(io.FileIO):
    """File of a standard stream that ignores broken pipes."""

    def write(self, data: Any, /) -> int:
        """Write bytes and return their count."""
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) or self.fileno() == _ERRORS:
                return len(data)
            error.filename = "standard output"
            raise


def _stream(descriptor: int, stream: TextIO | None) -> TextIO:
    """Return the replacement of a stream; None stands for one that was closed when Python started."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            return stream
    encoding = "utf-8" if stream is None else stream.encoding
    file = io.BufferedWriter(_Output(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=descriptor == _ERRORS)
