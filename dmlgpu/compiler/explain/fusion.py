"""What fusion did, found by comparing the steps of a graph before and after: nothing is taken from what passes say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.compiler.graph.passes.rewriting import Memory, memory_of
from dmlgpu.compiler.plan import Attend, Contract, Convolve, Recurrence, Repeat, Role, Step, Tensor
from dmlgpu.compiler.plan.parts import read, written


@dataclass(frozen=True)
class Traffic:
    """Bytes that are read and written."""

    read: int = 0
    written: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.written + other.written)

    @property
    def moved(self) -> int:
        """Both together."""
        return self.read + self.written


def traffic(step: Step) -> Traffic:
    """Return the bytes that a step reads and writes, each view of memory once: strides of 0 repeat nothing, and a
    table that is looked into counts as a whole."""
    if isinstance(step, Repeat):
        turn = sum(map(traffic, step.steps), Traffic())
        return Traffic(step.turns * turn.read, step.turns * turn.written)
    return Traffic(_bytes(read(step)), _bytes(written(step)))


def _bytes(tensors: Sequence[Tensor]) -> int:
    views = {(one.binding, one.offset, one.sizes, one.strides): one.distinct_bytes for one in tensors}
    return sum(views.values())


def multiplications(step: Step) -> int | None:
    """Return the multiplications of products, convolutions, attention and recurrences; None where nobody counts."""
    match step:
        case Repeat():
            counted = [count for inner in step.steps if (count := multiplications(inner)) is not None]
            return step.turns * sum(counted) if counted else None
        case Contract():
            return math.prod(step.product.space.output) * math.prod(step.product.space.inner)
        case Convolve():
            over = math.prod(step.convolution.filter.sizes[2:])
            outer = step.convolution.input.sizes if step.transposed else step.convolution.output_sizes
            outputs = step.convolution.filter.sizes[1]
            return math.prod(outer[:2] + outer[3:]) * outputs * over
        case Attend():
            lengths = step.query.sizes[-1] + step.output.sizes[-1]
            return step.batches * step.rows * step.keys * lengths
        case Recurrence():
            return len(step.sums) * math.prod(step.hidden.sizes) * step.output.sizes[-1]
        case _:
            return None


Region: TypeAlias = tuple[Memory, int, int]
"""A part of a resource: where it starts, in bits, and how many elements it has."""


def _region(tensor: Tensor) -> Region:
    start = 8 * tensor.binding.offset + tensor.offset * tensor.unit_bits
    return memory_of(tensor), start, math.prod(tensor.sizes)


def nodes_of_steps(lowered: Sequence[Sequence[Step]], steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Return for each step of a plan which nodes it computes, ascending.

    A step computes what wrote its output before, and all that this read and the step itself no longer reads from
    memory. A node that is computed in several steps is named by each.

    Args:
        lowered: the steps of each node before they were fused, then those of no node.
        steps: what became of them, on the same memory.
    """
    before = [(number, step) for number, own in enumerate(lowered) for step in own]
    writers: dict[Memory, list[int]] = defaultdict(list)
    regions: dict[Region, list[int]] = defaultdict(list)
    for place, (_, step) in enumerate(before):
        for tensor in written(step):
            writers[memory_of(tensor)].append(place)
            regions[_region(tensor)].append(place)
    nodes = len(lowered) - 1
    found = []
    for step in steps:
        kept = {memory_of(tensor) for tensor in read(step)}
        pending = [
            place for tensor in written(step) for place in regions.get(_region(tensor)) or writers[memory_of(tensor)]
        ]
        computed: set[int] = set()
        while pending:
            place = pending.pop()
            if place in computed:
                continue
            computed.add(place)
            for tensor in read(before[place][1]):
                memory = memory_of(tensor)
                if memory not in kept and memory[0] in (Role.TEMPORARY, Role.OUTPUT, Role.PERSISTENT):
                    pending += (other for other in writers[memory] if other < place)
        found.append(tuple(sorted({before[place][0] for place in computed} - {nodes})))
    return tuple(found)
