"""A checker of arenas that is independent of their layout algorithm.

It executes two programs side by side, on stamps in place of values: the one in question, and its twin, in which no two
temporary tensors share a byte, so that nothing can overwrite what is still read. Each kernel stamps what it writes. At
every byte that a kernel reads or writes, the program must hold the stamp that its twin holds there; also where it
writes, since it may leave some of the bytes as they are. Which slots a kernel writes stands in its body.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from unittest import mock

import numpy as np

from dmlgpu.compiler.graph import compiler
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel, Slot
from dmlgpu.compiler.schedule.memory import lay_out
from dmlgpu.compiler.target import Target
from tests.kernel_sources import written_bindings

CELL = 16
"""Bytes of a cell; offsets are multiples of it."""
ALIGNMENT = 256


def compiled_pair(graph: GraphDesc, target: Target, disabled: Collection[str] = ()) -> tuple[Program, Program]:
    """Return a graph's program, and its twin with the same kernels but no reuse of temporary memory."""
    network = resolve(graph)
    program = compiler.compile_network(network, target, disabled).program
    with mock.patch("dmlgpu.compiler.schedule.scheduling.lay_out", lambda uses, reuse: lay_out(uses, reuse=False)):
        twin = compiler.compile_network(network, target, disabled).program
    assert [kernel.label for kernel in twin.kernels] == [kernel.label for kernel in program.kernels]
    return program, twin


def overwritten(program: Program, twin: Program) -> Iterator[str]:
    """Yield a message for each slot of a program at which a kernel reads or overwrites another tensor's memory."""
    held, true = (np.full(-(-compiled.temporary_size // CELL), -1) for compiled in (program, twin))
    for index, (kernel, apart) in enumerate(zip(program.kernels, twin.kernels, strict=True)):
        slots = list(zip(_temporaries(kernel), _temporaries(apart), strict=True))
        for (position, slot), (_, own) in slots:
            if slot.offset % CELL or slot.offset + slot.size > program.temporary_size:
                yield f"kernel {index} {kernel.label!r}, slot {position}: {slot} lies outside of the arena"
                continue
            expected = true[_cells(own)]
            if (expected < 0).all() and position not in written_bindings(kernel):
                yield f"kernel {index} {kernel.label!r}, slot {position}: read before it is written"
            wrong = (held[_cells(slot)] != expected) & (expected >= 0)
            if wrong.any():
                by = held[_cells(slot)][wrong.argmax()]
                yield f"kernel {index} {kernel.label!r}, slot {position}: overwritten by kernel {by}"
        for ((_, a), (_, own_a)), ((_, b), (_, own_b)) in itertools.combinations(slots, 2):
            if _meet(a, b) and not _meet(own_a, own_b):
                yield f"kernel {index} {kernel.label!r}: two of its tensors lie in one place"
        for (position, slot), (_, own) in slots:
            if position in written_bindings(kernel):
                held[_cells(slot)] = true[_cells(own)] = index


def least_size(twin: Program) -> int:
    """Return the maximum of live bytes, in units of ALIGNMENT.

    A tensor is what slots of the twin bind that meet; it lives from the first kernel that binds it to the last one.
    """
    bound = [(slot, index) for index, kernel in enumerate(twin.kernels) for _, slot in _temporaries(kernel)]
    tensors: list[tuple[int, int, int, int]] = []  # begin, end, first kernel, last kernel
    for slot, index in sorted(bound, key=lambda binding: binding[0].offset):
        begin, end, first, last = slot.offset, slot.offset + slot.size, index, index
        if tensors and begin < tensors[-1][1]:
            before = tensors.pop()
            begin, end = before[0], max(before[1], end)
            first, last = min(before[2], first), max(before[3], last)
        tensors.append((begin, end, first, last))
    changes = np.zeros(len(twin.kernels) + 1, int)
    for begin, end, first, last in tensors:
        size = -(-(end - begin) // ALIGNMENT) * ALIGNMENT
        changes[first] += size
        changes[last + 1] -= size
    return int(changes.cumsum().max(initial=0))


def _temporaries(kernel: RenderedKernel) -> list[tuple[int, Slot]]:
    """Return the slots in the temporary resource with the indices of their buffers."""
    bindings = kernel.bindings or range(len(kernel.slots))
    return [pair for pair in zip(bindings, kernel.slots, strict=True) if pair[1].role is Role.TEMPORARY]


def _cells(slot: Slot) -> slice:
    return slice(slot.offset // CELL, -(-(slot.offset + slot.size) // CELL))


def _meet(a: Slot, b: Slot) -> bool:
    return a.offset < b.offset + b.size and b.offset < a.offset + a.size
