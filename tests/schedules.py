"""Schedules of descriptions for tests."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.schedule import ScheduledPlan, schedule
from dmlgpu.compiler.target import Target


def scheduled(desc: OperatorDesc, target: Target) -> ScheduledPlan:
    """Return the schedule of a description on a target."""
    return schedule(operators.lower(desc), target)


def steps_of(desc: OperatorDesc, target: Target) -> tuple[Any, ...]:
    """Return the scheduled steps of a description."""
    return scheduled(desc, target).steps
