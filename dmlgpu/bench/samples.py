"""Measure contestants interleaved, round by round, until confidence intervals are narrow or time is up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dmlgpu.bench.prepared import Sample
from dmlgpu.bench.ratios import MINIMUM_ROUNDS, interval
from dmlgpu.common.errors import DmlError, NotSupported

ROUND_SECONDS = 0.01
"""Minimum duration of a round, so that clock resolution and submission overhead are negligible."""
MAX_CALLS = 512
MIN_ROUNDS = 3
MOSTLY = 0.9
"""Fraction of rounds with valid timestamps above which the other rounds are omitted."""


@dataclass(frozen=True)
class Patience:
    """Stopping rule.

    Attributes:
        precision: Half-width of a confidence interval, relative to the median, that is narrow enough.
        budget: Seconds per contestant.
    """

    precision: float = 0.03
    budget: float = 5.0


class Contestant(Protocol):
    """Computes a workload: an adapter under a schedule, or a peer."""

    @property
    def adapter(self) -> str:
        """Name of the adapter."""

    @property
    def schedule(self) -> str:
        """Requested schedule; empty for the default choice."""

    def prepare(self) -> dict[str, Any]:
        """Prepare the workload; return facts as ``Readiness.to_json``.

        Raises:
            NotSupported: If the adapter lacks a required feature.
            DmlError: If preparation fails.
        """

    def round(self, calls: int) -> Sample:
        """Run the workload a number of times; return the time per run.

        Raises:
            DmlError: If it fails to run.
        """

    def close(self) -> None:
        """Release the resources of the contestant."""


@dataclass
class ContestantSamples:
    """Samples of a contestant.

    Attributes:
        contestant: The contestant.
        status: ``measured``, ``refused`` if the adapter lacks something, or ``failed``.
        message: Reason of the status.
        readiness: Facts from preparation, as ``Readiness.to_json``; empty if it failed.
        calls: Dispatches per round.
        samples: One per round.
    """

    contestant: Contestant
    status: str = "measured"
    message: str = ""
    readiness: dict[str, Any] = field(default_factory=dict)
    calls: int = 1
    samples: list[Sample] = field(default_factory=list)

    @property
    def source(self) -> str:
        """Source of times: ``gpu``, or ``wall clock`` if most rounds have no timestamps."""
        timed = sum(sample.gpu is not None for sample in self.samples)
        return "gpu" if self.samples and timed >= MOSTLY * len(self.samples) else "wall clock"

    @property
    def seconds(self) -> list[float]:
        """Seconds per dispatch, one per round with a valid time."""
        if self.source == "gpu":
            return [sample.gpu for sample in self.samples if sample.gpu is not None]
        return [sample.wall for sample in self.samples]

    def fail(self, error: DmlError) -> None:
        """Record an error; nothing more is measured."""
        self.status = "refused" if isinstance(error, NotSupported) else "failed"
        self.message = str(error)

    def is_narrow(self, precision: float) -> bool:
        """Return whether the confidence interval is narrow enough."""
        return len(self.seconds) >= MINIMUM_ROUNDS and noise(self.seconds) <= precision


def noise(seconds: Sequence[float]) -> float:
    """Return the half-width of the confidence interval, relative to the median."""
    median, low, high = interval(seconds)
    return (high - low) / 2 / median if median else 0.0


def drift(seconds: Sequence[float]) -> float:
    """Return the relative slowdown of the last third of times compared to the first; 0 for fewer than six."""
    third = len(seconds) // 3
    first = statistics.median(seconds[:third]) if third > 1 else 0.0
    return statistics.median(seconds[-third:]) / first - 1 if first else 0.0


def measure(
    contestants: Sequence[Contestant],
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] = lambda text: None,
) -> list[ContestantSamples]:
    """Prepare contestants, warm them up, and measure them interleaved. A failure does not affect the others.

    Args:
        contestants: Contestants of one workload.
        patience: When to stop.
        clock: Returns seconds.
        tell: Called with the current activity.
    """
    measured = [ContestantSamples(contestant) for contestant in contestants]
    for entry in measured:
        where = " ".join(filter(None, (entry.contestant.adapter, entry.contestant.schedule)))
        tell(f"preparing on {where}")
        try:
            entry.readiness = entry.contestant.prepare()
            _warm_up(entry, patience)
        except DmlError as error:
            entry.fail(error)
    start, index = clock(), 0
    end = patience.budget * len(measured)
    while active := [entry for entry in measured if entry.status == "measured"]:
        if index >= MIN_ROUNDS and clock() - start >= end:
            break
        first = index % len(active)
        for entry in (*active[first:], *active[:first]):
            try:
                entry.samples.append(entry.contestant.round(entry.calls))
            except DmlError as error:
                entry.fail(error)
        index += 1
        tell(f"round {index}")
        if all(entry.is_narrow(patience.precision) for entry in active if entry.status == "measured"):
            break
    for entry in measured:
        entry.contestant.close()
    return measured


def _warm_up(measured: ContestantSamples, patience: Patience) -> None:
    """Run a contestant; determine the dispatches per round."""
    seconds = max(measured.contestant.round(1).wall, 1e-7)
    if seconds < ROUND_SECONDS:
        measured.calls = max(1, min(MAX_CALLS, round(ROUND_SECONDS / seconds)))
        seconds = max(measured.contestant.round(measured.calls).wall, 1e-7)
        measured.calls = max(1, min(MAX_CALLS, round(ROUND_SECONDS / seconds)))
    if seconds < patience.budget / 10:
        measured.contestant.round(measured.calls)
