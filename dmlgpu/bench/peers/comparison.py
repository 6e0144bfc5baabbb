"""Times of peers beside ours: for each row the best peer and the ratio to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dmlgpu.bench.ratios import MINIMUM_ROUNDS, Ratio, summarize
from dmlgpu.bench.records import BenchRun, Measurement
from dmlgpu.bench.scaling import NUMPY

FAILED, WRONG, MISSING = "x", "W", "-"
"""What stands for a time: of what fails, of a wrong result, of what is not offered or was not measured."""


@dataclass(frozen=True)
class PeerComparison:
    """A row of a suite.

    Attributes:
        name: the row's.
        ours: on one adapter.
        theirs: of peers, in the order of the columns; None for those that were not measured.
        best: the fastest peer on a GPU whose results are not wrong; None where there is none.
        ratio: of the best peer's time to ours, round by round; None where there is no such peer.
        wanted: the ratio that is aimed at; 0 for none.
    """

    name: str
    ours: Measurement
    theirs: tuple[Measurement | None, ...]
    best: Measurement | None
    ratio: Ratio | None
    wanted: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the ratio's interval reaches what is wanted; also where there is none, or rounds are too few."""
        few = self.ratio is None or self.ratio.rounds < MINIMUM_ROUNDS
        return few or self.ratio.meets(at_least=self.wanted)  # type: ignore[union-attr]

    def cells(self) -> list[str]:
        """Return a line of the table: times in ms, the best peer, the ratio with its interval, what is wanted, our
        share."""
        times = [time_text(measurement) for measurement in (self.ours, *self.theirs)]
        share = "" if self.ours.share is None else f"{100 * self.ours.share:.0f} % {self.ours.bound_by}"
        aim = f"{self.wanted:g}{'' if self.is_met else ', missed'}" if self.wanted else ""
        best = "" if self.best is None else self.best.adapter
        return [self.name, *times, best, ratio_text(self.ratio), aim, share]


def time_text(measurement: Measurement | None) -> str:
    """Milliseconds, or what stands for them."""
    if measurement is None or measurement.status == "refused":
        return MISSING
    if measurement.status == "failed" or measurement.median is None:
        return FAILED
    return WRONG if measurement.check == "wrong" else f"{1e3 * measurement.median:.3g}"


def ratio_text(ratio: Ratio | None) -> str:
    """The ratio and its interval; without one where there are too few rounds."""
    if ratio is None:
        return ""
    ends = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.rounds >= MINIMUM_ROUNDS else f" ({ratio.rounds} rounds)"
    return f"{ratio.median:.2f}{ends}"


def compare_peers(run: BenchRun) -> list[PeerComparison]:
    """Return how each of our measurements stands beside those of the peers in the same run."""
    peers = run.facts.get("peers", {})
    columns = (*peers, NUMPY)
    counted = [name for name, candidate in peers.items() if candidate["is_gpu"]]
    theirs = {
        (measurement.name, measurement.adapter): measurement
        for measurement in run.measurements
        if measurement.adapter in columns
    }
    comparisons = []
    for ours in run.measurements:
        if ours.adapter in columns or not any((ours.name, name) in theirs for name in peers):
            continue
        row = tuple(theirs.get((ours.name, name)) for name in columns)
        good = [
            candidate
            for candidate in row
            if candidate is not None and candidate.adapter in counted and _is_good(candidate)
        ]
        best = min(good, key=lambda candidate: candidate.median or 0.0, default=None)
        ratio = None
        if best is not None and _is_good(ours):
            rounds = min(len(best.seconds), len(ours.seconds))
            ratio = summarize(best.seconds[:rounds], ours.seconds[:rounds])
        comparisons.append(
            PeerComparison(ours.name, ours, row, best, ratio, run.facts.get("wanted", {}).get(ours.name, 0.0))
        )
    return comparisons


def _is_good(measurement: Measurement) -> bool:
    return measurement.status == "measured" and bool(measurement.median) and measurement.check != "wrong"


def summary(comparisons: Iterable[PeerComparison]) -> str:
    """Say of how many rows we are first, and the geometric mean of the ratios; nothing without any."""
    ratios = [comparison.ratio for comparison in comparisons if comparison.ratio is not None]
    if not ratios:
        return ""
    first = sum(ratio.low > 1 for ratio in ratios)
    behind = sum(ratio.high < 1 for ratio in ratios)
    mean = math.exp(sum(math.log(ratio.median) for ratio in ratios) / len(ratios))
    return (
        f"{len(ratios)} rows: faster than the best peer on {first}, slower on {behind}, a tie on the others;"
        f" geometric mean of the ratios {mean:.2f}"
    )
