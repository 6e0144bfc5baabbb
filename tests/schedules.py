"""Schedules of descriptions for tests."""

from __future__ import annotations

from typing import Any

from dmlgpu import operators
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.schedule import Schedule, schedule
from dmlgpu.target import Target


def scheduled(desc: OperatorDesc, target: Target) -> Schedule:
    """How a description is computed on a target."""
    return schedule(operators.lower(desc, target), target)


def steps_of(desc: OperatorDesc, target: Target) -> tuple[Any, ...]:
    """The scheduled steps of a description."""
    return scheduled(desc, target).steps
