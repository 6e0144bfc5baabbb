"""Rendering of a schedule as kernels: bodies and interfaces, bindings by role, grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.aliasing import OFFSET_ALIGNMENT
from dmlgpu.compiler.linker import WORDS, BufferInterface, Interface
from dmlgpu.compiler.plan import Allocation, PlanBinding
from dmlgpu.compiler.plan.parts import signature
from dmlgpu.compiler.program import Checks, Copy, KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.schedule.memory import MemoryLayout
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, KernelStep, ScheduledPlan, ScheduledRepeat
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl import library, names
from dmlgpu.compiler.wgsl.parameters import parameterized
from dmlgpu.compiler.wgsl.steps import render_step
from dmlgpu.compiler.wgsl.writer import EXTENSIONS, ShaderWriter

_CHECKED = frozenset({"for", "while", "loop", "workgroup"})
"""Identifiers of WGSL without which a kernel has nothing that wgpu checks: loops, and workgroup memory."""

_BARRIERS = frozenset({"workgroupBarrier", "storageBarrier"})


@dataclass(frozen=True)
class Part:
    """Range of a binding, in bytes; ``is_continued`` if another part follows."""

    offset: int
    size: int
    is_continued: bool = False


Rendered: TypeAlias = tuple[KernelSource, tuple[int, ...], tuple[PlanBinding, ...], tuple[Part, ...]]
"""KernelSource, parameters, and, by slot, the bound resource and its part."""


def render(schedule: ScheduledPlan) -> Program:
    """Return a schedule's kernels, with their bindings and grids. Those that run once, at initialization, read sizes
    from their parameters, also on a specialized target.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that they need, or they are too many.
    """
    target = schedule.target
    memory = schedule.memory
    sources = Sources(target, schedule.doubles)
    initialization, executed = (
        tuple(kernel.placed(memory) for step in steps for kernel in kernels_of(step, schedule.operator, sources))
        for steps in (schedule.initialization, schedule.steps)
    )
    if target.policies.specialized:
        executed = tuple(kernel.with_constants for kernel in executed)
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
        label, source, grid, parameters, copy, varies: As in ``RenderedKernel``.
    """

    label: str
    source: KernelSource
    slots: tuple[tuple[PlanBinding, Part], ...]
    grid: tuple[int, int, int]
    parameters: tuple[int, ...]
    copy: Copy | None
    varies: bool = False

    @property
    def bound(self) -> list[tuple[PlanBinding, int]]:
        """The resources that it binds, and the end of each bound range."""
        return [(binding, binding.offset + part.offset + part.size) for binding, part in self.slots]

    def rebound(self, change: Callable[[PlanBinding], PlanBinding], **changes: Any) -> UnplacedKernel:
        """Return the kernel with other bindings, and other changes."""
        return replace(self, slots=tuple([(change(binding), part) for binding, part in self.slots]), **changes)

    def placed(self, memory: MemoryLayout) -> RenderedKernel:
        """Return the kernel with the offsets of a memory layout."""
        slots = tuple(_slot(binding, part, memory) for binding, part in self.slots)
        return RenderedKernel(
            self.label,
            self.source,
            slots,
            self.grid,
            parameters=self.parameters,
            copy=self.copy,
            varies=self.varies,
        )


def kernels_of(step: AnyScheduled, operator: str, sources: Sources) -> Iterator[UnplacedKernel]:
    """Yield the kernels of a step, iteration by iteration.

    Raises:
        NotSupported: As ``render``.
    """
    repeat = step if isinstance(step, ScheduledRepeat) else ScheduledRepeat((step,), 1, ())
    advances = dict(repeat.advances)
    rendered = [(kernel, *sources.of(kernel)) for kernel in repeat.steps]
    for turn in range(repeat.turns):
        for kernel, source, parameters, bindings, parts in rendered:
            label = f"{operator.lower()} {kernel.label}" + (f" x{kernel.lanes}" if kernel.lanes > 1 else "")
            slots = tuple(
                (binding, replace(part, offset=part.offset + turn * advances.get(binding, 0)))
                for binding, part in zip(bindings, parts, strict=True)
            )
            yield UnplacedKernel(label, source, slots, kernel.launch.grid, parameters, _copy(kernel, bindings))


def _copy(step: KernelStep, bindings: Sequence[PlanBinding]) -> Copy | None:
    """Return a step that only copies words as a copy between its slots."""
    source = step.copied
    if source is None:
        return None
    output, unit = step.output, step.output.unit_bits // 8
    places = bindings.index(source.binding), source.offset * unit, bindings.index(output.binding), output.offset * unit
    return Copy(*places, math.prod(output.sizes) * unit, step.prefers_copy)


class Sources:
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
        (source, parameters, bound, parts), before = self._rendered[key]
        own = dict(zip(before, bindings, strict=True))
        return source, parameters, tuple(own[binding] for binding in bound), parts


def _rendered(step: KernelStep, target: Target, doubles: bool) -> Rendered:
    sized, largest = parameterized(step)
    own = names.Names(largest)
    writer = ShaderWriter(target, own, doubles)
    with names.active(own):
        body, used = writer.finish(render_step(sized, writer))
    bound = [(buffer.binding, step.bound[buffer.binding]) for buffer in writer.buffers]
    parts = [parts_of(size, target.max_binding_size) for _, size in bound]
    _check_bindings(bound, parts, target)
    interface = Interface(
        tuple(
            _in_parts(writer.interface_of(buffer), every) for buffer, every in zip(writer.buffers, parts, strict=True)
        ),
        len(own.sizes),
        tuple(own.divisors),
        target.has("immediates"),
        not _BARRIERS.isdisjoint(used),
        target.has("shader-int64"),
        tuple(extension for extension in EXTENSIONS if extension in used),
    )
    checks = Checks.ALL
    if not target.policies.checked and not _CHECKED.isdisjoint(used):
        checks = Checks.LOOPS if step.keeps_loop_bounds else Checks.NONE
    source = KernelSource(body, interface, step.launch.workgroup, checks, (*own.files, *library.files(used)))
    slots = interface.slots
    resources = tuple(bound[index][0] for index, _ in slots)
    return source, own.parameters, resources, tuple(parts[index][part] for index, part in slots)


def parts_of(size: int, limit: int) -> tuple[Part, ...]:
    """Return the parts in which ``size`` bytes are bound; all but the last have the maximum size."""
    if size <= limit:
        return (Part(0, size),)
    whole = limit // OFFSET_ALIGNMENT * OFFSET_ALIGNMENT
    starts = range(0, size, whole)
    return tuple(Part(start, min(whole, size - start), start + whole < size) for start in starts)


def _in_parts(buffer: BufferInterface, parts: Sequence[Part]) -> BufferInterface:
    """Return a buffer that is bound in parts.

    Raises:
        NotSupported: If it has several, and is updated atomically.
    """
    if len(parts) == 1:
        return buffer
    if buffer.block not in WORDS or "atomic" in buffer.block:
        raise NotSupported(f"a tensor that is updated atomically must fit one binding, got {len(parts)} parts")
    return replace(buffer, part_blocks=parts[0].size // (4 * WORDS[buffer.block]), parts=len(parts))


def _check_bindings(bound: Sequence[tuple[PlanBinding, int]], parts: Sequence[Sequence[Part]], target: Target) -> None:
    """Raise NotSupported if a kernel binds more than an adapter can."""
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


def _slot(binding: PlanBinding, part: Part, memory: MemoryLayout) -> Slot:
    offset = binding.offset + part.offset
    if isinstance(binding.index, Allocation):
        return Slot(binding.role, 0, memory.offset(binding) + offset, part.size, part.is_continued)
    return Slot(binding.role, binding.index, offset, part.size, part.is_continued)
