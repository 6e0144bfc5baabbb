"""The child process in which seeds run: bounded memory, bounded time, a line of JSON for each event.

    python -m tests.fuzz.child TARGET ADAPTER FIRST COUNT [SECONDS]

Runs the seeds FIRST to FIRST + COUNT - 1 of a target, or as many as SECONDS allow. A line {"seed": S} announces each,
{"finding": ...} says what it found, {"done": S, "calls": ...} ends it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import threading
import time
import warnings
from typing import Any, TextIO

from dmlgpu.common.processes import answer_stream, exit_with_parent
from dmlgpu.runtime.adapters import ADAPTER_VARIABLE
from tests.fuzz.monitor import Monitor
from tests.fuzz.targets import load

ADDRESS_SPACE = 6 << 30
"""Most bytes that a child may map: drivers map two gigabytes before they do anything."""

CALL_LIMIT = 180.0
"""Seconds for one call, on a machine that does other things as well; then the child says where it is, and ends."""

CALL_LIMIT_VARIABLE = "DMLGPU_FUZZ_CALL_LIMIT"
"""Environment variable with another limit."""


def limit_memory() -> None:
    """Let allocations fail that would take the machine's memory."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(target: str, adapter: str, seeds: range, seconds: float, output: TextIO) -> None:
    """Run seeds of a target, as many as the seconds allow."""
    monitor = Monitor(target, adapter)
    _watch_other_exceptions(monitor)
    target_run = load(target).run
    limit = float(os.environ.get(CALL_LIMIT_VARIABLE, CALL_LIMIT))
    errors = sys.stderr  # targets may replace it while they call
    monitor.before_call = lambda: faulthandler.dump_traceback_later(limit, exit=True, file=errors)
    end = time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            break
        _print(output, {"seed": seed})
        monitor.seed, monitor.calls, monitor.refused = seed, 0, 0
        monitor.subject = str
        monitor.findings.clear()
        monitor.counts.clear()
        monitor.before_call()
        try:
            target_run(seed, monitor)
        except Exception as error:  # a target that fails says something, too
            monitor.note_exception(error)
        faulthandler.cancel_dump_traceback_later()
        for finding in monitor.findings:
            _print(output, {"finding": finding.to_json()})
        record = {"done": seed, "calls": monitor.calls, "refused": monitor.refused}
        _print(output, {**record, "counted": monitor.counts} if monitor.counts else record)


def _watch_other_exceptions(monitor: Monitor) -> None:
    """Note exceptions that Python would only print: those of threads, finalizers and callbacks."""

    def note(args: Any) -> None:
        error = args.exc_value
        # A signal may arrive while Python runs a finalizer, where no exception can be raised.
        if error is not None and not isinstance(error, KeyboardInterrupt):
            monitor.note_exception(error)

    sys.unraisablehook = threading.excepthook = note


def _print(output: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=output, flush=True)


def main() -> int:
    """The command."""
    target, adapter, first, count, *seconds = sys.argv[1:]
    if adapter != "gpu":
        os.environ[ADAPTER_VARIABLE] = adapter  # if a device may be omitted
    exit_with_parent()
    faulthandler.enable()
    limit_memory()
    warnings.simplefilter("error", RuntimeWarning)  # NumPy's warnings of overflows
    with answer_stream() as output:
        seeds = range(int(first), int(first) + int(count))
        serve(target, adapter, seeds, float(*seconds or ("inf",)), output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
