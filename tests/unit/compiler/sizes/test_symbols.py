"""Symbolic numbers: replays agree with the recorded code, and fail if it would decide otherwise."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.sizes.arithmetic import (
    Recording,
    Size,
    computed,
    current,
    decided,
    hint_of,
    is_broadcastable,
    is_many,
    is_same_size,
    largest,
    settled,
    smallest,
)
from dmlgpu.compiler.sizes.networks import key_of

VALUES = (1, 2, 3, 4, 7, 12, 64)


def straight(a: Any, b: Any) -> Sequence[Any]:
    """Return arithmetic without decisions, but for signs and zeros."""
    quotient, remainder = divmod(a, b)
    sums = (a + b, 3 - a, a * b - 1, -a, abs(b - a), a + 0, 0 + b, a * 1, 0 * a, a - 0)
    quotients = (a // b, 100 // a, a % b, 100 % b, a / b, quotient, remainder, a // 1, a % 1, a // a, b % b)
    bits = (a << 2, a >> 1, a & b, a | b, a ^ 5, a.bit_length())
    rounded = (math.ceil(a / b), math.floor(a / b), round(a / b), round(a / b, 1), -(-a // b))
    return *sums, *quotients, *bits, *rounded, largest(a, b, 5), smallest(a, b), math.prod((a, b, 2)), sum((a, b))


def branching(a: Any, b: Any) -> Sequence[Any]:
    """Return results of decisions of all kinds."""
    kinds = {4: "four", 12: "twelve"}
    units = a // 4 if a % 4 == 0 else a
    text = f"{b:3d}" if a >= b else "less"
    return (
        units,
        len(settled(text)),
        min(a, b),
        max(a, b, 6),
        sorted((a, 5, b))[1],
        len(kinds.get(a, "")),
        sum(range(b)),
        [10, 20, 30, 40][b] if b < 4 else 0,
        int(b > 2 and a != 7),
        2 if a - b else 3,
        float(np.float32(b)) / 2,
        len((0,) * a),
        a if a in (1, 2, 3) else -a,
    )


def plain(numbers: Sequence[Any]) -> list[Any]:
    return [hint_of(number) for number in numbers]


@pytest.mark.parametrize("function", [straight, branching])
def test_replays_compute_what_the_code_computes(function: Callable[..., Sequence[Any]]) -> None:
    pairs = list(itertools.product(VALUES, VALUES))
    replayed = 0
    for recorded in pairs:
        recording = Recording(recorded)
        with recording.active():
            results = function(*recording.symbols)
        expected = function(*recorded)
        assert plain(results) == list(expected)
        assert [type(result) for result in plain(results)] == [type(result) for result in expected]
        replay = recording.replay(results)
        assert replay(recorded) == tuple(expected)
        for values in pairs:
            numbers = replay(values)
            assert numbers is None or numbers == tuple(function(*values)), (recorded, values)
            replayed += numbers is not None
    most = len(pairs) ** 2
    assert replayed == most if function is straight else len(pairs) <= replayed < most


def test_branches_share_replays() -> None:
    def units(size: Any) -> Any:
        return size // 4 if size % 4 == 0 and size > 8 else size

    recording = Recording([12])
    replay = recording.replay([units(*recording.symbols)])
    assert [replay([size]) for size in (16, 400, 8, 13)] == [[4], [100], None, None]


def divisor(size: int, fewest: int, calls: list[int]) -> int:
    calls.append(size)
    return next(number for number in range(fewest, size + 1) if size % number == 0)


def test_computed_numbers_have_no_guards() -> None:
    calls: list[int] = []
    recording = Recording([12, 64])
    with recording.active():
        size = recording.symbols[0]
        parts = computed(divisor, size, 5, calls)
        replay = recording.replay([parts, size // parts])
    assert not recording.guards
    assert calls == [12]
    assert [replay([size, 1]) for size in (12, 35, 7)] == [[6, 2], [5, 7], [7, 1]]
    assert calls == [12, 12, 35, 7]
    assert computed(divisor, 10, 3, calls) == 5


def test_decided_results_are_one_guard() -> None:
    def tile(size: int, names: tuple[str, str]) -> str:
        return names[size > 8]

    recording = Recording([12, 64])
    with recording.active():
        size = recording.symbols[0]
        assert decided(tile, size * 2, ("small", "large")) == "large"
        replay = recording.replay([size + 1])
    assert len(recording.guards) == 1
    assert [replay([size, 1]) for size in (5, 4, 100)] == [[6], None, [101]]
    assert decided(tile, 3, ("small", "large")) == "small"


@dataclass(frozen=True)
class Window:
    """What may depend on sizes: a structure of structures."""

    name: str
    sizes: tuple[Any, ...]
    inner: Window | None = None


def test_structures_are_rebuilt() -> None:
    recording = Recording([3, 4])
    rows, columns = recording.symbols
    constant = Window("constant", (1, 2))
    results = [Window("outer", (rows, 2), Window("inner", (columns * 2,))), (constant, rows + 1), {"a": 1}]
    replay = recording.replay(results)
    later = replay([5, 6])
    assert later == [Window("outer", (5, 2), Window("inner", (12,))), (constant, 6), {"a": 1}]
    assert later[1][0] is constant, "what depends on no size is shared"


def test_replays_are_repeated_on_symbols_of_another_recording() -> None:
    """A function runs once on symbols; what follows it may be recorded again, for other decisions."""
    calls: list[int] = []
    first = Recording([12, 64])
    with first.active():
        size, other = first.symbols
        assert other > 8
        replay = first.replay([computed(divisor, size, 5, calls), size + other, 7])
    second = Recording([35, 9])
    with second.active():
        parts, total, constant = replay.on(second)
        assert parts < 6
    assert (hint_of(parts), hint_of(total), constant) == (5, 44, 7)
    assert len(second.guards) == 1
    later = second.replay([parts * total])
    assert [later([35, 65]), later([49, 1]), later([5, 1])] == [[500], None, [30]]


def test_accepted_results_may_differ() -> None:
    recording = Recording([24])
    with recording.active():
        (size,) = recording.symbols
        half = decided(halved, size, accepts=is_near)
    replay = recording.replay([half])
    assert [replay([value]) for value in (24, 27, 21, 40)] == [[12], [12], [12], None]


def halved(size: int) -> int:
    return size // 2


def is_near(half: int, size: int) -> bool:
    return abs(2 * half - size) <= 3


def test_symbolic_sizes_count_as_many_without_a_guard() -> None:
    recording = Recording([1, 7])
    with recording.active():
        batch, width = recording.symbols
        assert is_many(batch)
        assert is_many(width * batch)
    assert not recording.guards
    assert [is_many(size) for size in (0, 1, 2)] == [False, False, True]


def test_symbolic_sizes_broadcast_without_a_guard_on_1() -> None:
    recording = Recording([1, 7])
    with recording.active():
        batch, width = recording.symbols
        assert is_broadcastable(width, width) and is_broadcastable(1, width) and is_broadcastable(batch, batch)
        assert is_same_size(width, width) and not is_same_size(width, 1) and not is_same_size(1, batch)
        assert not recording.guards
        assert is_broadcastable(batch, width)
        assert not is_broadcastable(width, 5)
        replay = recording.replay(())
    assert [replay(values) for values in ((1, 8), (2, 8), (2, 2), (1, 5))] == [(), None, None, None]
    assert [is_broadcastable(size, 3) for size in (0, 1, 2, 3)] == [False, True, False, True]
    assert [is_same_size(size, 1) for size in (0, 1, 2)] == [False, True, False]


def test_keys_are_of_expressions_and_of_exact_numbers() -> None:
    recording = Recording([3, 3])
    with recording.active():
        first, second = recording.symbols
        descs = [TensorDesc(DataType.FLOAT32, (4, size + 1)) for size in (first, first, second, 3)]
        known = dict(recording.guards)
        keys = [key_of((desc, 0.0)) for desc in descs]
        assert recording.guards == known
    assert keys[0] == keys[1] and len(set(keys)) == 3
    assert len({key_of(number) for number in (0, 0.0, -0.0, False)}) == 4
    with pytest.raises(TypeError):
        key_of(([], np.zeros(1)))


@pytest.mark.parametrize(
    "use",
    [
        hash,
        int,
        float,
        bool,
        range,
        lambda number: [0] * number,
        {3: 1}.get,
        np.zeros,
        np.int64,
        lambda number: "%d" % number,  # noqa: UP031
        lambda number: settled(f"{number}"),
        lambda number: settled(f"{number:,}"),
        lambda number: number == 3,
        lambda number: number in {1, 2, 3},
    ],
)
def test_values_that_leave_the_symbols_are_guarded(use: Callable[[Any], Any]) -> None:
    recording = Recording([3, 5])
    with recording.active():
        use(recording.symbols[0])
    assert recording.replay(())([3, 6]) == ()
    assert recording.replay(())([0, 5]) is None


def test_strings_mention_numbers_without_guards() -> None:
    recording = Recording([1234])
    with recording.active():
        text = f"{recording.symbols[0]:,} rows"
        assert not recording.guards
        assert settled(text) == "1,234 rows"
    assert len(recording.guards) == 1
    assert settled("⟪0⟫") == "⟪0⟫", "nothing is recorded"


def test_symbols_are_numbers() -> None:
    (size,) = Recording([3]).symbols
    assert isinstance(size, Size)
    assert isinstance(size, numbers.Integral)
    assert not isinstance(size, int), "code that needs an int calls value_of"
    assert isinstance(size / 2, numbers.Real)
    assert not isinstance(size / 2, numbers.Integral)
    with pytest.raises(TypeError):
        size + "x"
    assert size != "x"


def test_recordings_are_active_in_their_block_alone() -> None:
    recording = Recording([3])
    assert current() is None
    with pytest.raises(KeyError), recording.active():
        assert current() is recording
        raise KeyError
    assert current() is None
