"""How long submitted work takes, on the host and on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dmlgpu.runtime.executor import Backend, Dispatch


@dataclass(frozen=True)
class Duration:
    """How long work took.

    Attributes:
        host: seconds to record, submit and wait.
        device: seconds between the device's timestamps before and after it; None where it has none.
    """

    host: float
    device: float | None


def measure(backend: Backend, *work: Sequence[Dispatch]) -> Duration:
    """Run work in order as one submission, wait for it, and say how long it took.

    Raises: as ``Backend.submit``.
    """
    timing = backend.time(tuple(chain.from_iterable(work)))
    return Duration(timing.host_seconds, timing.seconds if timing.source == "gpu" else None)
