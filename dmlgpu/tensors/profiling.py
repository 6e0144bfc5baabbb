"""``profile``: times the kernels of operators, compiled functions and PyTorch's tensors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dmlgpu.common.errors import counted
from dmlgpu.runtime.executor import Backend


@dataclass(eq=False, repr=False)
class KernelProfile:
    """Times of kernels; prints as a table.

    Attributes:
        spans: Activities of the host: name, start (seconds of ``time.perf_counter``), duration.
        kernels: Activities of the device: label, start, duration. Kernels of a submission follow each other.
        runs: Number of runs.
    """

    spans: list[tuple[str, float, float]] = field(default_factory=list)
    kernels: list[tuple[str, float, float]] = field(default_factory=list)
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

    def _add(self, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """Record the kernels of one submission with their seconds, and the host time since its start."""
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
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
            for thread, name in ((1, "host"), (2, "device"))
        ]
        events = [
            {"name": name, "ph": "X", "pid": 1, "tid": thread, "ts": (start - begin) * 1e6, "dur": seconds * 1e6}
            for thread, (name, start, seconds) in rows
        ]
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


active: list[KernelProfile] = []
"""Profiles in progress, of all threads: PyTorch computes gradients in a thread of its own."""


@contextmanager
def profile() -> Iterator[KernelProfile]:
    """Time every kernel that operators, compiled functions and PyTorch's tensors run inside, in all threads.

        with dmlgpu.profile() as profile:
            y = layer(x)
        print(profile)

    Each kernel is timed by itself and waited for, so the code inside runs slower. Call the code once before: what
    compiles is not told apart. ONNX sessions have a `profile` of their own.

    Returns:
        Context manager of a KernelProfile, which prints as a table of kernels; ``by_kernel()`` returns totals, and
        ``trace()`` a Chrome trace.

    Examples:
        >>> with dmlgpu.profile() as profile:
        ...     _ = ops.relu(Tensor([-1.0, 2.0]))
        >>> len(profile.kernels)
        1

    See also:
        `dmlgpu.onnx.Session.profile`; `dmlgpu run --profile`.
    """
    recorded = KernelProfile()
    active.append(recorded)
    try:
        yield recorded
    finally:
        active.remove(recorded)


def timed(backend: Backend, label: str, work: Sequence[Any]) -> list[tuple[str, float]]:
    """Run work of an executor; return its kernels with their seconds, or one total if they cannot be distinguished."""
    times = backend.time(work, parts=True)
    if times.parts:
        return [(dispatch.label, seconds) for dispatch, seconds in zip(work, times.parts, strict=True)]
    return [(label, times.seconds)]


def run_timed(backend: Backend, label: str, work: Sequence[Any]) -> None:
    """Run work, and record its kernels in the profiles in progress."""
    start = time.perf_counter()
    kernels = timed(backend, label, work)
    for recorded in tuple(active):
        recorded._add(start, kernels)
