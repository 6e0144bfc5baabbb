"""Arenas: live allocations are disjoint, dead ones are reused, and all are aligned."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.tensor_desc import aligned
from dmlgpu.compiler.plan import Allocation
from dmlgpu.compiler.schedule import memory
from dmlgpu.compiler.schedule.memory import Arena, Use, lay_out, least_size

ALIGNMENT = 256
A, B, C, D = (Allocation(label) for label in "abcd")

_allocations = [Allocation(str(index)) for index in range(8)]
_uses = st.lists(
    st.builds(Use, st.integers(0, 9), st.sampled_from(_allocations), st.integers(1, 2000)), min_size=1, max_size=30
).map(lambda uses: sorted(uses, key=lambda use: use.step))


def sizes_of(uses: Sequence[Use]) -> dict[Allocation, int]:
    """Return the bytes of the largest use of each allocation."""
    return {use.allocation: max(other.size for other in uses if other.allocation is use.allocation) for use in uses}


def lives_of(uses: Sequence[Use]) -> dict[Allocation, range]:
    """Return the steps from the first use of each allocation to the last."""
    steps = {use.allocation: [other.step for other in uses if other.allocation is use.allocation] for use in uses}
    return {allocation: range(min(life), max(life) + 1) for allocation, life in steps.items()}


def meet(arena: Arena, sizes: dict[Allocation, int], first: Allocation, second: Allocation) -> bool:
    """Return whether two ranges overlap."""
    begin, end = (arena.offsets[first], arena.offsets[second]), (sizes[first], sizes[second])
    return begin[0] < begin[1] + end[1] and begin[1] < begin[0] + end[0]


@given(_uses)
def test_live_allocations_do_not_overlap(uses: list[Use]) -> None:
    arena, sizes, lives = lay_out(uses, reuse=True), sizes_of(uses), lives_of(uses)
    assert arena.offsets.keys() == sizes.keys()
    for first, second in itertools.combinations(sizes, 2):
        together = not set(lives[first]).isdisjoint(lives[second])
        assert not (together and meet(arena, sizes, first, second))


@given(_uses)
def test_memory_without_reuse_is_never_shared(uses: list[Use]) -> None:
    arena, sizes = lay_out(uses, reuse=False), sizes_of(uses)
    assert not any(meet(arena, sizes, first, second) for first, second in itertools.combinations(sizes, 2))
    assert arena.size == sum(map(aligned, sizes.values()))


@pytest.mark.parametrize("reuse", [False, True])
@given(uses=_uses)
def test_allocations_are_aligned_and_end_where_the_resource_does(uses: list[Use], reuse: bool) -> None:
    arena, sizes = lay_out(uses, reuse=reuse), sizes_of(uses)
    assert all(offset % ALIGNMENT == 0 for offset in arena.offsets.values())
    assert arena.size == max(-(-(arena.offsets[each] + size) // ALIGNMENT) * ALIGNMENT for each, size in sizes.items())


@given(_uses)
def test_reuse_takes_the_maximum_of_live_bytes(uses: list[Use]) -> None:
    sizes, lives = sizes_of(uses), lives_of(uses)
    alive = [sum(aligned(sizes[each]) for each, life in lives.items() if step in life) for step in range(10)]
    assert max(alive) <= lay_out(uses, reuse=True).size <= lay_out(uses, reuse=False).size


@given(_uses)
def test_the_least_size_is_the_maximum_of_live_bytes(uses: list[Use]) -> None:
    sizes, lives = sizes_of(uses), lives_of(uses)
    alive = [sum(aligned(sizes[each]) for each, life in lives.items() if step in life) for step in range(10)]
    assert least_size(uses) == max(alive)


@given(st.integers(1, 2000), st.integers(2, 12))
def test_a_chain_alternates_between_two_places(size: int, length: int) -> None:
    chain = [Allocation(str(index)) for index in range(length)]
    uses = [Use(step, each, size) for step in range(length + 1) for each in chain[max(step - 1, 0) : step + 1]]
    arena = lay_out(uses, reuse=True)
    assert [arena.offsets[each] for each in chain] == [aligned(size) * (index % 2) for index in range(length)]


def test_memory_is_not_reused_within_its_last_step() -> None:
    """A kernel reads its input while it writes its output; an iteration of repeated steps may read the results
    of another."""
    assert lay_out([Use(0, A, 4), Use(1, A, 4), Use(1, B, 4)], reuse=True).size == 2 * ALIGNMENT
    assert lay_out([Use(0, A, 4), Use(1, B, 4)], reuse=True).size == ALIGNMENT


def test_memory_lives_from_its_first_use_to_its_last_and_has_the_largest_size() -> None:
    uses = [Use(0, A, 300), Use(1, B, 4), Use(2, A, 600)]
    assert lay_out(uses, reuse=True) == Arena({A: 0, B: 768}, 1024)


def test_a_gap_is_filled_if_it_is_large_enough() -> None:
    before = [Use(0, A, 512), Use(0, B, 256), Use(1, B, 256)]
    assert lay_out([*before, Use(1, C, 256), Use(1, D, 256)], reuse=True).offsets == {A: 0, B: 512, C: 0, D: 256}
    assert lay_out([*before, Use(1, C, 513)], reuse=True).offsets == {A: 0, B: 768, C: 0}


def test_a_plan_without_memory_takes_none() -> None:
    assert lay_out([], reuse=True) == Arena({}, 0)


@pytest.mark.parametrize(("size", "rounded"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_sizes_are_rounded_up(size: int, rounded: int) -> None:
    assert aligned(size) == rounded


def test_blocks_of_branches_lose_little_memory() -> None:
    """Branches of different lengths live until they are joined; the largest tensors first would lose a fifth."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        uses, least = _branches(rng, 6)
        assert lay_out(uses, reuse=True).size <= 1.1 * least


def _branches(rng: np.random.Generator, blocks: int) -> tuple[list[Use], int]:
    """Return blocks of four branches in a row, and the maximum of live bytes."""
    lives: list[tuple[int, int, int]] = []  # first step, last step, bytes
    step = 0
    for _ in range(blocks):
        begin, ends = step, []
        for length in (1, 2, 3, 1):
            for index in range(length):
                step += 1
                if index == length - 1:
                    ends.append((step, ALIGNMENT * int(rng.integers(2, 33))))
                else:
                    lives.append((step, step + 1, ALIGNMENT * int(rng.integers(2, 33))))
        lives.append((begin, step, ALIGNMENT * int(rng.integers(8, 65))))
        step += 1
        lives += [(first, step, size) for first, size in ends]
    uses = []
    for index, (first, last, size) in enumerate(lives):
        allocation = Allocation(f"{index}")
        uses += [Use(first, allocation, size), Use(last, allocation, size)]
    alive = [sum(size for first, last, size in lives if first <= index <= last) for index in range(step + 1)]
    return sorted(uses, key=lambda use: use.step), max(alive)


def test_attempts_at_a_large_arena_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    place = memory.place_in_order
    monkeypatch.setattr(
        memory, "place_in_order", lambda order, *rest: counted.append(len(order)) or place(order, *rest)
    )
    monkeypatch.setattr(memory, "MAX_PLACED", 200)
    for blocks in (1, 6, 20):
        counted.clear()
        uses, _ = _branches(np.random.default_rng(blocks), blocks)
        lay_out(uses, reuse=True)
        assert len(counted) == 1 or sum(counted) <= 200
