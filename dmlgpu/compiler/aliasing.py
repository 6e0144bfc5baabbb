"""Slots of a dispatch that share a binding.

The WebGPU standard lets no two writable bindings of a dispatch overlap: compilers may reorder accesses through
different variables. All storage is writable here, and a binding begins at a multiple of the adapter's offset alignment.
So ranges that meet, once they begin at such multiples, are bound once, and each tensor lies at its own base offset in
the binding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.linker import Bindings
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel, Slot

OFFSET_ALIGNMENT = 256
"""Largest offset alignment that the WebGPU standard lets an adapter require."""

Range = tuple[Any, int, int]
"""A resource (any hashable value), an offset and a number of bytes."""


class BindingLayout(NamedTuple):
    """The bindings of a dispatch.

    Attributes:
        bindings: the binding of each slot.
        bound: the range of each binding; its offset is a multiple of the alignment.
        bases: words from the start of its binding to the start of each slot.
    """

    bindings: Bindings
    bound: list[Range]
    bases: tuple[int, ...]


def layout(ranges: Sequence[Range], bindings: Bindings, alignment: int) -> BindingLayout:
    """Bind the ranges of a kernel's slots.

    Args:
        ranges: of each slot.
        bindings: those of the kernel. If more ranges overlap, others are returned, for which it is linked again.
        alignment: alignment of the offsets of bindings.
    """
    bound, bases = [], []
    numbers: dict[Any, int] = {}
    for resource, start, size in ranges:
        base = start % alignment
        bound.append((resource, start - base, size + base))
        bases.append(base // 4)
        numbers.setdefault(resource, len(numbers))
    if not bindings and len(numbers) == len(bound):
        return BindingLayout((), bound, tuple(bases))
    places = tuple([(numbers[resource], start, size) for resource, start, size in ranges])
    bindings, spans, shared_bases = _shared_layout(places, bindings, alignment)
    return BindingLayout(bindings, [(ranges[slot][0], begin, size) for slot, begin, size in spans], shared_bases)


def range_of(slot: Slot, resource: Any, offset: int, alignment: int) -> Range:
    """Return the range of a slot in a resource that is bound from an offset on.

    A slot that is continued ends where the binding of the next one begins, so that the two never meet.
    """
    start = offset + slot.offset
    return resource, start, slot.size - (start % alignment if slot.is_continued else 0)


def known_bindings(slots: Sequence[Slot]) -> Bindings:
    """Return the bindings of a kernel's slots as far as they are known before resources are bound.

    Temporary and persistent resources begin at multiples of 256 bytes, tensors at multiples of 16.
    """
    if len({(slot.role, slot.index) for slot in slots}) == len(slots):
        return ()
    bound = []
    for slot in slots:
        in_arena = slot.role in (Role.TEMPORARY, Role.PERSISTENT)
        before = slot.offset % OFFSET_ALIGNMENT if in_arena else OFFSET_ALIGNMENT - TENSOR_ALIGNMENT
        size = slot.size + (0 if slot.is_continued else before)
        bound.append(((slot.role, slot.index), slot.offset - before, size))
    return _binding_indices(_meeting(bound, ()))


def share_known(program: Program) -> Program:
    """Return the program with one binding for slots whose ranges always overlap.

    Raises:
        NotSupported: If slots with incompatible blocks of a resource would share.
    """

    def shared(kernels: tuple[RenderedKernel, ...]) -> tuple[RenderedKernel, ...]:
        return tuple(with_bindings(program.operator, kernel, known_bindings(kernel.slots)) for kernel in kernels)

    return replace(program, kernels=shared(program.kernels), initialization=shared(program.initialization))


def with_bindings(operator: str, kernel: RenderedKernel, bindings: Bindings) -> RenderedKernel:
    """Return the kernel with other bindings, in which more slots share.

    Raises:
        NotSupported: If slots with incompatible blocks of a resource would share.
    """
    if bindings == kernel.bindings:
        return kernel
    shared = replace(kernel, bindings=bindings)
    try:
        shared.link()
    except NotSupported as error:
        raise NotSupported(f"{operator}: kernel {kernel.label!r}: {error}") from None
    return shared


class _Span(NamedTuple):
    """Range of a resource that some slots use, relative to the start of their binding."""

    begin: int
    end: int
    slots: tuple[int, ...]

    def joined(self, other: _Span) -> _Span:
        """Return the union of two ranges."""
        slots = tuple(sorted(self.slots + other.slots))
        return _Span(min(self.begin, other.begin), max(self.end, other.end), slots)


@functools.lru_cache(maxsize=4096)  # of some numbers each
def _shared_layout(ranges: Sequence[Range], bindings: Bindings, alignment: int) -> BindingLayout:
    """As ``layout``, with the first slot of each binding in place of its resource."""
    widened = [(resource, start - start % alignment, size + start % alignment) for resource, start, size in ranges]
    spans = _meeting(widened, bindings)
    begins = {slot: span.begin for span in spans for slot in span.slots}
    bases = tuple((start - begins[slot]) // 4 for slot, (_, start, _) in enumerate(ranges))
    bound = [(span.slots[0], span.begin, span.end - span.begin) for span in spans]
    return BindingLayout(_binding_indices(spans), bound, bases)


def _meeting(bound: Sequence[Range], bindings: Bindings) -> list[_Span]:
    """Return ranges in the order of their first slots; those that overlap or share a binding are joined."""
    by_binding: dict[int, _Span] = {}
    for slot, (binding, (_, begin, size)) in enumerate(zip(bindings or range(len(bound)), bound, strict=True)):
        span = _Span(begin, begin + size, (slot,))
        by_binding[binding] = by_binding[binding].joined(span) if binding in by_binding else span
    by_resource: dict[Hashable, list[_Span]] = {}
    for span in sorted(by_binding.values()):
        spans = by_resource.setdefault(bound[span.slots[0]][0], [])
        if spans and span.begin < spans[-1].end:
            spans[-1] = spans[-1].joined(span)
        else:
            spans.append(span)
    return sorted(itertools.chain(*by_resource.values()), key=lambda span: span.slots)


def _binding_indices(spans: Sequence[_Span]) -> Bindings:
    """Return the binding of each slot; empty if each has its own."""
    bindings = {slot: binding for binding, span in enumerate(spans) for slot in span.slots}
    return () if len(bindings) == len(spans) else tuple(bindings[slot] for slot in sorted(bindings))
