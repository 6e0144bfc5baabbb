"""Observers of runs: compiled segments and kernel times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dmlgpu.tensors.profiling import KernelProfile

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.segments import Segment


class RunObserver(Protocol):
    """Receives each event of a model's segments once."""

    times: bool
    """Whether kernels are timed, each by itself, which makes runs slower."""

    def compiling(self, segment: Segment) -> AbstractContextManager[Any]:
        """Return a context in which a segment is compiled; an exception may end it."""

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        """Handle that a segment was compiled and initialized; `begun` is a time of ``time.perf_counter``."""

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """Handle that a segment ran, given its kernels in order with their seconds. Called only if ``times`` is set."""


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


@dataclass(eq=False, repr=False)
class RunProfile(KernelProfile):
    """Records the runs of a model; prints as a table of kernels.

    Attributes:
        segments: Segments that ran, once per execution.
    """

    times: bool = True
    segments: list[Segment] = field(default_factory=list)

    def compiling(self, segment: Segment) -> AbstractContextManager[Any]:
        """Return a context that does nothing: ``compiled`` reports the duration."""
        return nullcontext()

    def compiled(self, segment: Segment, start: float, seconds: float) -> None:
        """Record a span."""
        self.spans.append((f"compile {segment.node_count} nodes", start, seconds))

    def ran(self, segment: Segment, start: float, kernels: Sequence[tuple[str, float]]) -> None:
        """Record a span, the kernels and the segment."""
        self.segments.append(segment)
        self._add(start, kernels)
