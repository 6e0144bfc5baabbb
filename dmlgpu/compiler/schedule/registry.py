"""Schedules as records, the registry of all of them, and the choice of one for a problem.

Every kind of step has one list of schedules. They are tried in order: the first that is for the profile, fits and pays
builds the kernels; the last of a list fits every problem. ``Overrides.schedule`` requests a schedule by name instead.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.compiler.target import Profile, Target

ALL = frozenset(Profile)
CPU = frozenset({Profile.CPU})
GPUS = ALL - CPU
NONE: frozenset[Profile] = frozenset()

Constant = TypeVar("Constant")


def by_profile(*, cpu: Constant, gpus: Constant) -> dict[Profile, Constant]:
    """Return a table of constants that differ between CPU adapters and GPUs."""
    return {Profile.CPU: cpu, **dict.fromkeys(sorted(GPUS), gpus)}


@dataclass(frozen=True, eq=False, slots=True)
class Condition:
    """Whether something holds, and the reason if it does not; true or false in Python's conditions.

    Attributes:
        holds: The answer.
        text: Reason against, a template of ``str.format``.
        values: Values of the template. They may be symbolic: they are formatted only by ``str``.
    """

    holds: bool
    text: str = ""
    values: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.text.format(*self.values)


YES = Condition(True)


def no(text: str, *values: Any) -> Condition:
    """Return a negative answer; `text` is a template of `values`."""
    return Condition(False, text, values)


def only_if(condition: object, text: str, *values: Any) -> Condition:
    """Return whether a condition holds; `text` is the reason if it does not."""
    return YES if condition else no(text, *values)


def at_least(value: Any, bound: Any, unit: str) -> Condition:
    """Return whether a number of units is `bound` or more."""
    return YES if value >= bound else no("{:,} {}, at least {:,}", value, unit, bound)


def at_most(value: Any, bound: Any, unit: str) -> Condition:
    """Return whether a number of units is `bound` or less."""
    return YES if value <= bound else no("{:,} {}, at most {:,}", value, unit, bound)


def found(result: object) -> Condition:
    """Return whether an analysis gave a result; it gives a failed condition instead."""
    return result if isinstance(result, Condition) else YES


def _always(problem: object) -> Condition:
    """Return a positive answer for every problem."""
    return YES


class AnyProblem(Protocol):
    """What a schedule is chosen for: it has a target, and a label for messages."""

    @property
    def target(self) -> Target:
        """The compile target."""

    @property
    def label(self) -> str:
        """Label of the step."""


Problem = TypeVar("Problem", bound=AnyProblem)
Built = TypeVar("Built")


class ScheduleOutcome(enum.StrEnum):
    """Result of trying a schedule."""

    TAKEN = "taken"
    OTHER_PROFILES = "other profiles"
    UNFIT = "does not fit"
    COSTLY = "does not pay"
    OFF = "switched off"
    LATER = "comes later"
    NOT_REQUESTED = "not requested"


@dataclass(frozen=True)
class Rejection:
    """Why a schedule was not taken."""

    outcome: ScheduleOutcome
    condition: Condition


@dataclass(frozen=True)
class Schedule(Generic[Problem, Built]):
    """One way to compute a kind of step.

    Attributes:
        kind: Kind of step: ``map``, ``scan``. Kinds and names are lowercase words with hyphens between them.
        name: Name, unique among the schedules of its kind.
        build: Returns the result of the choice: kernels, in most lists. A negative answer if the problem turns out not
            to fit on the way.
        reason: Why it is fast.
        fits: Whether it computes the problem correctly.
        pays: Whether it is faster for the problem than those after it.
        profiles: Profiles for which it is chosen.
    """

    kind: str
    name: str
    build: Callable[[Problem], Built | Condition]
    reason: str
    fits: Callable[[Problem], Condition] = _always
    pays: Callable[[Problem], Condition] = _always
    profiles: frozenset[Profile] = ALL

    @property
    def full_name(self) -> str:
        """Name that is unique among all schedules: ``map/transpose``."""
        return f"{self.kind}/{self.name}"

    def objection(self, problem: Problem, *, is_named: bool = False) -> Rejection | None:
        """Return why the schedule is not taken for a problem, as far as its conditions say; None if they hold.

        Args:
            problem: The problem.
            is_named: Whether it is requested by name, also for other profiles or if it does not pay.
        """
        target = problem.target
        if not is_named and target.profile not in self.profiles:
            return Rejection(ScheduleOutcome.OTHER_PROFILES, no(f"for {_PROFILES.get(self.profiles, self.profiles)}"))
        if self.full_name in target.overrides.excluded:
            return Rejection(ScheduleOutcome.OFF, no("a quirk of the driver, see dmlgpu doctor"))
        if not (fits := self.fits(problem)):
            return Rejection(ScheduleOutcome.UNFIT, fits)
        if not is_named and not (pays := self.pays(problem)):
            return Rejection(ScheduleOutcome.COSTLY, pays)
        return None

    def attempt(self, problem: Problem, *, is_named: bool = False) -> Built | Rejection:
        """Return what the schedule builds for a problem, or why it is not taken; for arguments see ``objection``."""
        rejection = self.objection(problem, is_named=is_named)
        if rejection is not None:
            return rejection
        built = self.build(problem)
        return Rejection(ScheduleOutcome.UNFIT, built) if isinstance(built, Condition) else built


_PROFILES = {CPU: "CPU adapters", GPUS: "GPUs", NONE: "requests by name"}

SCHEDULES: dict[str, tuple[Schedule[Any, Any], ...]] = {}
"""All schedules by kind, each list in the order in which it is tried."""


def register(*schedules: Schedule[Problem, Built]) -> tuple[Schedule[Problem, Built], ...]:
    """Add the schedules of a kind to the registry, and return them. The last one must fit every problem."""
    (kind,) = {schedule.kind for schedule in schedules}
    assert kind not in SCHEDULES and len({schedule.name for schedule in schedules}) == len(schedules), kind
    SCHEDULES[kind] = schedules
    return schedules


@functools.cache
def schedule_names() -> tuple[str, ...]:
    """Return the values of ``Overrides.schedule``: names that apply to every kind that has them, then ``kind/name``."""
    every = [schedule for schedules in SCHEDULES.values() for schedule in schedules]
    return tuple(dict.fromkeys([*(each.name for each in every), *(each.full_name for each in every)]))


def check_name(name: str) -> None:
    """Check a value of ``Overrides.schedule``.

    Raises:
        InvalidArgument: If no kind has a schedule of this name.
    """
    if name in schedule_names():
        return
    similar = difflib.get_close_matches(name, schedule_names(), 1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    lists = "; ".join(f"{', '.join(each.name for each in known)} ({kind})" for kind, known in SCHEDULES.items())
    raise InvalidArgument(f"a schedule must be one of {lists}, got {name!r}{hint}")


def requested(schedules: Sequence[Schedule[Problem, Built]], target: Target) -> str:
    """Return the name of the schedule in a list that is requested; empty if none of these is.

    Raises:
        InvalidArgument: If no kind has a schedule of this name.
    """
    name = target.overrides.schedule
    if not name:
        return ""
    check_name(name)
    return next((each.name for each in schedules if name in (each.name, each.full_name)), "")


def _in_order(
    schedules: Sequence[Schedule[Problem, Built]], target: Target, tuned: str = ""
) -> Iterator[tuple[Schedule[Problem, Built], bool]]:
    """Yield the schedules to try, and whether each is named: the requested one alone, or the tuned one first."""
    name = requested(schedules, target)
    yield from ((schedule, True) for schedule in schedules if schedule.name == (name or tuned))
    if not name:
        yield from ((schedule, False) for schedule in schedules if schedule.name != tuned)


def pick(
    schedules: Sequence[Schedule[Problem, Built]], problem: Problem, tuned: str = ""
) -> Schedule[Problem, Built] | None:
    """Return the schedule of a list whose conditions hold, without its kernels; None if there is none. For arguments
    see ``choose``."""
    tried = _in_order(schedules, problem.target, tuned)
    return next((each for each, is_named in tried if each.objection(problem, is_named=is_named) is None), None)


def choose(schedules: Sequence[Schedule[Problem, Built]], problem: Problem, tuned: str = "") -> Built:
    """Return what the chosen schedule of a list builds for a problem.

    Args:
        schedules: A registered list.
        problem: The problem, with its target.
        tuned: Name of the schedule that tuning found fastest; taken if it fits and no other is requested.

    Raises:
        InvalidArgument: If ``Overrides.schedule`` names no schedule, or one of the list that does not fit; or if the
            last schedule of the list is needed and is switched off.
    """
    name = requested(schedules, problem.target)
    rejections: dict[str, Rejection] = {}
    observed = _observed.get()
    start = 0 if observed is None else len(observed)
    for schedule, is_named in _in_order(schedules, problem.target, tuned):
        result = schedule.attempt(problem, is_named=is_named)
        if not isinstance(result, Rejection):
            break
        rejections[schedule.name] = result
        if observed is not None:
            del observed[start:]  # choices of kernels that are not taken
    else:
        raise InvalidArgument(_objection(schedule, rejections[schedule.name], problem.label))
    if observed is not None:
        reason = f"{name!r} is requested" if name else TUNED if is_named else schedule.reason
        taken = Tried(schedule.name, ScheduleOutcome.TAKEN, reason)
        tried = [taken if each is schedule else _tried(each, problem, rejections, name) for each in schedules]
        observed.insert(start, Choice(schedule.kind, problem.label, tuple(tried)))
    return result


TUNED = "dmlgpu tune found it fastest on this adapter"


def _objection(schedule: Schedule[Any, Any], rejection: Rejection, label: str) -> str:
    """Return the message for a schedule that is requested, or the last of its list, and cannot be taken."""
    step = f"the step {label!r}" if label else f"this {schedule.kind}"
    return f"the schedule {schedule.full_name!r} cannot compute {step}: {rejection.outcome}, {rejection.condition}"


# ---- explanations


@dataclass(frozen=True)
class Tried:
    """A schedule of a list, and whether it was taken.

    Attributes:
        name: Of the schedule.
        outcome: What became of it.
        text: Reason.
    """

    name: str
    outcome: ScheduleOutcome
    text: str

    def __str__(self) -> str:
        """Return outcome and reason: ``does not fit: 3 rows, at least 4``."""
        is_alone = self.outcome is ScheduleOutcome.OTHER_PROFILES
        return self.text if is_alone else ": ".join(filter(None, (self.outcome.value, self.text)))


@dataclass(frozen=True)
class Choice:
    """Choice of a schedule for a step: all schedules of the list in order."""

    kind: str
    label: str
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        """Return a line per schedule."""
        width = max(len(tried.name) for tried in self.tried)
        lines = (f"  {tried.name:{width}}  {tried}" for tried in self.tried)
        return "\n".join([f"{self.kind} {self.label!r}" if self.label else self.kind, *lines])


_observed: ContextVar[list[Choice] | None] = ContextVar("_observed", default=None)


@contextlib.contextmanager
def observed_choices() -> Iterator[list[Choice]]:
    """Collect the choices of schedules while it lasts, outer ones before those of their kernels. Schedules after the
    chosen one are tried as well."""
    choices: list[Choice] = []
    token = _observed.set(choices)
    try:
        yield choices
    finally:
        _observed.reset(token)


def _tried(schedule: Schedule[Any, Any], problem: Any, rejections: dict[str, Rejection], name: str) -> Tried:
    """Return the outcome of a schedule that was not taken."""
    if name:
        return Tried(schedule.name, ScheduleOutcome.NOT_REQUESTED, "")
    if schedule.name in rejections:
        rejection = rejections[schedule.name]
        return Tried(schedule.name, rejection.outcome, str(rejection.condition))
    token = _observed.set(None)
    try:
        result = schedule.attempt(problem)
    except DmlError as error:
        return Tried(schedule.name, ScheduleOutcome.UNFIT, str(error))
    finally:
        _observed.reset(token)
    if isinstance(result, Rejection):
        return Tried(schedule.name, result.outcome, str(result.condition))
    return Tried(schedule.name, ScheduleOutcome.LATER, "")
