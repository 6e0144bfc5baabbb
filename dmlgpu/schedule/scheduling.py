"""The function that schedules a step of any kind: each module beside this one registers its own."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from dmlgpu.plan import Plan, Repeat, Step
from dmlgpu.schedule.steps import Schedule, Scheduled, ScheduledRepeat, Steps
from dmlgpu.target import Target


def schedule(plan: Plan, target: Target) -> Schedule:
    """Choose how a plan is computed on a target.

    Raises:
        NotSupported: when the adapter lacks a limit that the plan needs.
    """
    once = (schedule_step(step, target).as_initialization for step in plan.initialization)
    steps = sum(once, Steps()) + schedule_steps(plan.steps, target)
    return Schedule(plan.operator, target, steps.steps, steps.initialization)


def schedule_steps(steps: Iterable[Step], target: Target) -> Steps:
    """Schedule several steps, one after the other."""
    return sum((schedule_step(step, target) for step in steps), Steps())


@functools.singledispatch
def schedule_step(step: Step, target: Target) -> Steps:
    """Choose the kernels of a step.

    Raises:
        NotSupported: when the adapter lacks a limit that the step needs.
    """
    raise TypeError(f"no schedule for {type(step).__name__}")


@schedule_step.register
def _repeat(step: Repeat, target: Target) -> Steps:
    inner = schedule_steps(step.steps, target)
    kernels = tuple(kernel for kernel in inner.steps if isinstance(kernel, Scheduled))
    return Steps((ScheduledRepeat(kernels, step.turns, step.advances),), inner.initialization)
