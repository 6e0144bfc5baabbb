"""Where the temporary and persistent tensors of a schedule lie: by liveness, those that never meet in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dmlgpu.plan import Allocation
from dmlgpu.tensor import aligned


@dataclass(frozen=True)
class Use:
    """One step's use of memory.

    Attributes:
        step: the number of the step; steps of one number are executed again and again, all in turn.
        allocation: what is used.
        size: bytes of it, from its start on.
    """

    step: int
    allocation: Allocation
    size: int


@dataclass(frozen=True)
class Arena:
    """One resource that holds several allocations.

    Attributes:
        offsets: in bytes, of each allocation.
        size: bytes of the resource.
    """

    offsets: Mapping[Allocation, int]
    size: int


def lay_out(uses: Iterable[Use], *, reuse: bool) -> Arena:
    """Return an arena in which allocations that are alive together do not meet.

    Args:
        uses: by all steps, in order.
        reuse: whether memory is free again after the last use of an allocation; else each has bytes of its own.
    """
    sizes: dict[Allocation, int] = {}
    lives: dict[Allocation, list[int]] = {}
    for use in uses:
        sizes[use.allocation] = max(sizes.get(use.allocation, 0), use.size)
        lives.setdefault(use.allocation, []).append(use.step)
    offsets: dict[Allocation, int] = {}
    # The largest ones first: small ones then find room beside them, where else they would stand in the way.
    for allocation in sorted(lives, key=lambda each: -sizes[each]) if reuse else lives:
        life = lives[allocation]
        others = [
            (offset, offset + aligned(sizes[other]))
            for other, offset in offsets.items()
            if not reuse or (lives[other][0] <= life[-1] and life[0] <= lives[other][-1])
        ]
        offsets[allocation] = _first_gap(sorted(others), aligned(sizes[allocation]))
    return Arena(offsets, max((offset + aligned(sizes[each]) for each, offset in offsets.items()), default=0))


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the first offset from which on so many bytes are free."""
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset
