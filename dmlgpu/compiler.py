"""From an operator's description to its program: upgrade, lower, schedule, render, own inputs, share bindings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu import operators
from dmlgpu.enums import DataType
from dmlgpu.errors import NotSupported
from dmlgpu.kept_programs import memory_of, programs
from dmlgpu.kernels.padding import preserve_padding
from dmlgpu.kernels.sources import identity
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.plan import Binding, Map, Plan, Role, Tensor, View
from dmlgpu.program import Kernel, Program, Slot
from dmlgpu.schedule import Schedule, schedule
from dmlgpu.target import Target
from dmlgpu.tensor import TensorDesc, aligned
from dmlgpu.timings import Timings
from dmlgpu.wgsl.render import render
from dmlgpu.wgsl.sharing import share_known


def compile_operator(desc: OperatorDesc, target: Target) -> Program:
    """Return the program of a checked description; one object while ``programs`` keeps it.

    Raises:
        OperatorNotImplemented: when dmlgpu does not implement the operator yet.
        NotSupported: when the adapter lacks a feature or a limit that it needs.
    """
    return programs.get_or_make((desc, target), lambda: stages(desc, target).program, memory_of)


@dataclass(frozen=True)
class Stages:
    """What an operator's description becomes, one after the other.

    Attributes:
        plan: what is computed.
        schedule: how.
        program: what runs; inputs that the device owns are read from the persistent resource.
    """

    plan: Plan
    schedule: Schedule
    program: Program


def stages(desc: OperatorDesc, target: Target) -> Stages:
    """Return everything that a checked description becomes; it is not kept.

    Raises: as ``compile_operator``.
    """
    start = time.perf_counter()
    try:
        plan = operators.lower(desc, target)
    except NotSupported as error:
        raise NotSupported(f"{desc.operator}: {error}") from None
    if target.preserves_padding:
        plan = preserve_padding(plan, [slot.tensor for slot in desc.outputs])
    try:
        chosen = schedule(plan, target)
        planned = time.perf_counter()
        program = render(chosen)
    except NotSupported as error:
        raise NotSupported(f"{plan.operator}: {error}") from None
    program = share_known(keep_owned(program, [slot.tensor for slot in desc.inputs], target))
    timings = Timings(planned - start, time.perf_counter() - planned)
    return Stages(plan, chosen, replace(program, timings=timings))


def keep_owned(executed: Program, inputs: Sequence[TensorDesc | None], target: Target) -> Program:
    """Return a program with its OWNED_BY_DML inputs read from the persistent resource; initialisation copies there
    what the plan's own initialisation has not laid out anew."""
    owned: dict[int, Slot] = {}
    end = executed.persistent_size
    read = {slot.index for kernel in executed.kernels for slot in kernel.slots if slot.role is Role.INPUT}
    for number, tensor in enumerate(inputs):
        if tensor is not None and tensor.owned_by_dml and number in read:
            owned[number] = Slot(Role.PERSISTENT, 0, end, tensor.byte_size)
            end += aligned(tensor.byte_size)
    if not owned:
        return executed
    copies = tuple(_copy_in(executed.operator, number, slot, target) for number, slot in owned.items())
    kernels = tuple(
        replace(kernel, slots=tuple(_redirect(slot, owned) for slot in kernel.slots)) for kernel in executed.kernels
    )
    return replace(executed, kernels=kernels, initialization=executed.initialization + copies, persistent_size=end)


def _redirect(slot: Slot, owned: dict[int, Slot]) -> Slot:
    if slot.role is not Role.INPUT or slot.index not in owned:
        return slot
    held = owned[slot.index]
    return replace(held, offset=held.offset + slot.offset, size=slot.size)


def _copy_in(operator: str, number: int, slot: Slot, target: Target) -> Kernel:
    """Return a kernel that copies the bytes of an input into its range of the persistent resource."""
    words = (slot.size // 4,)
    source = Tensor(Binding(Role.INPUT, number), DataType.UINT32, words, (1,), View.RAW)
    step = Map(f"own input {number}", identity(source), Tensor.persistent("owned input", DataType.UINT32, words))
    (kernel,) = render(schedule(Plan(operator, (step,)), target)).kernels
    return replace(kernel, slots=tuple(slot if own.role is Role.PERSISTENT else own for own in kernel.slots))
