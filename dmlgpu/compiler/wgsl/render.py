"""Rendering of a schedule as kernels: source, bindings by role, grids."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Allocation, PlanBinding
from dmlgpu.compiler.plan.parts import signature
from dmlgpu.compiler.program import Checks, Copy, Program, RenderedKernel, Slot, with_checks
from dmlgpu.compiler.schedule.memory import MemoryLayout
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, KernelStep, ScheduledPlan, ScheduledRepeat
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.parameters import parameterized, resolve
from dmlgpu.compiler.wgsl.spreading import Part, parts_of, slots_of, spread
from dmlgpu.compiler.wgsl.steps import render_step
from dmlgpu.compiler.wgsl.writer import ShaderWriter

Rendered: TypeAlias = tuple[str, tuple[int, ...], tuple[PlanBinding, ...], tuple[Part, ...]]
"""Source, parameters, and, by slot, the bound resource and its part."""


def render(schedule: ScheduledPlan) -> Program:
    """Return a schedule's kernels as text, with their bindings and grids. Those that run once, at initialization, read
    sizes from their parameters, also on a specialized target.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that they need, or they are too many.
    """
    target = schedule.target
    memory = schedule.memory
    texts = Texts(target.general, schedule.doubles), Texts(target, schedule.doubles)
    initialization, executed = (
        tuple(kernel.placed(memory) for step in steps for kernel in kernels_of(step, schedule.operator, rendered))
        for steps, rendered in zip((schedule.initialization, schedule.steps), texts, strict=True)
    )
    return Program(
        schedule.operator,
        executed,
        initialization,
        memory.temporary.size,
        memory.persistent.size,
        target.has("immediates"),
        least_temporary_size=memory.least_temporary_size,
    )


@dataclass(frozen=True)
class UnplacedKernel:
    """A kernel whose allocations have no offsets yet.

    Attributes:
        slots: Resource of each slot, and its part.
        label, wgsl, grid, parameters, copy: As in ``RenderedKernel``.
    """

    label: str
    wgsl: str
    slots: tuple[tuple[PlanBinding, Part], ...]
    grid: tuple[int, int, int]
    parameters: tuple[int, ...]
    copy: Copy | None

    def placed(self, memory: MemoryLayout) -> RenderedKernel:
        """Return the kernel with the offsets of a memory layout."""
        slots = tuple(_slot(binding, part, memory) for binding, part in self.slots)
        return RenderedKernel(self.label, self.wgsl, slots, self.grid, parameters=self.parameters, copy=self.copy)


def kernels_of(step: AnyScheduled, operator: str, texts: Texts) -> Iterator[UnplacedKernel]:
    """Yield the kernels of a step, iteration by iteration.

    Raises:
        NotSupported: As ``render``.
    """
    repeat = step if isinstance(step, ScheduledRepeat) else ScheduledRepeat((step,), 1, ())
    advances = dict(repeat.advances)
    rendered = [(kernel, *texts.of(kernel)) for kernel in repeat.steps]
    for turn in range(repeat.turns):
        for kernel, text, parameters, bindings, parts in rendered:
            label = f"{operator.lower()} {kernel.label}" + (f" x{kernel.lanes}" if kernel.lanes > 1 else "")
            slots = tuple(
                (binding, replace(part, offset=part.offset + turn * advances.get(binding, 0)))
                for binding, part in zip(bindings, parts, strict=True)
            )
            yield UnplacedKernel(label, text, slots, kernel.launch.grid, parameters, _copy(kernel, bindings))


def _copy(step: KernelStep, bindings: Sequence[PlanBinding]) -> Copy | None:
    """Return a step that only copies words as a copy between its slots."""
    source = step.copied
    if source is None:
        return None
    output, unit = step.output, step.output.unit_bits // 8
    places = bindings.index(source.binding), source.offset * unit, bindings.index(output.binding), output.offset * unit
    return Copy(*places, math.prod(output.sizes) * unit, step.prefers_copy)


class Texts:
    """Cache of sources, bindings and their sizes, shared by steps that differ only in label and bindings."""

    def __init__(self, target: Target, doubles: bool):
        self._target, self._doubles = target, doubles
        self._rendered: dict[Hashable, tuple[Rendered, tuple[PlanBinding, ...]]] = {}

    def of(self, step: KernelStep) -> Rendered:
        """Return the rendered kernel of a step."""
        key, bindings = signature(replace(step, label=""))
        if key is None:
            return _rendered(step, self._target, self._doubles)
        if key not in self._rendered:
            self._rendered[key] = _rendered(step, self._target, self._doubles), bindings
        (text, parameters, bound, parts), before = self._rendered[key]
        own = dict(zip(before, bindings, strict=True))
        return text, parameters, tuple(own[binding] for binding in bound), parts


def _rendered(step: KernelStep, target: Target, doubles: bool) -> Rendered:
    writer = ShaderWriter(target, doubles)
    rendered, largest = (step, 0) if target.policies.specialized else parameterized(step)
    text = writer.finish(render_step(rendered, writer))
    bound = [(buffer.binding, step.bound[buffer.binding]) for buffer in writer.buffers]
    parts = [parts_of(size, target.max_binding_size) for _, size in bound]
    if len(bound) > target.slots:
        raise NotSupported(f"{len(bound)} buffers in one kernel exceed what {target.name!r} binds ({target.slots})")
    if sum(map(len, parts)) > target.bindings:
        binding, size = max(bound, key=lambda each: each[1])
        resource = binding.index.label if isinstance(binding.index, Allocation) else binding.index
        raise NotSupported(
            f"{binding.role} {resource} takes {size:,} bytes, but {target.name!r} binds at most "
            f"{target.max_binding_size:,} at once and has {target.bindings} bindings; split the tensors, for example "
            "along axis 0"
        )
    slots = slots_of(parts)
    text = spread(text, parts) if len(slots) > len(bound) else text
    text, parameters = (text, ()) if target.policies.specialized else resolve(text, len(slots), largest, target)
    if not target.policies.checked:
        text = with_checks(text, Checks.LOOPS if step.keeps_loop_bounds else Checks.NONE)
    return (
        text,
        parameters,
        tuple(bound[index][0] for index, _ in slots),
        tuple(parts[index][part] for index, part in slots),
    )


def _slot(binding: PlanBinding, part: Part, memory: MemoryLayout) -> Slot:
    offset = binding.offset + part.offset
    if isinstance(binding.index, Allocation):
        return Slot(binding.role, 0, memory.offset(binding) + offset, part.size, part.is_continued)
    return Slot(binding.role, binding.index, offset, part.size, part.is_continued)
