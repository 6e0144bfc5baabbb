"""Compare the speed of two functions on a machine whose speed drifts.

A and B run interleaved, round by round, so that a slow minute affects both. Each round gives a ratio of times; the
result is the median ratio with a confidence interval of at least 90 %.

The interval is distribution-free: it lies between two order statistics of the ratios. A median is below the k-th
smallest of n independent values exactly if fewer than k of them fall below it, which has the probability P(Binomial(n,
1/2) < k); k is the largest for which both ends together leave at most 10 %. With 11 rounds that is the 3rd smallest and
the 3rd largest (93.5 %).
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MINIMUM_ROUNDS = 11
CONFIDENCE = 0.9


@dataclass(frozen=True)
class Ratio:
    """Time of A divided by time of B.

    Attributes:
        median: Median of the ratios of the rounds.
        low, high: Ends of its 90 % confidence interval.
        rounds: Number of rounds.
        a_seconds, b_seconds: Median time of one call of each.
    """

    median: float
    low: float
    high: float
    rounds: int
    a_seconds: float
    b_seconds: float

    def meets(self, *, at_least: float | None = None, at_most: float | None = None) -> bool:
        """Return whether the confidence interval reaches a target. Exactly one bound is passed.

        Raises:
            ValueError: If no bound or both are passed.
        """
        if (at_least is None) == (at_most is None):
            raise ValueError("Ratio.meets: give exactly one of at_least and at_most")
        return self.high >= at_least if at_least is not None else self.low <= at_most  # type: ignore[operator]

    def __str__(self) -> str:
        a, b = duration(self.a_seconds), duration(self.b_seconds)
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}] ({a} / {b}, {self.rounds} rounds)"


def ratio(
    a: Callable[[int], object],
    b: Callable[[int], object],
    rounds: int = MINIMUM_ROUNDS,
    *,
    calls: int = 1,
    warm: int = 2,
    rest: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Measure the time of `a` divided by the time of `b`.

    A target such as "at least 0.8 of the speed of a hand-written kernel" is ``ratio(hand_written,
    ours).meets(at_least=0.8)``.

    Args:
        a, b: Functions called with a running number, the same for both, which selects inputs, so that no call finds its
            data in a cache. Each must wait for its work.
        rounds: At least 11. A runs first in even rounds, B in odd ones.
        calls: Calls per measurement, for work that is short compared to the clock's resolution.
        warm: Number of unmeasured calls of each beforehand.
        rest: Seconds of sleep before each measurement, since threads of a runtime that keep spinning after a call, as
            onnxruntime's do, would take CPU time from the other.
        clock: Returns seconds.

    Raises:
        ValueError: If `rounds` is below 11 or `calls` below 1.
    """
    if rounds < MINIMUM_ROUNDS:
        raise ValueError(f"ratio: rounds must be at least {MINIMUM_ROUNDS}, got {rounds}")
    if calls < 1:
        raise ValueError(f"ratio: calls must be at least 1, got {calls}")
    for index in range(warm):
        a(index)
        b(index)

    def timed(work: Callable[[int], object], first: int) -> float:
        if rest:
            time.sleep(rest)
        start = clock()
        for index in range(first, first + calls):
            work(index)
        return (clock() - start) / calls

    a_times: list[float] = []
    b_times: list[float] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for index in range(rounds):
            first = warm + index * calls
            order = ((a, a_times), (b, b_times))
            for work, times in order if index % 2 == 0 else reversed(order):
                times.append(timed(work, first))
    finally:
        if collecting:
            gc.enable()
    return summarize(a_times, b_times)


def summarize(a_times: Sequence[float], b_times: Sequence[float]) -> Ratio:
    """Return the ratio of paired times in seconds, one pair per round."""
    ratios = sorted(a / b for a, b in zip(a_times, b_times, strict=True))
    rank = interval_rank(len(ratios))
    return Ratio(
        statistics.median(ratios),
        ratios[rank - 1],
        ratios[-rank],
        len(ratios),
        statistics.median(a_times),
        statistics.median(b_times),
    )


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Return the median of values and the ends of its confidence interval; their range if there are too few values."""
    ordered = sorted(values)
    rank = interval_rank(len(ordered), confidence)
    return statistics.median(ordered), ordered[rank - 1], ordered[-rank]


def interval_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """Return the largest k for which the k-th smallest to the k-th largest of ``count`` values cover the median with
    this confidence.

    1 if even the whole range does not (fewer than 5 values at 90 %).
    """
    rank, below = 1, 1.0
    while True:
        below += math.comb(count, rank)
        if 2 * below / 2**count > 1 - confidence:
            return rank
        rank += 1


def duration(seconds: float) -> str:
    """Format seconds: ``1.2 s``, ``3.4 ms``, ``5.6 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
