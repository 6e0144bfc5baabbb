"""Generic function that schedules a step: each module of this package registers its kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    MAX_KERNELS,
    Allocation,
    Convolve,
    Map,
    Plan,
    PlanBinding,
    PlanTensor,
    Repeat,
    Role,
    RotatedContract,
    Rows,
    Scatter,
    Step,
    Together,
    View,
)
from dmlgpu.compiler.plan.parts import read, replace_parts, tensors, written
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.memory import MemoryLayout, Use, lay_out, lay_out_persistent, least_size
from dmlgpu.compiler.schedule.splitting import in_parts
from dmlgpu.compiler.schedule.steps.base import (
    AnyScheduled,
    KernelStep,
    ScheduledPlan,
    ScheduledRepeat,
    ScheduledSteps,
    in_turns,
)
from dmlgpu.compiler.target import Target

Bound: TypeAlias = tuple[PlanBinding, int]
"""A resource that kernels bind, and the end of the bound range."""


def schedule(plan: Plan, target: Target, inputs: Sequence[TensorDesc | None] = ()) -> ScheduledPlan:
    """Return the schedule of a plan on a target.

    Args:
        plan: the plan.
        target: the compile target.
        inputs: descriptions of the inputs: those that are OWNED_BY_DML are read from the persistent resource.

    Raises:
        NotSupported: when the adapter lacks a limit that the plan needs.
    """
    once = (schedule_in_parts(step, target).as_initialization for step in plan.initialization)
    steps = sum(once, ScheduledSteps()) + schedule_steps(in_plain_steps(plan, target).steps, target)
    return as_schedule(plan.operator, steps, target, inputs)


def as_schedule(
    operator: str, steps: ScheduledSteps, target: Target, inputs: Sequence[TensorDesc | None]
) -> ScheduledPlan:
    """Return the schedule of all steps of a plan; for arguments and errors see ``schedule``."""
    steps = _keep_owned(steps, inputs, target)
    check_count(sum(turns for _, turns in in_turns((*steps.steps, *steps.initialization))))
    memory = memory_layout(map(bytes_of, steps.steps), map(bytes_of, steps.initialization))
    return ScheduledPlan(operator, target, steps.steps, steps.initialization, memory, target.moves_doubles)


def check_count(kernels: int) -> None:
    """Check the number of kernels of a schedule.

    Raises:
        NotSupported: If they are too many.
    """
    if kernels > MAX_KERNELS:
        raise NotSupported(
            f"{kernels} kernels one after the other exceed the {MAX_KERNELS} that one execution may have"
        )


def memory_layout(executed: Iterable[Iterable[Bound]], initial: Iterable[Iterable[Bound]]) -> MemoryLayout:
    """Return the memory layout of all allocations of a schedule: temporary ones share memory if their lifetimes are
    disjoint.

    Args:
        executed: Of each step, the resources that its kernels bind, and the end of the bound range.
        initial: The same of the initialization.
    """
    once, uses = _uses(initial), _uses(executed)
    arena = lay_out_persistent(once[Role.PERSISTENT], uses[Role.PERSISTENT])
    return MemoryLayout(lay_out(uses[Role.TEMPORARY], reuse=True), arena, least_size(uses[Role.TEMPORARY]))


def _uses(bounds: Iterable[Iterable[Bound]]) -> dict[Role, list[Use]]:
    """Return the uses of allocations in each resource, in order."""
    uses: dict[Role, list[Use]] = {Role.TEMPORARY: [], Role.PERSISTENT: []}
    for index, bound in enumerate(bounds):
        for binding, end in bound:
            if isinstance(binding.index, Allocation):
                uses[binding.role].append(Use(index, binding.index, end))
    return uses


def bytes_of(step: AnyScheduled) -> Iterator[Bound]:
    """Yield the resources that the kernels of a step bind, and the end of the bound range."""
    advances = dict(step.advances) if isinstance(step, ScheduledRepeat) else {}
    for kernel, turns in in_turns([step]):
        for binding, size in kernel.bound.items():
            yield binding, binding.offset + size + (turns - 1) * max(advances.get(binding, 0), 0)


def _keep_owned(steps: ScheduledSteps, inputs: Sequence[TensorDesc | None], target: Target) -> ScheduledSteps:
    """Return steps that read OWNED_BY_DML inputs from the persistent resource. The initialization copies those inputs
    that it does not repack."""
    sizes = owned_sizes(inputs)
    if not sizes:
        return steps
    moved, copies = copies_of_owned(
        sizes, (each.binding for step, _ in in_turns(steps.steps) for each in tensors(step))
    )
    redirected = tuple(replace_parts(step, PlanBinding, moved) for step in steps.steps)
    initial = sum((schedule_step(copy, target).as_initialization for copy in copies), ScheduledSteps())
    return ScheduledSteps(redirected, steps.initialization) + initial


def owned_sizes(inputs: Sequence[TensorDesc | None]) -> dict[int, int]:
    """Return the bytes of inputs that are OWNED_BY_DML, by index; those of a symbolic one become a guard."""
    return {index: int(desc.byte_size) for index, desc in enumerate(inputs) if desc is not None and desc.owned_by_dml}


def copies_of_owned(
    sizes: Mapping[int, int], bindings: Iterable[PlanBinding]
) -> tuple[Callable[[PlanBinding], PlanBinding], list[Map]]:
    """Return a function that replaces bindings of OWNED_BY_DML inputs by bindings of the persistent resource, and the
    steps that copy the inputs there, given the bindings of the steps that are executed."""
    read = {binding.index for binding in bindings if binding.role is Role.INPUT}
    owned: dict[int | Allocation, PlanTensor] = {}
    copies = []
    for index, size in sizes.items():
        if index not in read:
            continue
        words = (size // 4,)
        source = PlanTensor(PlanBinding(Role.INPUT, index), DataType.UINT32, words, (1,), View.RAW)
        owned[index] = PlanTensor.persistent("owned input", DataType.UINT32, words)
        copies.append(Map(f"own input {index}", identity(source), owned[index], is_once=True))

    def moved(binding: PlanBinding) -> PlanBinding:
        is_owned = binding.role is Role.INPUT and binding.index in owned
        return replace(owned[binding.index].binding, offset=binding.offset) if is_owned else binding

    return moved, copies


def can_bind(step: Step, target: Target) -> bool:
    """Return whether a step's kernels can bind all tensors that it reads and writes; some schedules need other buffers
    as well: that of rows which binds results of stages binds no statistics, Winograd's binds products and marks."""
    bound = {tensor.binding for tensor in (*read(step), *written(step))}
    has_spare = isinstance(step, Map | RotatedContract | Scatter | Together) or (
        isinstance(step, Rows) and len(step.stages) <= len(step.statistics)
    )
    spare = 2 if isinstance(step, Convolve) else 0 if has_spare else 1
    return len(bound) + spare <= target.slots


def schedule_steps(steps: Iterable[Step], target: Target) -> ScheduledSteps:
    """Schedule several steps in order."""
    return sum((schedule_in_parts(step, target) for step in steps), ScheduledSteps())


def schedule_in_parts(step: Step, target: Target) -> ScheduledSteps:
    """Schedule a step, in parts if its tensors exceed what a kernel can bind.

    Raises:
        NotSupported: as ``schedule_step``.
    """
    parts = in_parts(step, target)
    if len(parts) == 1:
        return schedule_step(step, target)
    reason = f"one of {len(parts)} parts: the tensors exceed what a kernel can bind"
    return sum((schedule_step(part, target).because(reason) for part in parts), ScheduledSteps())


AnyStep = TypeVar("AnyStep", bound=Step)


@dataclass(frozen=True)
class StepProblem(Generic[AnyStep]):
    """A step to schedule, and its target."""

    step: AnyStep
    target: Target

    @property
    def label(self) -> str:
        """Label of the step."""
        return self.step.label


@functools.singledispatch
def schedule_step(step: Step, target: Target) -> ScheduledSteps:
    """Choose the kernels of a step.

    Raises:
        NotSupported: when the adapter lacks a limit that the step needs.
    """
    plain = plain_steps(step, target)
    if len(plain) == 1 and plain[0] is step:
        raise TypeError(f"no schedule for {type(step).__name__}")
    return schedule_steps(plain, target)


@functools.singledispatch
def plain_steps(step: Step, target: Target) -> Sequence[Step]:
    """Return plainer steps equivalent to a step on a target, or the step itself if it has its own kernels.

    Raises:
        NotSupported: when the adapter lacks a limit that the step needs.
    """
    return (step,)


def in_plain_steps(plan: Plan, target: Target) -> Plan:
    """Return a plan of plain steps: graphs fuse these with other steps, and they preserve padding."""
    return replace(plan, steps=tuple(plain for step in plan.steps for plain in plain_steps(step, target)))


@schedule_step.register
def _repeat(step: Repeat, target: Target) -> ScheduledSteps:
    inner = schedule_steps(step.steps, target)
    kernels = tuple(kernel for kernel in inner.steps if isinstance(kernel, KernelStep))
    return ScheduledSteps((ScheduledRepeat(kernels, step.turns, step.advances),), inner.initialization)
