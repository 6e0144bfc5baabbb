"""Memory of temporary and persistent tensors of a schedule: by liveness, so that disjoint lifetimes share memory."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dmlgpu.catalog.tensor_desc import aligned
from dmlgpu.compiler.plan import Allocation, PlanBinding, Role


@dataclass(frozen=True)
class Use:
    """A step's use of memory.

    Attributes:
        step: Index of the step; steps with the same index are a loop.
        allocation: The allocation.
        size: Used bytes from its start.
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


@dataclass(frozen=True)
class MemoryLayout:
    """Memory layout of the tensors that a schedule allocates.

    Attributes:
        temporary, persistent: the two resources.
        least_temporary_size: maximum bytes of temporary tensors that are alive at the same time.
    """

    temporary: Arena
    persistent: Arena
    least_temporary_size: int

    def offset(self, binding: PlanBinding) -> int:
        """Return the byte offset of an allocation in its resource."""
        assert isinstance(binding.index, Allocation)
        arena = self.temporary if binding.role is Role.TEMPORARY else self.persistent
        return arena.offsets[binding.index]


MAX_PLACED = 12_000
"""Maximum allocations placed over all attempts at one arena: large arenas get one attempt."""

MAX_ATTEMPTS = 20
"""Maximum number of attempts at one arena."""


def lay_out(uses: Iterable[Use], *, reuse: bool) -> Arena:
    """Return an arena in which allocations that are alive at the same time do not overlap.

    Args:
        uses: uses by all steps, in order.
        reuse: whether memory is free again after the last use of an allocation; else allocations share no memory.
    """
    sizes, lives = _sizes_and_lives(uses)
    if not reuse:
        *offsets, end = itertools.accumulate(sizes.values(), initial=0)
        return Arena(dict(zip(sizes, offsets, strict=True)), end)
    return smallest_arena(sizes, lives)


def least_size(uses: Iterable[Use]) -> int:
    """Return the maximum of live bytes, a lower bound of arenas that reuse memory."""
    return max(_alive(*_sizes_and_lives(uses)).values(), default=0)


def _sizes_and_lives(uses: Iterable[Use]) -> tuple[dict[Allocation, int], dict[Allocation, range]]:
    """Return the aligned size of each allocation, and the steps from its first use to its last."""
    sizes: dict[Allocation, int] = {}
    lives: dict[Allocation, range] = {}
    for use in uses:
        sizes[use.allocation] = max(sizes.get(use.allocation, 0), use.size)
        life = lives.setdefault(use.allocation, range(use.step, use.step + 1))
        lives[use.allocation] = range(life.start, use.step + 1)
    return {allocation: aligned(size) for allocation, size in sizes.items()}, lives


def smallest_arena(sizes: Mapping[Allocation, int], lives: Mapping[Allocation, range]) -> Arena:
    """Return the smallest arena of some attempts, which differ in the order in which allocations are placed. The
    search ends at the first that is hardly larger than the maximum of live bytes.
    """
    alive = _alive(sizes, lives)
    least = max(alive.values(), default=0)
    arenas: list[Arena] = []
    order: list[Allocation] = []
    for attempt in range(max(1, min(MAX_ATTEMPTS, MAX_PLACED // max(1, len(sizes))))):
        match attempt:
            case 0:  # the largest first: small ones then fit in the gaps, instead of blocking large ones
                order = sorted(sizes, key=lambda each: -sizes[each])
            case 1:  # the largest product of bytes and lifetime
                order = sorted(sizes, key=lambda each: -len(lives[each]) * sizes[each])
            case 2:  # the longest lifetimes
                order = sorted(sizes, key=lambda each: (-len(lives[each]), -sizes[each]))
            case 3:  # live at the peak
                order = sorted(sizes, key=lambda each: (-max(alive[step] for step in lives[each]), -sizes[each]))
            case _:  # placed at the end of the previous arena: it came too late
                last, size = arenas[-1].offsets, arenas[-1].size
                order = sorted(order, key=lambda each: last[each] + sizes[each] < size)
        arenas.append(place_in_order(order, sizes, lives))
        if arenas[-1].size - least <= least // 32:
            break
    return min(arenas, key=lambda arena: arena.size)


def _alive(sizes: Mapping[Allocation, int], lives: Mapping[Allocation, range]) -> dict[int, int]:
    """Return the live bytes at each step."""
    alive: dict[int, int] = defaultdict(int)
    for allocation, life in lives.items():
        for step in life:
            alive[step] += sizes[allocation]
    return alive


def place_in_order(
    order: Sequence[Allocation], sizes: Mapping[Allocation, int], lives: Mapping[Allocation, range]
) -> Arena:
    """Place allocations sequentially, each at the first free offset."""
    offsets: dict[Allocation, int] = {}
    alive: dict[int, list[Allocation]] = defaultdict(list)  # by step, of placed allocations
    for allocation in order:
        others = {other for step in lives[allocation] for other in alive[step]}
        taken = sorted((offsets[other], offsets[other] + sizes[other]) for other in others)
        offsets[allocation] = _first_gap(taken, sizes[allocation])
        for step in lives[allocation]:
            alive[step].append(allocation)
    return Arena(offsets, max((offset + sizes[each] for each, offset in offsets.items()), default=0))


def lay_out_persistent(initialization: Iterable[Use], executed: Iterable[Use]) -> Arena:
    """Return an arena with the allocations of executions, which preserve the results of the initialization, followed by
    those used only by the initialization, by liveness."""
    initial, later = list(initialization), list(executed)
    lasting = {use.allocation for use in later}
    lasting_arena = lay_out([use for use in (*initial, *later) if use.allocation in lasting], reuse=False)
    passing_arena = lay_out([use for use in initial if use.allocation not in lasting], reuse=True)
    offsets = {allocation: lasting_arena.size + offset for allocation, offset in passing_arena.offsets.items()}
    return Arena({**lasting_arena.offsets, **offsets}, lasting_arena.size + passing_arena.size)


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the first offset of ``size`` free bytes."""
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset
