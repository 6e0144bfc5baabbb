"""Where the temporary and persistent tensors of a schedule lie: by liveness, those that never meet in one place."""

from __future__ import annotations

import itertools
from collections import defaultdict
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
    if not reuse:
        *offsets, end = itertools.accumulate((aligned(size) for size in sizes.values()), initial=0)
        return Arena(dict(zip(sizes, offsets, strict=True)), end)
    placed: dict[Allocation, int] = {}
    alive: dict[int, list[Allocation]] = defaultdict(list)  # by step, of those that have a place
    # The largest ones first: small ones then find room beside them, where else they would stand in the way.
    for allocation in sorted(lives, key=lambda each: -sizes[each]):
        steps = range(lives[allocation][0], lives[allocation][-1] + 1)
        others = {other for step in steps for other in alive[step]}
        taken = sorted((placed[other], placed[other] + aligned(sizes[other])) for other in others)
        placed[allocation] = _first_gap(taken, aligned(sizes[allocation]))
        for step in steps:
            alive[step].append(allocation)
    return Arena(placed, max((offset + aligned(sizes[each]) for each, offset in placed.items()), default=0))


def lay_out_persistent(initialization: Iterable[Use], executed: Iterable[Use]) -> Arena:
    """Return an arena in which what executions use stays as initialisation left it; behind that lies what only
    initialisation uses, by liveness."""
    initial, later = list(initialization), list(executed)
    lasting = {use.allocation for use in later}
    kept = lay_out([use for use in (*initial, *later) if use.allocation in lasting], reuse=False)
    passing = lay_out([use for use in initial if use.allocation not in lasting], reuse=True)
    offsets = {allocation: kept.size + offset for allocation, offset in passing.offsets.items()}
    return Arena({**kept.offsets, **offsets}, kept.size + passing.size)


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the first offset from which on so many bytes are free."""
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def least_size(uses: Iterable[Use]) -> int:
    """Return the bytes that are alive at one time, at most: no arena that reuses memory is smaller."""
    sizes: dict[Allocation, int] = {}
    lives: dict[Allocation, tuple[int, int]] = {}
    for use in uses:
        sizes[use.allocation] = max(sizes.get(use.allocation, 0), use.size)
        lives[use.allocation] = lives.get(use.allocation, (use.step,))[0], use.step
    changes: dict[int, int] = defaultdict(int)
    for allocation, (first, last) in lives.items():
        changes[first] += aligned(sizes[allocation])
        changes[last + 1] -= aligned(sizes[allocation])
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)
