"""Changes between two runs of the same cases: of another driver, version or day."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from dmlgpu.common.errors import InvalidArgument, counted
from dmlgpu.conformance.report.model import selection_of
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun


class ChangeKind(enum.StrEnum):
    """Kinds of changes, the worst first."""

    REGRESSION = "regression"
    MISSING = "missing"
    LESS_ACCURATE = "less accurate"
    CHANGED = "changed"
    OTHER_BITS = "other bits"
    MORE_ACCURATE = "more accurate"
    REPAIRED = "repaired"
    NEW = "new"

    def counted(self, count: int) -> str:
        """Return ``1 regression``, ``2 regressions``, ``2 missing``; the other kinds are adjectives."""
        return counted(count, self) if self is ChangeKind.REGRESSION else f"{count:,} {self}"


@dataclass(frozen=True)
class Change:
    """A case with another result.

    Attributes:
        kind: Kind of the change.
        before, after: Results; None if a run lacks the case.
    """

    kind: ChangeKind
    before: Outcome | None
    after: Outcome | None

    @property
    def case(self) -> str:
        """Name of the case."""
        outcome = self.after or self.before
        assert outcome is not None
        return outcome.case


def changes(before: RecordedRun, after: RecordedRun) -> tuple[Change, ...]:
    """Return the cases with other results, regressions first, then by name.

    If the runs selected different cases, only those of both are compared: none is missing or new.
    """
    old = {outcome.case: outcome for outcome in before.outcomes}
    new = {outcome.case: outcome for outcome in after.outcomes}
    if selection_of(before) != selection_of(after):
        old, new = ({name: outcomes[name] for name in old.keys() & new.keys()} for outcomes in (old, new))
    result = []
    for name in sorted(old.keys() | new.keys()):
        kind = _kind(old.get(name), new.get(name))
        if kind is not None:
            result.append(Change(kind, old.get(name), new.get(name)))
    order = list(ChangeKind)
    return tuple(sorted(result, key=lambda change: order.index(change.kind)))


def _kind(before: Outcome | None, after: Outcome | None) -> ChangeKind | None:
    if before is None or after is None:
        return ChangeKind.NEW if before is None else ChangeKind.MISSING
    if before.status is not after.status:
        return _of_statuses(before.status, after.status)
    errors = (before.of_bound or 0.0, after.of_bound or 0.0)
    if errors[0] != errors[1]:
        return ChangeKind.LESS_ACCURATE if errors[1] > errors[0] else ChangeKind.MORE_ACCURATE
    return ChangeKind.OTHER_BITS if before.digest != after.digest else None


def _of_statuses(before: Status, after: Status) -> ChangeKind:
    if after.is_failure and not before.is_failure:
        return ChangeKind.REGRESSION
    if before is Status.PASS and after is Status.NOT_SUPPORTED:
        return ChangeKind.REGRESSION
    return ChangeKind.REPAIRED if before.is_failure and not after.is_failure else ChangeKind.CHANGED


def pairs(before: Sequence[RecordedRun], after: Sequence[RecordedRun]) -> tuple[tuple[RecordedRun, RecordedRun], ...]:
    """Return the runs of two files to compare: the only runs of both files, else those of equal adapters.

    If an adapter occurs with several drivers, drivers are matched as far as possible.

    Raises:
        InvalidArgument: If the files have no adapter in common.
    """
    if len(before) == len(after) == 1:
        return ((before[0], after[0]),)
    matched: dict[int, RecordedRun] = {}
    left = list(before)
    for key in (_with_driver, _name):
        for index, run in enumerate(after):
            old = next((index for index, other in enumerate(left) if key(other) == key(run)), None)
            if index not in matched and old is not None:
                matched[index] = left.pop(old)
    if not matched:
        raise InvalidArgument(
            f"the files have no adapter in common: {', '.join(map(_text, before))} and {', '.join(map(_text, after))}"
        )
    return tuple((matched[index], run) for index, run in enumerate(after) if index in matched)


def _name(run: RecordedRun) -> tuple[str, ...]:
    return run.facts["suite"], run.facts["adapter"]["backend"], run.facts["adapter"]["name"]


def _with_driver(run: RecordedRun) -> tuple[str, ...]:
    return *_name(run), run.facts["adapter"]["driver"]


def _text(run: RecordedRun) -> str:
    return ": ".join(_name(run)[1:])
