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
    OK: "done, and every result is as it should be",
    FAILED: "it could not be done, or a result is wrong: a case of `test` is not as expected, `compare` finds "
    "something worse, `bench` what it cannot measure or what is computed wrong, `bench compare` something slower, "
    "`demo` a result that differs from NumPy's, onnxruntime's or torch's, `doctor` a problem; an extra is not "
    "installed",
    USAGE: "the command line, an input file or an adapter's name is wrong, or a file cannot be read or written",
    INTERRUPTED: "interrupted from the keyboard (Ctrl-C)",
}
"""What the exit codes of all verbs mean."""

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
}
"""Which extra brings a module that may be missing."""

_show_by_python = warnings.showwarning

_PLAIN = {
    (name, *option): (name, bool(option)) for name in ("devices", "doctor", "ops") for option in ((), ("--json",))
}
"""Command lines in which there is nothing to parse: the verb, and whether it prints JSON."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: as after the command's name; None takes the process's own.
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
        print(f"dmlgpu: this needs {error.name}; install it with: pip install 'dmlgpu[{extra}]'", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning of ours as a sentence; others with the place in the code that they come from."""
    if category.__module__.startswith("dmlgpu."):
        print(f"dmlgpu: {message}", file=sys.stderr)
    else:
        _show_by_python(message, category, *place, **more)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: Sequence[str]) -> int:
    """Run the verb; returns the exit code."""
    if tuple(arguments) in _PLAIN:
        # Loading the parser takes as long as the rest of these; and `doctor` must run where it is missing.
        name, as_json = _PLAIN[tuple(arguments)]
        return FAILED if verb(name).show(as_json=as_json) is False else OK
    try:
        verb("app").app(args=arguments, prog_name="dmlgpu")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return OK


def invocation() -> list[str]:
    """Return the words that start this program as it was started: ``dmlgpu``, ``python -m dmlgpu``, or the path of the
    executable where the shell would find another one, or none, under its name."""
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
    """Import the module of a verb when it runs: `dmlgpu ops` needs no GPU driver, `dmlgpu devices` no image library."""
    return importlib.import_module(f"dmlgpu.cli.{name}")


_OUTPUT, _ERRORS = 1, 2


def prepare_streams() -> None:
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


def flush_output() -> None:
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
