"""Charts of function errors by the exponent of the input: a chart per function, a line per adapter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.running.outcome import Outcome, ulp_text

WIDTH, HEIGHT = 300.0, 120.0
"""Size of the plot area, in pixels."""

LINES = 8
"""Number of distinct line styles: colors times dashes of ``report.css``."""

_LINEAR_UP_TO = 4.0
"""Multiple of the tolerance from which the scale is logarithmic."""

_BOUND = re.compile(r"(\d+(?:\.\d+)?) ULP\b")

Point = tuple[float, float]


@dataclass(frozen=True)
class ChartLine:
    """Line of one adapter.

    Attributes:
        run: Index of the run.
        style: Index of the line style, below LINES.
        curve: Exponents of the input and the largest errors there, in ULP.
    """

    run: int
    style: int
    curve: tuple[Point, ...]

    @property
    def distances(self) -> Iterator[float]:
        """The finite errors, and 0."""
        yield 0.0
        yield from (distance for _, distance in self.curve if math.isfinite(distance))


@dataclass(frozen=True)
class Chart:
    """Chart of one function.

    Attributes:
        function: Name of the function.
        bound: Tolerance in ULP; None if it is not a number of ULP.
        lines: One per run that measured the function.
    """

    function: str
    bound: float | None
    lines: tuple[ChartLine, ...]

    @cached_property
    def worst(self) -> float:
        """Largest finite error; infinite ones are drawn at the upper edge."""
        return max(distance for line in self.lines for distance in line.distances)

    @cached_property
    def top(self) -> float:
        """Error at the upper edge."""
        return 1.15 * max(self.worst, self.bound or 0.0, 0.5)

    @property
    def is_logarithmic(self) -> bool:
        """Whether the scale is logarithmic, since errors far exceed the tolerance."""
        return self.worst > _LINEAR_UP_TO * max(self.bound or 0.0, 1.0)

    @cached_property
    def span(self) -> Point:
        """Exponents at the left and right edge."""
        exponents = [exponent for line in self.lines for exponent, _ in line.curve]
        return min(exponents), max(*exponents, min(exponents) + 1)

    def across(self, exponent: float) -> float:
        """Return the horizontal position of an exponent."""
        first, last = self.span
        return round(WIDTH * (exponent - first) / (last - first), 1)

    def down(self, distance: float) -> float:
        """Return the vertical position of an error."""
        part = math.log1p(distance) / math.log1p(self.top) if self.is_logarithmic else distance / self.top
        return round(HEIGHT * (1 - part), 1) if math.isfinite(part) else 0.0

    def path(self, line: ChartLine) -> str:
        """Return a line as the points of a polyline."""
        return " ".join(f"{self.across(exponent):g},{self.down(distance):g}" for exponent, distance in line.curve)

    @property
    def distances(self) -> Iterator[float]:
        """Labels of the vertical axis."""
        yield 0.0
        steps = (10.0**power for power in range(1, 1 + int(math.log10(self.top)))) if self.is_logarithmic else ()
        yield from steps or _round_steps(self.top)

    @property
    def exponents(self) -> Iterator[float]:
        """Labels of the horizontal axis."""
        first, last = self.span
        step = next((step for step in (1, 2, 4, 8, 16, 32) if (last - first) / step <= 5), 64)
        yield from (float(exponent) for exponent in range(math.ceil(first / step) * step, math.floor(last) + 1, step))

    @property
    def description(self) -> str:
        """Text alternative of the chart."""
        allowed = "no bound" if self.bound is None else f"{self.bound:g} ULP allowed"
        first, last = self.span
        return f"at most {ulp_text(self.worst)} for inputs from 2^{first:g} to 2^{last:g}, {allowed}"


def _round_steps(top: float) -> tuple[float, ...]:
    """Return two to five round numbers up to the top."""
    unit = 10.0 ** math.floor(math.log10(top))
    step = next(unit * part for part in (0.1, 0.2, 0.5, 1, 2) if top / (unit * part) < 5)
    return tuple(step * count for count in range(1, math.floor(top / step) + 1))


def charts(report: Report) -> tuple[Chart, ...]:
    """Return one chart per function with measured curves, by name."""
    outcomes_of: dict[str, list[tuple[int, Outcome]]] = {}
    for index, run in enumerate(report.runs):
        for outcome in run.outcomes:
            if outcome.curve:
                outcomes_of.setdefault(outcome.operator, []).append((index, outcome))
    styles = _styles([index for measured in outcomes_of.values() for index, _ in measured])
    return tuple(
        Chart(
            function,
            _bound([outcome for _, outcome in measured]),
            tuple(ChartLine(index, styles[index], outcome.curve) for index, outcome in measured),
        )
        for function, measured in sorted(outcomes_of.items())
    )


def _styles(numbers: Sequence[int]) -> dict[int, int]:
    """Return the line style of each run, the same in all charts."""
    return {index: position % LINES for position, index in enumerate(sorted(set(numbers)))}


def _bound(outcomes: Sequence[Outcome]) -> float | None:
    """Return the common tolerance in ULP, or None."""
    matches = [_BOUND.match(outcome.tolerance) for outcome in outcomes]
    return max((float(match[1]) for match in matches if match), default=None)
