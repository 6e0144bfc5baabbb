"""Run a script that imports the module of another library, which dmlgpu replaces."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from dmlgpu.runtime.adapters import ADAPTER_VARIABLE

NO_SCRIPT = 2
"""Python's exit code if a script cannot be read."""


def run_script(
    package: str, description: str, module: str, load: Callable[[], ModuleType], arguments: Sequence[str] | None
) -> int:
    """Run a script as Python does; an exception of the script ends the process as Python's would.

    Args:
        package: Package after ``python -m`` on the command line, for messages.
        description: Sentence that ``--help`` prints.
        module: Name under which the script imports the module.
        load: Returns the module; called once the adapter is chosen.
        arguments: Command-line arguments; None takes ``sys.argv``.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=description)
    parser.add_argument("-a", "--adapter", help=f"part of an adapter's name, or its index; sets {ADAPTER_VARIABLE}")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script finds in sys.argv")
    options = parser.parse_args(arguments)
    if options.adapter is not None:
        os.environ[ADAPTER_VARIABLE] = options.adapter
    path = os.path.abspath(options.script)
    loader = SourceFileLoader("__main__", path)
    try:
        source = loader.get_data(path)
    except OSError as error:
        print(f"{parser.prog}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return NO_SCRIPT
    script = _main_module(path, loader)
    sys.argv[:] = [options.script, *options.arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.modules[module] = load()
    sys.modules["__main__"] = script
    _execute(source, path, script)
    return 0


def _main_module(path: str, loader: SourceFileLoader) -> ModuleType:
    """Return the script's module with the attributes that Python sets."""
    module = ModuleType("__main__")
    vars(module).update(
        __annotations__={}, __builtins__=sys.modules["builtins"], __cached__=None, __file__=path, __loader__=loader
    )
    return module


def _execute(source: bytes, path: str, module: ModuleType) -> None:
    """Execute a script; tracebacks of its exceptions omit the frames of the runner."""
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except SystemExit:
        raise
    except BaseException as error:
        own = error.__traceback__
        _hook(error, own.tb_next if own is not None else None)
        raise


def _hook(error: BaseException, traceback: TracebackType | None) -> None:
    """Make ``sys.excepthook`` see an error with this traceback."""
    hook = sys.excepthook

    def shortened(kind: type[BaseException], raised: BaseException, whole: TracebackType | None) -> None:
        if raised is error:
            raised.__traceback__ = whole = traceback
        hook(kind, raised, whole)

    sys.excepthook = shortened
