"""Progress of a driver that compiles the kernels of a program, reported to a callback."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.compiler.program import RenderedKernel


@dataclass(frozen=True)
class KernelProgress:
    """Number of kernels of a program that the driver has compiled.

    Attributes:
        done, total: Numbers of kernels that had no pipeline.
        seconds: Since the first of them.
        remaining: Estimated seconds for the others, by the lengths of their sources.
    """

    done: int
    total: int
    seconds: float
    remaining: float

    def __str__(self) -> str:
        """Return ``12 of 63 kernels, about 4.1 s left``."""
        return f"{self.done} of {self.total} kernels, about {self.remaining:.1f} s left"


Report: TypeAlias = Callable[[KernelProgress], object]

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextlib.contextmanager
def reported_to(report: Report) -> Iterator[None]:
    """Report each kernel that this thread's programs compile in the context."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def counter(kernels: Sequence[RenderedKernel]) -> Callable[[RenderedKernel], None] | None:
    """Return a thread-safe callback for each compiled kernel; None without a report.

    It reports in the thread that calls this.
    """
    report = _REPORT.get()
    if report is None:
        return None
    characters, start = sum(len(kernel.wgsl) for kernel in kernels), time.perf_counter()
    done: list[int] = []
    caller = threading.get_ident()

    def compiled(kernel: RenderedKernel) -> None:
        done.append(len(kernel.wgsl))
        if threading.get_ident() != caller:
            return
        seconds = time.perf_counter() - start
        report(KernelProgress(len(done), len(kernels), seconds, seconds * (characters / sum(done) - 1)))

    return compiled
