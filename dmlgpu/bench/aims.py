"""Targets of suite rows: a fraction of the ceiling, a ratio to NumPy, the choice of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlgpu.bench.ratios import MINIMUM_ROUNDS, summarize
from dmlgpu.bench.records import BenchRun, Measurement
from dmlgpu.bench.scaling import NUMPY
from dmlgpu.common.errors import ModelError

SHARE, AGAINST_NUMPY, CHOICE = "share", "numpy", "choice"
KINDS: Mapping[str, str] = {
    SHARE: "share of the ceiling",
    AGAINST_NUMPY: "NumPy's time / ours",
    CHOICE: "fastest schedule's time / the choice's",
}
"""Kinds of targets; each is a minimum."""


@dataclass(frozen=True)
class Aim:
    """A target of a row on one adapter.

    Attributes:
        name: Name of the row.
        adapter: Name of the adapter.
        kind: One of KINDS.
        target: Minimum.
        measured: Measured value.
        best: The more favorable end of the confidence interval.
        rounds: Number of rounds.
    """

    name: str
    adapter: str
    kind: str
    target: float
    measured: float
    best: float
    rounds: int

    @property
    def is_met(self) -> bool:
        """Whether the confidence interval reaches the target, or there are too few rounds to tell."""
        return self.rounds < MINIMUM_ROUNDS or self.best >= self.target

    def cells(self) -> list[str]:
        """Return a row of the table."""
        few = "" if self.rounds >= MINIMUM_ROUNDS else f"{self.rounds} rounds are too few"
        verdict = few or ("met" if self.is_met else "missed")
        return [self.name, self.adapter, KINDS[self.kind], f"{self.measured:.3g}", f"{self.target:g}", verdict]


def read_aims(name: str, table: Any) -> dict[str, float]:
    """Return the targets in the table ``aims`` of a suite's row.

    Raises:
        ModelError: If it is not a table of positive numbers by KINDS.
    """
    numbers = table.values() if isinstance(table, dict) else ()
    if not isinstance(table, dict) or not all(
        not isinstance(number, bool) and isinstance(number, int | float) and number > 0 for number in numbers
    ):
        raise ModelError(f"row {name!r}: aims", f"must be a table of positive numbers, got {table!r}")
    for key in table:
        if key not in KINDS:
            raise ModelError(f"row {name!r}: aims", f"must have keys of {', '.join(KINDS)}, got {key!r}")
    return {key: float(value) for key, value in table.items()}


def aims_of(run: BenchRun) -> list[Aim]:
    """Return the targets of a run with their measured values; targets without measurements are omitted."""
    aims = []
    for name, least_by_kind in run.facts.get("aims", {}).items():
        rows = [
            measurement
            for measurement in run.measurements
            if measurement.name == name and measurement.status == "measured" and measurement.median
        ]
        for ours in (row for row in rows if not row.schedule and row.adapter in run.facts["adapters"]):
            for kind, minimum in least_by_kind.items():
                values = _COMPUTED[kind](ours, rows)
                if values is not None:
                    aims.append(Aim(name, ours.adapter, kind, minimum, *values, len(ours.seconds)))
    return aims


def _share(ours: Measurement, rows: Sequence[Measurement]) -> tuple[float, float] | None:
    if ours.share is None or ours.median is None or ours.ends is None:
        return None
    return ours.share, ours.share * ours.median / ours.ends[0]


def _against_numpy(ours: Measurement, rows: Sequence[Measurement]) -> tuple[float, float] | None:
    """Compare wall-clock times, which determine how long a user waits."""
    other = next((row for row in rows if row.adapter == NUMPY), None)
    if other is None or not other.wall or not ours.wall:
        return None
    ratio = other.wall / ours.wall
    return ratio, ratio * (1 + (other.noise or 0.0)) * (1 + (ours.noise or 0.0))


def _choice(ours: Measurement, rows: Sequence[Measurement]) -> tuple[float, float] | None:
    """Compare paired rounds of schedules. A schedule with wrong results is never the fastest."""
    others = [row for row in rows if row.adapter == ours.adapter and row.check != "wrong"]
    fastest = min(others, key=lambda measurement: measurement.median or 0.0, default=ours)
    rounds = min(len(fastest.seconds), len(ours.seconds))
    ratio = summarize(fastest.seconds[:rounds], ours.seconds[:rounds])
    return ratio.median, ratio.high


_COMPUTED = {SHARE: _share, AGAINST_NUMPY: _against_numpy, CHOICE: _choice}
