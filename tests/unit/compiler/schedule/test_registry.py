"""Choosing a schedule of a list, and the reasons against the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.schedule import registry
from dmlgpu.compiler.schedule.registry import (
    CPU,
    GPUS,
    NONE,
    Schedule,
    at_least,
    at_most,
    choose,
    no,
    observed_choices,
    only_if,
    pick,
    register,
)
from dmlgpu.compiler.target import Profile, Target

TARGET = Target("an adapter", Profile.CPU)


@dataclass(frozen=True)
class Problem:
    rows: int
    target: Target = TARGET
    label: str = "example"


@pytest.fixture
def schedules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a list of schedules that is registered as the only one."""
    monkeypatch.setattr(registry, "SCHEDULES", {})
    registry.schedule_names.cache_clear()
    yield register(
        Schedule("stack", "wide", lambda problem: "wide", "is wide", profiles=GPUS),
        Schedule(
            "stack",
            "tall",
            lambda problem: no("{} is a prime", problem.rows) if problem.rows == 7 else "tall",
            "is tall",
            fits=lambda problem: at_least(problem.rows, 4, "rows"),
            pays=lambda problem: at_least(300 * problem.rows, 1000, "loads saved"),
            profiles=CPU,
        ),
        Schedule("stack", "even", lambda problem: "even", "", fits=lambda problem: at_most(problem.rows, 3, "rows")),
        Schedule("stack", "plain", lambda problem: "plain", "fits all"),
    )
    registry.schedule_names.cache_clear()


def outcomes(schedules: Any, problem: Problem) -> dict[str, str]:
    with observed_choices() as choices:
        choose(schedules, problem)
    (choice,) = choices
    assert (choice.kind, choice.label) == ("stack", "example")
    return {tried.name: str(tried) for tried in choice.tried}


@pytest.mark.parametrize(
    ("rows", "tall", "even", "chosen"),
    [
        (2, "does not fit: 2 rows, at least 4", "taken", "even"),
        (3, "does not fit: 3 rows, at least 4", "taken", "even"),
        (5, "taken: is tall", "does not fit: 5 rows, at most 3", "tall"),
        (7, "does not fit: 7 is a prime", "does not fit: 7 rows, at most 3", "plain"),
    ],
)
def test_the_first_schedule_that_fits_and_pays_is_taken(
    schedules: Any, rows: int, tall: str, even: str, chosen: str
) -> None:
    problem = Problem(rows)
    assert choose(schedules, problem) == chosen
    plain = "taken: fits all" if chosen == "plain" else "comes later"
    assert outcomes(schedules, problem) == {"wide": "for GPUs", "tall": tall, "even": even, "plain": plain}


def test_a_schedule_that_saves_too_little_is_not_taken(schedules: Any) -> None:
    cheap = replace(schedules[1], fits=lambda problem: only_if(True, ""))
    text = outcomes((cheap, schedules[-1]), Problem(3))["tall"]
    assert text == "does not pay: 900 loads saved, at least 1,000"


def test_gpus_take_other_schedules(schedules: Any) -> None:
    problem = Problem(5, replace(TARGET, profile=Profile.DISCRETE))
    assert choose(schedules, problem) == "wide"
    assert outcomes(schedules, problem)["tall"] == "for CPU adapters"


@pytest.mark.parametrize("name", ["plain", "stack/plain", "wide"])
def test_a_requested_schedule_is_taken_if_it_fits(schedules: Any, name: str) -> None:
    problem = Problem(5, TARGET.with_overrides(schedule=name))
    assert choose(schedules, problem) == name.removeprefix("stack/")
    assert set(outcomes(schedules, problem).values()) == {
        f"taken: {name.removeprefix('stack/')!r} is requested",
        "not requested",
    }


def test_a_requested_schedule_that_does_not_fit_raises(schedules: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"'stack/tall' cannot compute the step 'example': .* 2 rows, at least 4"):
        choose(schedules, Problem(2, TARGET.with_overrides(schedule="tall")))
    with pytest.raises(InvalidArgument, match=r"one of wide, .* \(stack\), got 'tal'; did you mean 'tall'"):
        choose(schedules, Problem(2, TARGET.with_overrides(schedule="tal")))


def test_other_kinds_ignore_a_requested_schedule(schedules: Any) -> None:
    other = register(Schedule("heap", "only", lambda problem: "only", ""))
    assert choose(other, Problem(5, TARGET.with_overrides(schedule="tall"))) == "only"
    assert choose(schedules, Problem(5, TARGET.with_overrides(schedule="heap/only"))) == "tall"


def test_schedules_that_are_switched_off_are_skipped(schedules: Any) -> None:
    problem = Problem(5, TARGET.with_overrides(excluded=frozenset({"stack/tall"})))
    assert choose(schedules, problem) == "plain"
    assert outcomes(schedules, problem)["tall"].startswith("switched off")
    with pytest.raises(InvalidArgument, match="switched off"):
        choose(schedules, Problem(5, problem.target.with_overrides(schedule="tall")))
    with pytest.raises(InvalidArgument, match="switched off"):
        choose(schedules[:1] + schedules[3:], Problem(5, TARGET.with_overrides(excluded=frozenset({"stack/plain"}))))


def test_a_tuned_schedule_is_taken_if_it_fits(schedules: Any) -> None:
    assert choose(schedules, Problem(5), tuned="plain") == "plain"
    assert choose(schedules, Problem(2), tuned="tall") == "even"
    assert choose(schedules, Problem(5, TARGET.with_overrides(schedule="tall")), tuned="plain") == "tall"


def test_a_schedule_is_picked_by_its_conditions_alone(schedules: Any) -> None:
    picked = pick(schedules, Problem(7))  # whose builder rejects it
    assert picked is not None and picked.name == "tall"
    assert pick(schedules[:1], Problem(7)) is None
    assert pick(schedules, Problem(5), tuned="plain") is schedules[-1]
    assert pick(schedules, Problem(2, TARGET.with_overrides(schedule="tall"))) is None


def test_some_schedules_are_only_requested(schedules: Any) -> None:
    last = replace(schedules[0], profiles=NONE)
    assert outcomes((last, *schedules[1:]), Problem(3))["wide"] == "for requests by name"
    assert choose((last, *schedules[1:]), Problem(3, TARGET.with_overrides(schedule="wide"))) == "wide"


def test_choices_for_kernels_of_a_rejected_schedule_are_not_observed(schedules: Any) -> None:
    def nested(problem: Any) -> Any:
        choose(schedules, problem)
        return no("nested")

    outer = register(
        Schedule("heap", "tried", nested, ""),
        Schedule("heap", "last", lambda problem: choose(schedules, problem), ""),
    )
    with observed_choices() as choices:
        choose(outer, Problem(5))
    assert [choice.kind for choice in choices] == ["heap", "stack"]
