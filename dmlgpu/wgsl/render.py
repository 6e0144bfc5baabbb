"""From a schedule to kernels: text, bindings by role, grids, and where what is bound lies."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dmlgpu.errors import NotSupported
from dmlgpu.plan import MOST_KERNELS, Allocation, Binding, Role
from dmlgpu.plan.parts import signature
from dmlgpu.program import Copy, Kernel, Program, Slot
from dmlgpu.schedule.memory import Arena, Use, lay_out, lay_out_persistent, least_size
from dmlgpu.schedule.steps import AnyScheduled, Schedule, Scheduled, ScheduledMap, ScheduledRepeat
from dmlgpu.target import Target
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps import render_step

Rendered: TypeAlias = tuple[str, tuple[int, int, int], tuple[Binding, ...], tuple[int, ...]]
"""Text, grid, bindings in order, and the bytes of each."""


def render(schedule: Schedule) -> Program:
    """Return a schedule's kernels as text, with their bindings and grids.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that they need, or they are too many.
    """
    target = schedule.target
    texts = _Texts(target)
    initialization = [_turns(schedule.operator, step, texts) for step in schedule.initialization]
    executed = [_turns(schedule.operator, step, texts) for step in schedule.steps]
    count = sum(turns.count * len(turns.kernels_of_turn) for turns in executed)
    if count > MOST_KERNELS:
        raise NotSupported(f"{count} kernels one after the other exceed the {MOST_KERNELS} that one execution may have")
    arenas = {
        Role.TEMPORARY: lay_out(_uses(executed, Role.TEMPORARY), reuse=True),
        Role.PERSISTENT: lay_out_persistent(_uses(initialization, Role.PERSISTENT), _uses(executed, Role.PERSISTENT)),
    }
    return Program(
        schedule.operator,
        tuple(kernel for turns in executed for kernel in turns.kernels(arenas)),
        tuple(kernel for turns in initialization for kernel in turns.kernels(arenas)),
        arenas[Role.TEMPORARY].size,
        arenas[Role.PERSISTENT].size,
        target.has("immediates"),
        least_temporary_size=least_size(_uses(executed, Role.TEMPORARY)),
    )


@dataclass(frozen=True)
class _Kernel:
    """A kernel whose bindings have no offsets yet.

    Attributes:
        sizes: bytes of each binding.
        copy: all that it does, where that is a copy.
    """

    label: str
    wgsl: str
    grid: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    sizes: tuple[int, ...]
    copy: Copy | None


@dataclass(frozen=True)
class _Turns:
    """Kernels that are executed so many times in turn, and what is bound moves by so many bytes in between."""

    kernels_of_turn: tuple[_Kernel, ...]
    count: int
    advances: Mapping[Binding, int]

    def uses(self, number: int, role: Role) -> Iterator[Use]:
        """Yield the use of allocations in one of the resources."""
        for kernel in self.kernels_of_turn:
            for binding, size in zip(kernel.bindings, kernel.sizes, strict=True):
                if binding.role is role and isinstance(binding.index, Allocation):
                    moved = (self.count - 1) * max(self.advances.get(binding, 0), 0)
                    yield Use(number, binding.index, binding.offset + size + moved)

    def kernels(self, arenas: Mapping[Role, Arena]) -> Iterator[Kernel]:
        """Yield the kernels of all turns, in order."""
        for turn in range(self.count):
            for kernel in self.kernels_of_turn:
                slots = tuple(
                    _slot(binding, size, turn * self.advances.get(binding, 0), arenas)
                    for binding, size in zip(kernel.bindings, kernel.sizes, strict=True)
                )
                yield Kernel(kernel.label, kernel.wgsl, slots, kernel.grid, copy=kernel.copy)


def _uses(steps: Sequence[_Turns], role: Role) -> Iterator[Use]:
    for number, turns in enumerate(steps):
        yield from turns.uses(number, role)


def _turns(operator: str, step: AnyScheduled, texts: _Texts) -> _Turns:
    repeat = ScheduledRepeat((step,), 1, ()) if isinstance(step, Scheduled) else step
    kernels = tuple(_kernel(operator, inner, texts) for inner in repeat.steps)
    return _Turns(kernels, repeat.turns, dict(repeat.advances))


def _kernel(operator: str, step: Scheduled, texts: _Texts) -> _Kernel:
    label = f"{operator.lower()} {step.label}" + (f" x{step.lanes}" if step.lanes > 1 else "")
    text, grid, bindings, sizes = texts.of(step)
    return _Kernel(label, text, grid, bindings, sizes, _copy(step, bindings))


def _copy(step: Scheduled, bindings: Sequence[Binding]) -> Copy | None:
    """Return what a step copies, where it does nothing else than copy whole words that lie side by side."""
    source = step.copied if isinstance(step, ScheduledMap) else None
    if source is None:
        return None
    output, unit = step.output, step.output.unit_bits // 8
    places = bindings.index(source.binding), source.offset * unit, bindings.index(output.binding), output.offset * unit
    return Copy(*places, math.prod(output.sizes) * unit)


class _Texts:
    """Text, grid, bindings and their sizes, rendered once for all steps that differ only in label and bindings."""

    def __init__(self, target: Target):
        self._target = target
        self._rendered: dict[Hashable, tuple[Rendered, tuple[Binding, ...]]] = {}

    def of(self, step: Scheduled) -> Rendered:
        """Return what is rendered for a step."""
        key, bindings = signature(replace(step, label=""))
        if key is None:
            return _rendered(step, self._target)
        if key not in self._rendered:
            self._rendered[key] = _rendered(step, self._target), bindings
        (text, grid, bound, sizes), there = self._rendered[key]
        here = dict(zip(there, bindings, strict=True))
        return text, grid, tuple(here[binding] for binding in bound), sizes


def _rendered(step: Scheduled, target: Target) -> Rendered:
    builder = Builder(target)
    text = builder.finish(render_step(step, builder))
    bindings = tuple(buffer.binding for buffer in builder.buffers)
    if len(bindings) > target.max_storage_buffers:
        raise NotSupported(
            f"{len(bindings)} buffers in one kernel exceed what {target.name!r} binds ({target.max_storage_buffers})"
        )
    sizes = tuple(max(tensor.reach for tensor in builder.tensors if tensor.binding == binding) for binding in bindings)
    for binding, size in zip(bindings, sizes, strict=True):
        if size > target.max_binding_size:
            what = binding.index.label if isinstance(binding.index, Allocation) else binding.index
            raise NotSupported(
                f"{binding.role} {what} takes {size:,} bytes,"
                f" but {target.name!r} binds at most {target.max_binding_size:,} at once"
            )
    return text, step.launch.grid, bindings, sizes


def _slot(binding: Binding, size: int, moved: int, arenas: Mapping[Role, Arena]) -> Slot:
    if isinstance(binding.index, Allocation):
        start = arenas[binding.role].offsets[binding.index]
        return Slot(binding.role, 0, start + binding.offset + moved, size)
    return Slot(binding.role, binding.index, binding.offset + moved, size)
