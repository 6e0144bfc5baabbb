"""Base of scheduled steps, and schedules of several steps."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role
from dmlgpu.compiler.plan.parts import replace_parts, tensors
from dmlgpu.compiler.schedule.launch import Launch
from dmlgpu.compiler.schedule.memory import MemoryLayout
from dmlgpu.compiler.sizes.arithmetic import largest
from dmlgpu.compiler.target import Target


@dataclass(frozen=True)
class KernelStep:
    """A step with all choices made; each kind is a subclass.

    Attributes:
        label: the schedule and its special properties, for profilers and messages.
        launch: the shape of the dispatch.
        output: the tensor that it writes.
        reason: reason for the schedule, for explanations.
    """

    label: str
    launch: Launch
    output: PlanTensor
    reason: str = field(default="", compare=False, kw_only=True)

    @property
    def template(self) -> str:
        """Shader file of the kernel, in which fields and properties of the step have their names."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[tuple[str, str], ...]:
        """Parts of the step that the template accesses by functions, in order: a name, and the path of the part.

        ``element`` computes a unit of the output by a body, and ``finish`` by an epilogue from sums in float32. Every
        other name is that of a source, which is read by ``<name>_load``, or None.
        """
        return ()

    @property
    def portable(self) -> bool:
        """Whether sources are read in types that all adapters have, and the output is written from them unless the tree
        that computes it says otherwise."""
        return True

    @property
    def atomic(self) -> bool:
        """Whether units of the output share words that several invocations write."""
        return self.output.unit_bits < WORD_BITS

    @property
    def wide(self) -> bool:
        """Whether the output is written in blocks of 16 bytes, with 64-bit integers."""
        return False

    @property
    def subgroup(self) -> int:
        """Minimum subgroup size, if invocations exchange values by subgroup operations; else 0."""
        return self.launch.subgroup

    @property
    def kind(self) -> str:
        """Kind of schedule, from the name of its class: ``map``, ``contract``."""
        return type(self).__name__.removeprefix("Scheduled").lower()

    @property
    def title(self) -> str:
        """Label, with the kind unless the label contains it."""
        return f"{self.label} ({self.kind})" if self.kind not in self.label else self.label

    @property
    def lanes(self) -> int:
        """Number of elements of a unit, for labels."""
        return self.output.lanes

    @functools.cached_property
    def bound(self) -> dict[PlanBinding, int]:
        """Bytes that are bound of each resource: up to the end of the last tensor in it, in whole words."""
        sizes: dict[PlanBinding, int] = {}
        for tensor in (self.output, *tensors(self)):
            sizes[tensor.binding] = largest(sizes.get(tensor.binding, 0), tensor.reach)
        return sizes

    @property
    def unlabeled(self) -> Self:
        """The step without its label and reason, as a part of another one."""
        return replace(self, label="", reason="")

    @property
    def copied(self) -> PlanTensor | None:
        """Tensor whose words are copied to the output's unchanged, if the step does nothing else; else None."""
        return None

    @property
    def keeps_loop_bounds(self) -> bool:
        """Whether wgpu's bounds of loops remain in a kernel without its other checks. They keep compilers from
        unrolling loops: over the elements of a row, RADV then wrote up to 14 times the instructions, in up to 256
        registers."""
        return False

    @property
    def prefers_copy(self) -> bool:
        """Whether a copy between buffers should replace the step, if it only copies."""
        return False


def buffers(*kernels: KernelStep) -> int:
    """Return the number of buffers that kernels bind if they are one: one for each tensor and size of unit."""
    every = (tensor for kernel in kernels for tensor in tensors(kernel))
    return len({(tensor.binding, max(tensor.unit_bits, WORD_BITS)) for tensor in every})


@dataclass(frozen=True)
class ScheduledRepeat:
    """A loop over scheduled steps (see ``plan.Repeat``)."""

    steps: tuple[KernelStep, ...]
    turns: int
    advances: tuple[tuple[PlanBinding, int], ...]


AnyScheduled = KernelStep | ScheduledRepeat


@dataclass(frozen=True)
class ScheduledSteps:
    """Scheduled steps, in order.

    Attributes:
        steps: executed at each dispatch.
        initialization: executed once, when the operator is initialized: they read inputs that are OWNED_BY_DML and
            write persistent tensors, where ``steps`` find them.
    """

    steps: tuple[AnyScheduled, ...] = ()
    initialization: tuple[AnyScheduled, ...] = ()

    def __add__(self, other: ScheduledSteps) -> ScheduledSteps:
        return ScheduledSteps(self.steps + other.steps, self.initialization + other.initialization)

    def because(self, reason: str) -> ScheduledSteps:
        """Return the steps with a reason before their own."""

        def explained(step: KernelStep) -> KernelStep:
            return replace(step, reason="; ".join(filter(None, (reason, step.reason))))

        def each(step: AnyScheduled) -> AnyScheduled:
            if isinstance(step, ScheduledRepeat):
                return replace(step, steps=tuple(map(explained, step.steps)))
            return explained(step)

        return ScheduledSteps(tuple(map(each, self.steps)), tuple(map(each, self.initialization)))

    @property
    def as_initialization(self) -> ScheduledSteps:
        """Return the steps, executed once, with their temporary tensors in the persistent resource too."""

        def persistent(binding: PlanBinding) -> PlanBinding:
            return replace(binding, role=Role.PERSISTENT) if binding.role is Role.TEMPORARY else binding

        steps = (*self.initialization, *self.steps)
        return ScheduledSteps((), tuple(replace_parts(step, PlanBinding, persistent) for step in steps))


@dataclass(frozen=True)
class ScheduledPlan:
    """Schedule of a plan on a target: kernels in order, with all choices made.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        target: compile target.
        steps, initialization: as for ``ScheduledSteps``.
        memory: layout of the temporary and persistent tensors.
        doubles: kernels read and write two words as one 64-bit number.
    """

    operator: str
    target: Target
    steps: tuple[AnyScheduled, ...]
    initialization: tuple[AnyScheduled, ...]
    memory: MemoryLayout
    doubles: bool

    def __str__(self) -> str:
        """Return a readable text: launch, units and reason of each kernel."""
        kernels = [("", *kernel) for kernel in in_turns(self.steps)]
        kernels += [("at initialization: ", *kernel) for kernel in in_turns(self.initialization)]
        count = f"{len(kernels)} kernel{'s' if len(kernels) != 1 else ''}"
        lines, before = [f"schedule of {self.operator} for {self.target.name!r} ({self.target.profile}): {count}"], ""
        for index, (when, step, turns) in enumerate(kernels, start=1):
            groups = " x ".join(map(str, step.launch.grid))
            plural = "s" if step.launch.total != 1 else ""
            units = f" in units of {step.lanes} elements" if step.lanes > 1 else ""
            repeated = f", {turns} times" if turns > 1 else ""
            lines.append(
                f"  {index}. {when}{step.title}: {step.launch.total:,} item{plural}{units},"
                f" {groups} workgroups of {step.launch.workgroup}{repeated}"
            )
            lines += [f"       why: {step.reason}"] if step.reason and step.reason != before else []
            before = step.reason
        return "\n".join(lines)


def in_turns(steps: Iterable[AnyScheduled]) -> Iterator[tuple[KernelStep, int]]:
    """Yield the kernels of scheduled steps, repeated ones once, with the number of executions."""
    for step in steps:
        if isinstance(step, ScheduledRepeat):
            yield from ((inner, step.turns) for inner in step.steps)
        else:
            yield step, 1
