"""Observers of runs: compiled segments and kernel times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dmlgpu.common.errors import counted

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.segments import Segment


class RunObserver(Protocol):
    """Gets events of the segments of a model, each once."""

    times: bool
    """Whether kernels are timed, each by itself, which makes runs slower."""

    def compiling(self, segment: Segment) -> None:
        """A segment is about to be compiled."""

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        """A segment was compiled and initialized; `begun` is a time of ``time.perf_counter``."""

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """A segment ran; its kernels in order, each with its seconds. Called only if ``times`` is set."""


_WATCH: ContextVar[RunObserver | None] = ContextVar("watch", default=None)


def current() -> RunObserver | None:
    """Return the observer of this thread, or None."""
    return _WATCH.get()


@contextmanager
def watched_by(watch: RunObserver | None) -> Iterator[None]:
    """Report runs in this thread to an observer; None disables it."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def timed(device: Any, label: str, work: Sequence[Any]) -> list[tuple[str, float]]:
    """Run work of an executor; return its kernels with their seconds, or one total if they cannot be distinguished."""
    times = device.backend.time(work, parts=True)
    if times.parts:
        return [(dispatch.label, seconds) for dispatch, seconds in zip(work, times.parts, strict=True)]
    return [(label, times.seconds)]


@dataclass(eq=False, repr=False)
class RunProfile:
    """Records the runs of a model; prints as a table of kernels.

    Attributes:
        spans: Activities of the host: name, start (seconds of ``time.perf_counter``), duration.
        kernels: Activities of the device: label, start, duration. Kernels of a segment follow each other.
        segments: Segments that ran, once per execution.
        runs: Number of runs.
    """

    times: bool = True
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    kernels: list[tuple[str, float, float]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    runs: int = 1

    def __repr__(self) -> str:
        rows = self.by_kernel().items()
        total = sum(seconds for _, (_, seconds) in rows)
        what = f"{counted(self.runs, 'run')}: {counted(len(self.kernels), 'kernel')}"
        lines = [f"{what}, {total * 1e3:.3f} ms, each timed separately"]
        lines += [f"{'ms':>10} {'%':>6} {'times':>6}  kernel"] if rows else []
        lines += [
            f"{seconds * 1e3:10.3f} {100 * seconds / (total or 1.0):6.1f} {count:6}  {label}"
            for label, (count, seconds) in rows
        ]
        return "\n".join(lines)

    def compiling(self, segment: Segment) -> None:
        """Do nothing: ``compiled`` reports the duration."""

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        """Record a span."""
        self.spans.append((f"compile {len(segment.graph.nodes)} nodes", start, seconds))

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """Record a span, the kernels and the segment."""
        self.segments.append(segment)
        total = 0.0
        for label, seconds in kernels:
            self.kernels.append((label.removeprefix("graph "), start + total, seconds))
            total += seconds
        self.spans.append((f"run {len(kernels)} kernels", start, time.perf_counter() - start))

    def by_kernel(self) -> dict[str, tuple[int, float]]:
        """Return the count and total seconds of each kernel, the slowest first."""
        totals: dict[str, tuple[int, float]] = {}
        for label, _, seconds in self.kernels:
            count, total = totals.get(label, (0, 0.0))
            totals[label] = count + 1, total + seconds
        return dict(sorted(totals.items(), key=lambda item: -item[1][1]))

    def trace(self) -> dict[str, Any]:
        """Return the profile as a Chrome trace: thread 1 is the host, thread 2 the device."""
        rows = [(1, span) for span in self.spans] + [(2, span) for span in self.kernels]
        begin = min((start for _, (_, start, _) in rows), default=0.0)
        names = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": name}}
            for number, name in ((1, "host"), (2, "device"))
        ]
        events = [
            {"name": name, "ph": "X", "pid": 1, "tid": thread, "ts": (start - begin) * 1e6, "dur": seconds * 1e6}
            for thread, (name, start, seconds) in rows
        ]
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
