"""From a schedule to kernels: text, bindings by role, grids."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Allocation, Binding
from dmlgpu.compiler.plan.parts import signature
from dmlgpu.compiler.program import Copy, Kernel, Program, Slot
from dmlgpu.compiler.schedule.memory import MemoryLayout
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, Schedule, Scheduled, ScheduledRepeat
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.steps import render_step
from dmlgpu.compiler.wgsl.writer import ShaderWriter

Rendered: TypeAlias = tuple[str, tuple[Binding, ...], tuple[int, ...]]
"""Text, bindings in order, and the bytes of each."""


def render(schedule: Schedule) -> Program:
    """Return a schedule's kernels as text, with their bindings and grids.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that they need, or they are too many.
    """
    target = schedule.target
    texts, memory = _Texts(target, schedule.doubles), schedule.memory
    initialization, executed = (
        tuple(kernel for step in steps for kernel in _kernels(schedule, step, texts))
        for steps in (schedule.initialization, schedule.steps)
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


def _kernels(schedule: Schedule, step: AnyScheduled, texts: _Texts) -> Iterator[Kernel]:
    """Yield the kernels of a step, turn after turn."""
    repeat = step if isinstance(step, ScheduledRepeat) else ScheduledRepeat((step,), 1, ())
    advances = dict(repeat.advances)
    rendered = [(kernel, *texts.of(kernel)) for kernel in repeat.steps]
    for turn in range(repeat.turns):
        for kernel, text, bindings, sizes in rendered:
            label = f"{schedule.operator.lower()} {kernel.label}" + (f" x{kernel.lanes}" if kernel.lanes > 1 else "")
            slots = tuple(
                _slot(binding, size, turn * advances.get(binding, 0), schedule.memory)
                for binding, size in zip(bindings, sizes, strict=True)
            )
            yield Kernel(label, text, slots, kernel.launch.grid, copy=_copy(kernel, bindings))


def _copy(step: Scheduled, bindings: Sequence[Binding]) -> Copy | None:
    """Return a step that copies words, and does nothing else, as a copy between its slots."""
    source = step.copied
    if source is None:
        return None
    output, unit = step.output, step.output.unit_bits // 8
    places = bindings.index(source.binding), source.offset * unit, bindings.index(output.binding), output.offset * unit
    return Copy(*places, math.prod(output.sizes) * unit)


class _Texts:
    """Text, bindings and their sizes, rendered once for all steps that differ only in label and bindings."""

    def __init__(self, target: Target, doubles: bool):
        self._target, self._doubles = target, doubles
        self._rendered: dict[Hashable, tuple[Rendered, tuple[Binding, ...]]] = {}

    def of(self, step: Scheduled) -> Rendered:
        """Return what is rendered for a step."""
        key, bindings = signature(replace(step, label=""))
        if key is None:
            return _rendered(step, self._target, self._doubles)
        if key not in self._rendered:
            self._rendered[key] = _rendered(step, self._target, self._doubles), bindings
        (text, bound, sizes), before = self._rendered[key]
        own = dict(zip(before, bindings, strict=True))
        return text, tuple(own[binding] for binding in bound), sizes


def _rendered(step: Scheduled, target: Target, doubles: bool) -> Rendered:
    writer = ShaderWriter(target, doubles)
    text = writer.finish(render_step(step, writer))
    bindings = tuple(buffer.binding for buffer in writer.buffers)
    if len(bindings) > target.max_storage_buffers:
        raise NotSupported(
            f"{len(bindings)} buffers in one kernel exceed what {target.name!r} binds ({target.max_storage_buffers})"
        )
    bound = step.bound
    sizes = tuple(bound[binding] for binding in bindings)
    for binding, size in zip(bindings, sizes, strict=True):
        if size > target.max_binding_size:
            what = binding.index.label if isinstance(binding.index, Allocation) else binding.index
            raise NotSupported(
                f"{binding.role} {what} takes {size:,} bytes,"
                f" but {target.name!r} binds at most {target.max_binding_size:,} at once"
            )
    return text, bindings, sizes


def _slot(binding: Binding, size: int, moved: int, memory: MemoryLayout) -> Slot:
    if isinstance(binding.index, Allocation):
        return Slot(binding.role, 0, memory.offset(binding) + binding.offset + moved, size)
    return Slot(binding.role, binding.index, binding.offset + moved, size)
