"""Independent maps and scatters of few elements in one kernel, because each dispatch costs time of its own.

A token of a language model writes a row of keys and a row of values into caches, and rotates queries: three kernels of
a few hundred elements. On llvmpipe a kernel takes 40 us of CPU time however small it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlgpu.compiler.plan import Map, Scatter, Together
from dmlgpu.compiler.schedule.launch import NARROWEST, Launch, fold
from dmlgpu.compiler.schedule.ordering import schedule_scatter
from dmlgpu.compiler.schedule.scheduling import schedule_in_parts, schedule_step
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledSteps, buffers
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap
from dmlgpu.compiler.schedule.steps.ordering import ScatterSchedule, ScheduledScatter
from dmlgpu.compiler.schedule.steps.together import ScheduledTogether
from dmlgpu.compiler.target import Target


@schedule_step.register
def _together(step: Together, target: Target) -> ScheduledSteps:
    for scheduled in (schedule_in_parts, _in_elements):
        kernels = _joinable([scheduled(inner, target) for inner in step.steps], target)
        if kernels:
            return ScheduledSteps((_kernel(step.label, kernels, target),))
    groups: list[list[ScheduledSteps]] = []
    for inner in step.steps:
        steps = schedule_in_parts(inner, target)
        if groups and _joinable([*groups[-1], steps], target):
            groups[-1].append(steps)
        else:
            groups.append([steps])
    return sum((_in_one(step.label, group, target) for group in groups), ScheduledSteps())


def _in_one(label: str, group: Sequence[ScheduledSteps], target: Target) -> ScheduledSteps:
    """Return one kernel of those of a group; the steps themselves if there is one."""
    first, *others = group
    return ScheduledSteps((_kernel(label, _joinable(group, target), target),)) if others else first


def _in_elements(step: Map | Scatter, target: Target) -> ScheduledSteps:
    """Schedule a scatter in single elements: others may read a tensor so, and units of it are another binding."""
    return schedule_scatter(step, target) if isinstance(step, Scatter) else schedule_in_parts(step, target)


def _joinable(each: Sequence[ScheduledSteps], target: Target) -> list[KernelStep]:
    """Return the kernels of steps if they may be one; else none."""
    parts = [kernel for steps in each for kernel in steps.steps]
    kernels = [kernel for kernel in parts if isinstance(kernel, KernelStep) and _can_join(kernel)]
    widths = {kernel.launch.workgroup for kernel in kernels}
    can_join = len(kernels) == len(parts) and len(widths) == 1 and not any(steps.initialization for steps in each)
    return kernels if can_join and buffers(*kernels) <= target.slots else []


def _can_join(kernel: KernelStep) -> bool:
    """Return whether a kernel may be part of another one: its units have words of their own, and its invocations
    take consecutive ones."""
    if kernel.atomic or kernel.launch.strided:
        return False
    if isinstance(kernel, ScheduledScatter):
        return kernel.schedule is ScatterSchedule.STORE
    return type(kernel) is ScheduledMap and kernel.run is None and not kernel.walk.keeps_neighbors


def _kernel(label: str, kernels: Sequence[KernelStep], target: Target) -> ScheduledTogether:
    """Return one kernel of several, each of which begins at a whole number of subgroups."""
    starts, total = [], 0
    for kernel in kernels:
        starts.append(total)
        invocations = -(-kernel.launch.total // kernel.launch.items_per_invocation)
        total += -(-invocations // NARROWEST) * NARROWEST
    workgroup = kernels[0].launch.workgroup
    launch = Launch(workgroup, 1, fold(-(-total // workgroup), target), total)
    parts = tuple(kernel.unlabeled for kernel in kernels)
    reason = f"{len(parts)} kernels that do not depend on each other are one, which costs one dispatch"
    return ScheduledTogether(label, launch, kernels[0].output, parts, tuple(starts), reason=reason)
