"""A line on standard error when the kernels of a program take long to compile."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from dmlgpu.compiler.program_cache import default_folder
from dmlgpu.runtime.device import Device

SECONDS = 5.0
"""Seconds of compiling, of all calls together, after which the line is printed."""


class CompileNotice:
    """Prints a line once calls that compile kernels have taken `SECONDS`, be they many short calls or a long one."""

    def __init__(self) -> None:
        self._seconds, self._is_over, self._is_compiling = 0.0, False, False

    @contextlib.contextmanager
    def compiling(self, device: Device) -> Iterator[None]:
        """Return a context in which a call compiles kernels for a device; calls within it are part of it."""
        if self._is_over or self._is_compiling or device.adapter.backend == "NumPy":
            yield
            return
        timer = threading.Timer(SECONDS - self._seconds, self._print, (device,))
        timer.daemon = True
        timer.start()
        start, self._is_compiling = time.perf_counter(), True
        try:
            yield
        finally:
            timer.cancel()
            self._seconds += time.perf_counter() - start
            self._is_compiling = False

    def _print(self, device: Device) -> None:
        self._is_over = True
        folder = default_folder()
        where = "" if folder is None else f", kept in {folder}: later processes start faster"
        print(f"dmlgpu: compiling kernels for {device.adapter.short_name}{where}", file=sys.stderr, flush=True)


notice = CompileNotice()
"""The notice of this process."""
