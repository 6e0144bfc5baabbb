"""Significant changes between two benchmark runs.

The Mann-Whitney test compares the rounds of a measurement as two samples, independent of their distribution. Chances
are corrected for the number of measurements by Holm's method, so the probability of any false positive stays below
``SIGNIFICANCE``. A significant change must also exceed a threshold, since two runs of the same program differ by
machine state, which no test within a run sees. If a run noticed load or drift, a change is unsure: it is reported but
not counted as a failure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmlgpu.bench.ratios import interval
from dmlgpu.bench.records import BenchRun, Measurement

SIGNIFICANCE = 0.01
THRESHOLD = 0.1


class TimeChangeKind(enum.StrEnum):
    """Kinds of changes, the worst first."""

    WRONG = "wrong"
    LOST = "lost"
    SLOWER = "slower"
    MISSING = "missing"
    UNSURE = "unsure"
    FASTER = "faster"
    NEW = "new"
    SAME = "same"

    @property
    def is_worse(self) -> bool:
        """Whether the change is for the worse."""
        return self in (TimeChangeKind.WRONG, TimeChangeKind.LOST, TimeChangeKind.SLOWER, TimeChangeKind.MISSING)


@dataclass(frozen=True)
class TimeChange:
    """A measurement before and after.

    Attributes:
        kind: Kind of the change.
        before, after: Measurements; None if missing.
        ratio: Time after divided by time before; None if one was not measured.
        low, high: Approximate ends of its interval, from those of both medians.
        chance: Corrected p-value; None if not tested.
    """

    kind: TimeChangeKind
    before: Measurement | None
    after: Measurement | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Workload, adapter, schedule."""
        measurement = self.after or self.before
        assert measurement is not None
        return measurement.key


def compare(
    before: Sequence[BenchRun], after: Sequence[BenchRun], threshold: float = THRESHOLD, alpha: float = SIGNIFICANCE
) -> tuple[TimeChange, ...]:
    """Return the changes of all measurements, the worst first.

    Args:
        before, after: Runs of two files. If a file has a measurement twice, the later one counts.
        threshold: Minimum relative change.
        alpha: Probability of any false positive.
    """
    old, new = _by_key(before), _by_key(after)
    both = [key for key in old if key in new and old[key].seconds and new[key].seconds]
    chances = holm([mann_whitney(old[key].seconds, new[key].seconds) for key in both])
    tested = dict(zip(both, chances, strict=True))
    changes = [
        _change(old.get(key), new.get(key), tested.get(key), threshold, alpha) for key in dict.fromkeys((*old, *new))
    ]
    order = list(TimeChangeKind)
    return tuple(sorted(changes, key=lambda change: (order.index(change.kind), -abs(math.log(change.ratio or 1.0)))))


def _by_key(runs: Sequence[BenchRun]) -> Mapping[tuple[str, str, str], Measurement]:
    return {measurement.key: measurement for run in runs for measurement in run.measurements}


def _change(
    before: Measurement | None, after: Measurement | None, chance: float | None, threshold: float, alpha: float
) -> TimeChange:
    if before is None:
        return TimeChange(TimeChangeKind.NEW, before, after)
    if after is None:
        return TimeChange(TimeChangeKind.MISSING, before, after)
    if after.check == "wrong" and before.check != "wrong":
        return TimeChange(TimeChangeKind.WRONG, before, after)
    if not before.seconds or not after.seconds:
        lost = bool(before.seconds)
        return TimeChange(
            TimeChangeKind.LOST if lost else TimeChangeKind.NEW if after.seconds else TimeChangeKind.SAME, before, after
        )
    (was, was_low, was_high), (now, low, high) = interval(before.seconds), interval(after.seconds)
    if not was_low or not low:  # no clock tells times of nothing
        return TimeChange(TimeChangeKind.SAME, before, after)
    ratio = now / was
    kind = TimeChangeKind.SAME
    if chance is not None and chance < alpha and max(ratio, 1 / ratio) > 1 + threshold:
        kind = TimeChangeKind.SLOWER if ratio > 1 else TimeChangeKind.FASTER
        if before.warnings or after.warnings:
            kind = TimeChangeKind.UNSURE
    return TimeChange(kind, before, after, ratio, low / was_high, high / was_low, chance)


# ---- statistics


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of two samples.

    Exact for samples without ties of at most 20 values together, else by the normal approximation with corrections for
    ties and continuity.
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 1.0
    u, ties = _statistic(first, second)
    u = min(u, n * m - u)
    if not ties and n + m <= 20:
        ways = _counts(n, m)
        return min(1.0, 2 * sum(ways[: math.floor(u) + 1]) / math.comb(n + m, n))
    total = n + m
    tied = sum(count**3 - count for count in ties)
    variance = n * m / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))


def _statistic(first: Sequence[float], second: Sequence[float]) -> tuple[float, list[int]]:
    """Return the number of pairs with the larger value in the first sample (ties count half), and the sizes of ties."""
    values = sorted((*((value, True) for value in first), *((value, False) for value in second)))
    ranks, ties, place = 0.0, [], 0
    while place < len(values):
        end = place
        while end < len(values) and values[end][0] == values[place][0]:
            end += 1
        mean = (place + 1 + end) / 2
        ranks += mean * sum(is_first for _, is_first in values[place:end])
        if end - place > 1:
            ties.append(end - place)
        place = end
    return ranks - len(first) * (len(first) + 1) / 2, ties


def _counts(n: int, m: int) -> list[int]:
    """Return the number of orders of both samples for each value of the statistic."""
    # The coefficients of the Gaussian binomial: products of (1 - q^(m + k)) / (1 - q^k).
    coefficients = [1] + [0] * (n * m)
    for k in range(1, n + 1):
        for value in range(n * m, m + k - 1, -1):
            coefficients[value] -= coefficients[value - m - k]
        for value in range(k, n * m + 1):
            coefficients[value] += coefficients[value - k]
    return coefficients


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method."""
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=lambda place: chances[place])):
        largest = max(largest, min(1.0, chances[place] * (len(chances) - rank)))
        corrected[place] = largest
    return corrected
