"""What did not simply pass, put together by what it comes from: a list that somebody can read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from dmlgpu.conformance.report.model import Report, kind_of
from dmlgpu.conformance.running.outcome import Outcome, Status


@dataclass(frozen=True)
class Cause:
    """Cases of one run that came out alike.

    Attributes:
        number: of the run.
        status: theirs.
        text: why, in the words of the first: the reason of an expected failure, the feature that is missing, or what
            went wrong.
        outcomes: by name.
    """

    number: int
    status: Status
    text: str
    outcomes: tuple[Outcome, ...]

    @property
    def kind(self) -> str:
        """``bad``, ``known`` or ``refused``."""
        return kind_of(self.status)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Of these cases, by name."""
        return tuple(sorted({outcome.operator for outcome in self.outcomes}))

    @property
    def message(self) -> str:
        """What the driver or the compiler said to the first, in its lines; empty where that is one line or none."""
        lines = [_printable(line) for line in self.outcomes[0].message.splitlines()]
        return "\n".join(lines) if len(list(filter(None, lines))) > 1 else ""

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """Those that one error of compiling fails, by name; none for other causes and where it fails only one."""
        names = tuple(outcome.case for outcome in self.outcomes if outcome.compile_error)
        return names if len(names) > 1 else ()

    @cached_property
    def worst(self) -> Outcome:
        """The case that is farthest off; the first where none is."""
        return max(self.outcomes, key=lambda outcome: outcome.of_bound or 0.0)


def causes(report: Report) -> tuple[Cause, ...]:
    """The bad ones by operator, one for each status, or by the error of compiling that several operators may have; the
    others by their reason. Sorted by kind, then by run."""
    found: dict[tuple[str, int, Status, str], list[Outcome]] = {}
    for number, outcome in report.not_passed():
        kind = kind_of(outcome.status)
        cause = (outcome.compile_error or outcome.operator) if kind == "bad" else _why(outcome)
        found.setdefault((kind, number, outcome.status, cause), []).append(outcome)
    return tuple(
        Cause(number, status, _why(outcomes[0]), tuple(outcomes))
        for (_, number, status, _), outcomes in sorted(found.items(), key=lambda entry: entry[0])
    )


def of_kind(found: Iterable[Cause], kind: str) -> tuple[Cause, ...]:
    """Those that are ``bad``, ``known`` or ``refused``."""
    return tuple(cause for cause in found if cause.kind == kind)


def _why(outcome: Outcome) -> str:
    """In a line."""
    if outcome.status is Status.NOT_SUPPORTED and outcome.missing:
        return f"needs {outcome.missing}"
    text = outcome.reason or outcome.message
    if not text and outcome.wrong:
        text = f"expected {outcome.expected}, got {outcome.got}"
    return "; ".join(filter(None, map(_printable, text.splitlines())))


def _printable(line: str) -> str:
    """Without what moves a terminal's cursor; tabs as spaces."""
    return "".join(filter(str.isprintable, line.expandtabs(4))).rstrip()
