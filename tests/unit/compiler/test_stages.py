"""The stages over the quick cases: plans are independent of schedules, and rendering makes no choices."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.plan import Plan, PlanTensor, Reduce, Sort, Source
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledPlan, ScheduledRepeat
from dmlgpu.compiler.target import Overrides, Policies, Profile, Target
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from tests.quick_programs import PROFILES, STANDARD, quick_programs

pytestmark = pytest.mark.xdist_group("rendered kernels")

OTHER = Target(
    "another browser",
    Profile.INTEGRATED,
    frozenset({"immediates", "shader-f16", "shader-int64", "shader-f64"}),
    max_storage_buffers=10,
    max_workgroups_per_dimension=1000,
    max_workgroup_invocations=1024,
    max_workgroup_storage=32768,
    policies=Policies(deterministic=True),
    overrides=Overrides(schedule="register"),
)
"""Target that differs in everything except the loop limit and the largest binding, by which schedules split steps."""

COMPATIBLE = Target("an old phone", Profile.DISCRETE, max_workgroup_invocations=128)
"""Minimum limits of WebGPU's compatibility mode."""


@functools.cache
def plans() -> dict[str, Plan]:
    return {name: operators.lower(case_by_name(name).desc) for name in case_names("quick")}


@functools.cache
def schedules(target: Target) -> dict[str, ScheduledPlan]:
    """Return schedules by case, without those that exceed a limit of the target."""
    by_case = {}
    for name, plan in plans().items():
        try:
            by_case[name] = schedule(plan, target, [slot.tensor for slot in case_by_name(name).desc.inputs])
        except NotSupported:
            continue
    return by_case


def kernels(chosen: ScheduledPlan) -> Iterator[KernelStep]:
    for step in (*chosen.initialization, *chosen.steps):
        yield from step.steps if isinstance(step, ScheduledRepeat) else (step,)


def parts(plan: Plan) -> list[Any]:
    """Yield every object in a plan once, contents first."""
    by_identity: dict[int, Any] = {}

    def visit(value: object) -> None:
        if isinstance(value, tuple):
            for each in value:
                visit(each)
        elif is_dataclass(value) and id(value) not in by_identity:
            visit(tuple(getattr(value, field.name) for field in fields(value)))
            by_identity[id(value)] = value

    visit(plan)
    return list(by_identity.values())


def described(plan: Plan) -> list[Any]:
    """Return a plan's parts with indices in place of other parts, since no two plans have equal allocations."""
    all_parts = parts(plan)
    numbers = {id(part): index for index, part in enumerate(all_parts)}

    def short(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(short, value))
        return ("part", numbers[id(value)]) if id(value) in numbers else value

    return [(type(part), *(short(getattr(part, field.name)) for field in fields(part))) for part in all_parts]


# ---- lower


def test_plans_contain_no_part_of_schedules():
    packages = {type(part).__module__.split(".")[1] for plan in plans().values() for part in parts(plan)}
    assert packages.isdisjoint({"schedule", "wgsl"})


def test_plans_count_elements_except_for_results_of_several_numbers():
    """Results of reductions and records of sorted elements have several numbers; units belong to schedules."""
    for name, plan in plans().items():
        all_parts = parts(plan)
        several = {part.output.binding for part in all_parts if isinstance(part, (Reduce, Sort))}
        for part in all_parts:
            if isinstance(part, Source) and part.lanes != 1:
                assert isinstance(part, PlanTensor) and part.binding in several and part.lanes > 1, name


def test_plans_depend_only_on_the_description():
    assert list(inspect.signature(operators.lower).parameters) == ["desc"]
    for name, plan in plans().items():
        assert described(operators.lower(case_by_name(name).desc)) == described(plan), name


# ---- schedule


@pytest.mark.slow
@pytest.mark.parametrize("target", [*STANDARD.values(), COMPATIBLE], ids=lambda target: target.name + target.profile)
def test_every_plan_is_scheduled_within_the_limits_of_a_target(target):
    assert schedules(target).keys() == plans().keys()
    for name, chosen in schedules(target).items():
        for kernel in kernels(chosen):
            launch = kernel.launch
            assert launch.workgroup <= target.max_workgroup_invocations, (name, kernel.label)
            assert max(launch.grid) <= target.max_workgroups_per_dimension, (name, kernel.label)


def test_only_exceeded_limits_raise():
    small = replace(STANDARD[Profile.CPU], max_workgroups_per_dimension=4)
    by_case = schedules(small)
    assert 0 < len(by_case) < len(plans())
    assert all(max(kernel.launch.grid) <= 4 for each in by_case.values() for kernel in kernels(each))


# ---- render


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_rendering_is_a_pure_function_of_a_schedule(profile):
    """Rendering reads no fields of the target that are reserved for schedules."""
    target = STANDARD[profile]
    programs, refusals = quick_programs(profile)
    unlike = replace(OTHER, name=target.name, features=target.features, max_storage_buffers=target.max_storage_buffers)
    for name, chosen in schedules(target).items():
        try:
            again = render(replace(chosen, target=unlike))
        except NotSupported:
            assert name in refusals
        else:
            assert share_known(again) == programs[name], name
