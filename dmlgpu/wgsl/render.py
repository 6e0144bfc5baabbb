"""From a plan's steps to kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dmlgpu.errors import NotSupported
from dmlgpu.plan import Binding, Plan, Repeat, Role, Step, Tensor
from dmlgpu.program import Kernel, Program, Slot
from dmlgpu.target import Target
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.steps import render_step

ALIGNMENT = 256
"""Alignment in bytes of the ranges of the temporary and the persistent resource."""


def render(plan: Plan, target: Target) -> Program:
    """A plan's kernels as text, with their bindings and grids.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that the plan needs.
    """
    temporary, persistent = _Arena.of(plan.temporaries), _Arena.of(plan.persistents)
    arenas = {Role.TEMPORARY: temporary, Role.PERSISTENT: persistent}
    immediates = target.has("immediates")

    def kernels(steps: tuple[Step, ...]) -> tuple[Kernel, ...]:
        found: list[Kernel] = []
        for step in steps:
            repeat = step if isinstance(step, Repeat) else Repeat(step.label, (step,), 1, ())
            one_turn = [_kernel(plan.operator, inner, target, immediates, arenas) for inner in repeat.steps]
            found += _turns(repeat, one_turn)
        return tuple(found)

    try:
        executed, initialization = kernels(plan.steps), kernels(plan.initialization)
    except NotSupported as error:
        raise NotSupported(f"{plan.operator}: {error}") from None
    return Program(plan.operator, executed, initialization, temporary.size, persistent.size, immediates)


@dataclass(frozen=True)
class _Arena:
    """Byte ranges laid one after the other in one resource, at 256-byte boundaries."""

    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, sizes: tuple[int, ...]) -> _Arena:
        offsets, end = [], 0
        for size in sizes:
            offsets.append(end)
            end += -(-size // ALIGNMENT) * ALIGNMENT
        return cls(tuple(offsets), end)


_Bound = tuple[Kernel, tuple[Binding, ...]]
"""A kernel, and which resource each of its slots is of."""


def _turns(repeat: Repeat, kernels: Iterable[_Bound]) -> Iterator[Kernel]:
    """The kernels of the first turn, turn after turn, their slots moved."""
    advances = dict(repeat.advances)
    moving = [(kernel, [advances.get(binding, 0) for binding in bindings]) for kernel, bindings in kernels]
    for turn in range(repeat.turns):
        for kernel, moves in moving:
            slots = zip(kernel.slots, moves, strict=True)
            yield replace(kernel, slots=tuple(replace(slot, offset=slot.offset + turn * move) for slot, move in slots))


def _kernel(operator: str, step: Step, target: Target, immediates: bool, arenas: Mapping[Role, _Arena]) -> _Bound:
    builder = Builder(target)
    rendered = render_step(step, builder, target)
    label = f"{operator.lower()} {step.label}" + (f" x{rendered.lanes}" if rendered.lanes > 1 else "")
    slots = tuple(_slot(buffer.binding, rendered.tensors, target, arenas) for buffer in builder.buffers)
    if len(slots) > target.max_storage_buffers:
        raise NotSupported(
            f"{len(slots)} buffers in one kernel exceed what {target.name!r} binds ({target.max_storage_buffers})"
        )
    kernel = Kernel(label, builder.finish(rendered.text, immediates), slots, rendered.launch.grid)
    return kernel, tuple(buffer.binding for buffer in builder.buffers)


def _reach(tensor: Tensor) -> int:
    """Bytes from the start of a tensor's resource to the end of its last unit, rounded up to words."""
    unit_bits = tensor.unit_bits
    last = tensor.offset + sum(
        (size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True) if stride > 0
    )
    return -(-(last + 1) * unit_bits // 32) * 4


def _slot(binding: Binding, tensors: tuple[Tensor, ...], target: Target, arenas: Mapping[Role, _Arena]) -> Slot:
    size = max(_reach(tensor) for tensor in tensors if tensor.binding == binding)
    if size > target.max_binding_size:
        raise NotSupported(
            f"{binding.role} {binding.index} takes {size:,} bytes,"
            f" but {target.name!r} binds at most {target.max_binding_size:,} at once"
        )
    if binding.role in arenas:
        return Slot(binding.role, 0, arenas[binding.role].offsets[binding.index] + binding.offset, size)
    return Slot(binding.role, binding.index, binding.offset, size)
