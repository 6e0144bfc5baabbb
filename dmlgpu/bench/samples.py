"""Contestants measured in turn, round by round, until their intervals are narrow or the time is over."""

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
"""What a round takes at least, so that clocks tell rounds apart and submitting costs little beside them."""
MOST_CALLS = 512
FEWEST_ROUNDS = 3
MOSTLY = 0.9
"""The share of rounds that must have timestamps which can be right, for the others to be omitted."""


@dataclass(frozen=True)
class Patience:
    """When to stop.

    Attributes:
        precision: Half the width of an interval, as a share of the median, that is narrow enough.
        budget: Seconds for each contestant.
    """

    precision: float = 0.03
    budget: float = 5.0


class Contestant(Protocol):
    """Something that computes a workload somewhere: an adapter, under a schedule; a peer."""

    @property
    def adapter(self) -> str:
        """What its adapter is called."""

    @property
    def schedule(self) -> str:
        """The schedule that is asked for; empty if it is chosen."""

    def prepare(self) -> dict[str, Any]:
        """Make it ready and say what is known of it, as ``Readiness.to_json`` has it.

        Raises:
            NotSupported: If the adapter lacks what it needs.
            DmlError: If it cannot be made ready.
        """

    def round(self, calls: int) -> Sample:
        """Run it so many times, and say how long one took.

        Raises:
            DmlError: If it cannot be run.
        """

    def close(self) -> None:
        """Give back what it holds."""


@dataclass
class Measured:
    """What came of a contestant.

    Attributes:
        contestant: it.
        status: ``measured``, ``refused`` where the adapter lacks something, or ``failed``.
        message: Why so.
        readiness: What is known from before, as ``Readiness.to_json`` has it; empty if it could not be made ready.
        calls: Dispatches of a round.
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
        """Where times come from: ``gpu`` for the device's timestamps, or ``wall clock`` where most rounds have none."""
        timed = sum(sample.gpu is not None for sample in self.samples)
        return "gpu" if self.samples and timed >= MOSTLY * len(self.samples) else "wall clock"

    @property
    def seconds(self) -> list[float]:
        """Seconds per dispatch, a number per round; of the device's times those that there are."""
        if self.source == "gpu":
            return [sample.gpu for sample in self.samples if sample.gpu is not None]
        return [sample.wall for sample in self.samples]

    def fail(self, error: DmlError) -> None:
        """Take note of an error: nothing more is measured."""
        self.status = "refused" if isinstance(error, NotSupported) else "failed"
        self.message = str(error)

    def is_narrow(self, precision: float) -> bool:
        """Return whether the interval is narrow enough."""
        return len(self.seconds) >= MINIMUM_ROUNDS and noise(self.seconds) <= precision


def noise(seconds: Sequence[float]) -> float:
    """Return half the width of the median's interval, as a share of the median."""
    median, low, high = interval(seconds)
    return (high - low) / 2 / median if median else 0.0


def drift(seconds: Sequence[float]) -> float:
    """Return by what share the last third of some times is slower than the first; 0 for fewer than six."""
    third = len(seconds) // 3
    first = statistics.median(seconds[:third]) if third > 1 else 0.0
    return statistics.median(seconds[-third:]) / first - 1 if first else 0.0


def measure(
    contestants: Sequence[Contestant],
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Measured]:
    """Make contestants ready, warm them up, and measure them in turn; who fails leaves the others alone.

    Args:
        contestants: Of one workload.
        patience: When to stop.
        clock: Returns seconds.
        tell: Is told what is being done.
    """
    measured = [Measured(contestant) for contestant in contestants]
    for entry in measured:
        where = " ".join(filter(None, (entry.contestant.adapter, entry.contestant.schedule)))
        tell(f"preparing on {where}")
        try:
            entry.readiness = entry.contestant.prepare()
            _warm_up(entry, patience)
        except DmlError as error:
            entry.fail(error)
    start, number = clock(), 0
    end = patience.budget * len(measured)
    while active := [entry for entry in measured if entry.status == "measured"]:
        if number >= FEWEST_ROUNDS and clock() - start >= end:
            break
        first = number % len(active)
        for entry in (*active[first:], *active[:first]):
            try:
                entry.samples.append(entry.contestant.round(entry.calls))
            except DmlError as error:
                entry.fail(error)
        number += 1
        tell(f"round {number}")
        if all(entry.is_narrow(patience.precision) for entry in active if entry.status == "measured"):
            break
    for entry in measured:
        entry.contestant.close()
    return measured


def _warm_up(measured: Measured, patience: Patience) -> None:
    """Run a contestant, and find how many dispatches make a round."""
    seconds = max(measured.contestant.round(1).wall, 1e-7)
    if seconds < ROUND_SECONDS:
        measured.calls = max(1, min(MOST_CALLS, round(ROUND_SECONDS / seconds)))
        seconds = max(measured.contestant.round(measured.calls).wall, 1e-7)
        measured.calls = max(1, min(MOST_CALLS, round(ROUND_SECONDS / seconds)))
    if seconds < patience.budget / 10:
        measured.contestant.round(measured.calls)
