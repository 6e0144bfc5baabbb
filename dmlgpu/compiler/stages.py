"""Compilation of an operator's description to its program: upgrade, lower, schedule, render, share bindings."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import operators
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.plan import Plan
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.program_cache import memory_of, programs
from dmlgpu.compiler.rewrites.padding import preserve_padding
from dmlgpu.compiler.schedule import ScheduledPlan, schedule
from dmlgpu.compiler.schedule.scheduling import in_plain_steps
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render


def compile_operator(desc: OperatorDesc, target: Target) -> Program:
    """Return the program of a checked description; one object while ``programs`` keeps it.

    Raises:
        OperatorNotImplemented: when dmlgpu does not implement the operator yet.
        NotSupported: when the adapter lacks a feature or a limit that it needs.
    """
    return programs.get_or_make((desc, target), lambda: stages(desc, target).program, memory_of)


@dataclass(frozen=True)
class Stages:
    """Stages of an operator on a target.

    Attributes:
        plan: the plan.
        schedule: the schedule; inputs that the device owns are read from the persistent resource.
        program: the program.
    """

    plan: Plan
    schedule: ScheduledPlan
    program: Program


def stages(desc: OperatorDesc, target: Target) -> Stages:
    """Return all stages of a checked description, without caching.

    Raises: as ``compile_operator``.
    """
    start = time.perf_counter()
    try:
        plan = in_plain_steps(operators.lower(desc), target)
    except NotSupported as error:
        raise NotSupported(f"{desc.operator}: {error}") from None
    if target.policies.preserves_padding:
        plan = preserve_padding(plan, [slot.tensor for slot in desc.outputs])
    try:
        chosen = schedule(plan, target, [slot.tensor for slot in desc.inputs])
        planned = time.perf_counter()
        program = share_known(render(chosen))
    except NotSupported as error:
        raise NotSupported(f"{plan.operator}: {error}") from None
    timings = Timings(planned - start, time.perf_counter() - planned)
    return Stages(plan, chosen, replace(program, timings=timings))
