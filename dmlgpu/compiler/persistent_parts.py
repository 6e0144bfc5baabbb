"""Parts of a persistent resource: ranges that buffers of their own can hold, filled one after the other."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from dmlgpu.catalog.tensor_desc import PERSISTENT_ALIGNMENT
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel


@dataclass(frozen=True)
class PersistentPart:
    """A range of a persistent resource that no binding leaves.

    Attributes:
        begin, end: Bytes of the resource; ``begin`` is a multiple of 256.
        is_lasting: Whether executions read it; else only the initialization does.
    """

    begin: int
    end: int
    is_lasting: bool

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.begin


@dataclass(frozen=True)
class FilledParts:
    """Parts that some kernels of the initialization fill together.

    Attributes:
        parts: The parts.
        kernels: Indices of the kernels, in order.
        inputs: Indices of the inputs that they read.
    """

    parts: tuple[PersistentPart, ...]
    kernels: tuple[int, ...]
    inputs: tuple[int, ...]

    def key(self, program: Program, sources: Sequence[Hashable]) -> Hashable:
        """Return a key of the contents, equal for programs that lay out weights alike.

        Args:
            program: The program.
            sources: Key of the content of each input.
        """
        begins = [part.begin for part in self.parts]

        def source(role: Role, index: int, offset: int) -> Hashable:
            if role is Role.INPUT:
                return sources[index], offset
            if role is Role.CONSTANT:
                return program.constants[index], offset
            part = bisect_right(begins, offset) - 1
            return part, offset - begins[part]

        kernels = tuple(
            (
                *(kernel.wgsl, kernel.parameters, kernel.grid),
                *((s.role, source(s.role, s.index, s.offset), s.size, s.is_continued) for s in kernel.slots),
            )
            for kernel in (program.initialization[index] for index in self.kernels)
        )
        return kernels, tuple((part.size, part.is_lasting) for part in self.parts)

    def copied_input(self, program: Program) -> int | None:
        """Return the input whose bytes a single part holds unchanged, from its first one on; None if there is none."""
        if len(self.kernels) != 1 or len(self.parts) != 1:
            return None
        kernel, (part,) = program.initialization[self.kernels[0]], self.parts
        copy = kernel.copy
        if copy is None or len(kernel.slots) != 2:
            return None
        source, destination = kernel.slots[copy.source], kernel.slots[copy.destination]
        is_whole = source.offset + copy.source_offset == 0 and copy.size == part.size
        is_same = source.role is Role.INPUT and destination.offset + copy.destination_offset == part.begin
        return source.index if is_whole and is_same else None


def filled_parts(program: Program) -> list[FilledParts]:
    """Return the parts of a program's persistent resource. Those that read an input follow each other."""
    parts = _parts(program)
    begins = [part.begin for part in parts]
    groups: dict[int, int] = {}  # of each part, by its index

    def root(part: int) -> int:
        while groups.setdefault(part, part) != part:
            part = groups[part]
        return part

    touched = []
    for kernel in program.initialization:
        offsets = [slot.offset for slot in kernel.slots if slot.role is Role.PERSISTENT]
        touched.append(sorted({bisect_right(begins, offset) - 1 for offset in offsets}))
        for part, other in itertools.pairwise(touched[-1]):
            groups[root(other)] = root(part)
    kernels: dict[int, list[int]] = {}
    for index, indices in enumerate(touched):
        if indices:
            kernels.setdefault(root(indices[0]), []).append(index)
    members: dict[int, list[PersistentPart]] = {}
    for number, member in enumerate(parts):
        members.setdefault(root(number), []).append(member)
    filled = []
    for group, indices in kernels.items():
        inputs = sorted(
            {slot.index for index in indices for slot in program.initialization[index].slots if slot.role is Role.INPUT}
        )
        filled.append(FilledParts(tuple(members[group]), tuple(indices), tuple(inputs)))
    first: dict[int, int] = {}
    for index, each in enumerate(filled):
        for source in each.inputs:
            first.setdefault(source, index)
    order = [min((first[source] for source in each.inputs), default=index) for index, each in enumerate(filled)]
    return [each for _, each in sorted(zip(order, filled, strict=True), key=lambda pair: pair[0])]


def _parts(program: Program) -> list[PersistentPart]:
    """Return the ranges in which all bindings of the persistent resource lie, in order."""
    executed = {span for kernel in program.kernels for span in _spans(kernel)}
    spans = sorted({*executed, *(span for kernel in program.initialization for span in _spans(kernel))})
    merged: list[list[int]] = []
    for begin, end in spans:
        if merged and begin < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    starts = [begin for begin, _ in merged]
    lasting = {bisect_right(starts, begin) - 1 for begin, _ in executed}
    return [PersistentPart(begin, end, index in lasting) for index, (begin, end) in enumerate(merged)]


def _spans(kernel: RenderedKernel) -> Iterable[tuple[int, int]]:
    """Return the ranges that a kernel's bindings of the persistent resource cover, from aligned bytes on."""
    by_binding: dict[int, tuple[int, int]] = {}
    for binding, slot in zip(kernel.bindings or range(len(kernel.slots)), kernel.slots, strict=True):
        if slot.role is Role.PERSISTENT:
            begin, end = by_binding.get(binding, (slot.offset, 0))
            by_binding[binding] = min(begin, slot.offset), max(end, slot.offset + slot.size)
    for begin, end in by_binding.values():
        yield begin - begin % PERSISTENT_ALIGNMENT, end
