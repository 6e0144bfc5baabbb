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
        times = [time_text(one) for one in (self.ours, *self.theirs)]
        share = "" if self.ours.share is None else f"{100 * self.ours.share:.0f} % {self.ours.bound_by}"
        wanted = f"{self.wanted:g}{'' if self.is_met else ', missed'}" if self.wanted else ""
        best = "" if self.best is None else self.best.adapter
        return [self.name, *times, best, ratio_text(self.ratio), wanted, share]


def time_text(one: Measurement | None) -> str:
    """Milliseconds, or what stands for them."""
    if one is None or one.status == "refused":
        return MISSING
    if one.status == "failed" or one.median is None:
        return FAILED
    return WRONG if one.check == "wrong" else f"{1e3 * one.median:.3g}"


def ratio_text(found: Ratio | None) -> str:
    """The ratio and its interval; without one where there are too few rounds."""
    if found is None:
        return ""
    ends = f" [{found.low:.2f}, {found.high:.2f}]" if found.rounds >= MINIMUM_ROUNDS else f" ({found.rounds} rounds)"
    return f"{found.median:.2f}{ends}"


def compare_peers(run: BenchRun) -> list[PeerComparison]:
    """Return how each of our measurements stands beside those of the peers in the same run."""
    peers = run.facts.get("peers", {})
    columns = (*peers, NUMPY)
    counted = [name for name, one in peers.items() if one["is_gpu"]]
    theirs = {(one.name, one.adapter): one for one in run.measurements if one.adapter in columns}
    found = []
    for ours in run.measurements:
        if ours.adapter in columns or not any((ours.name, name) in theirs for name in peers):
            continue
        row = tuple(theirs.get((ours.name, name)) for name in columns)
        good = [one for one in row if one is not None and one.adapter in counted and _is_good(one)]
        best = min(good, key=lambda one: one.median or 0.0, default=None)
        ratio = None
        if best is not None and _is_good(ours):
            rounds = min(len(best.seconds), len(ours.seconds))
            ratio = summarize(best.seconds[:rounds], ours.seconds[:rounds])
        found.append(PeerComparison(ours.name, ours, row, best, ratio, run.facts.get("wanted", {}).get(ours.name, 0.0)))
    return found


def _is_good(one: Measurement) -> bool:
    return one.status == "measured" and bool(one.median) and one.check != "wrong"


def summary(found: Iterable[PeerComparison]) -> str:
    """Say of how many rows we are first, and the geometric mean of the ratios; nothing without any."""
    ratios = [one.ratio for one in found if one.ratio is not None]
    if not ratios:
        return ""
    first = sum(one.low > 1 for one in ratios)
    behind = sum(one.high < 1 for one in ratios)
    mean = math.exp(sum(math.log(one.median) for one in ratios) / len(ratios))
    return (
        f"{len(ratios)} rows: faster than the best peer on {first}, slower on {behind}, a tie on the others;"
        f" geometric mean of the ratios {mean:.2f}"
    )
