"""Recordings of functions of sizes: which integers become symbols, when recording ends, and what a failure costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.sizes import recordings
from dmlgpu.compiler.sizes.arithmetic import Recording, Replay, value_of
from dmlgpu.compiler.sizes.recordings import MAX_UNUSED, Recordings


class Recorder:
    """Results of a function by recordings, and the integers for which it ran on symbols."""

    def __init__(self, first: tuple[int, ...], function: Callable[..., Any], **options: Any):
        self.recordings: Recordings[Replay] = Recordings(first, **options)
        self.recorded: list[tuple[int, ...]] = []
        self._function = function

    def __call__(self, *integers: int) -> Any:
        def record(symbolic: list[Any], recording: Recording) -> Replay:
            self.recorded.append(integers)
            with recording.active():
                return recording.replay([self._function(*symbolic)])

        result = self.recordings.result(integers, lambda replay, values: replay(values), record)
        return None if result is None else result[0]


def test_the_first_integers_are_not_recorded() -> None:
    recorder = Recorder((3, 4), lambda rows, columns: rows * columns)
    assert recorder(3, 4) is None
    assert [recorder(5, 4), recorder(6, 4), recorder(3, 4)] == [20, 24, 12]
    assert recorder.recorded == [(5, 4)]
    assert recorder.recordings.places == [0]


def test_integers_that_differ_later_become_symbols_too() -> None:
    recorder = Recorder((3, 3, 4), lambda rows, also, columns: rows + 10 * also + 100 * columns)
    assert [recorder(5, 5, 4), recorder(6, 6, 4)] == [455, 466]
    assert recorder.recorded == [(5, 5, 4)], "integers that were always equal share a symbol"
    assert [recorder(5, 6, 4), recorder(6, 5, 4)] == [465, 456]
    assert [recorder(5, 6, 7), recorder(1, 2, 3)] == [765, 321]
    assert recorder.recorded == [(5, 5, 4), (5, 6, 4), (5, 6, 7)]


def test_integers_may_be_symbols_from_the_start() -> None:
    recorder = Recorder((1, 1, 4), lambda *sizes: sum(sizes), varying=("n", "n", None))
    assert [recorder(1, 1, 4), recorder(7, 7, 4)] == [6, 18]
    assert recorder.recorded == [(1, 1, 4)]


def test_a_decision_is_recorded_again_for_another_outcome() -> None:
    recorder = Recorder((2,), lambda size: size * 2 if size > 8 else size)
    assert [recorder(3), recorder(4), recorder(9), recorder(20), recorder(5)] == [3, 4, 18, 40, 5]
    assert recorder.recorded == [(3,), (9,)]


def test_recording_ends_if_no_recording_is_used_again() -> None:
    recorder = Recorder((0,), value_of)
    sizes = range(1, 100)
    assert [recorder(size) for size in sizes] == [*sizes[:MAX_UNUSED], *[None] * (len(sizes) - MAX_UNUSED)]


def test_failures_are_counted_with_their_reason() -> None:
    def fail(size: Any) -> Any:
        raise InvalidArgument("too large")

    recordings.failures.clear()
    recorder = Recorder((1,), fail)
    assert [recorder(2), recorder(3)] == [None, None]
    assert recordings.failures == {"InvalidArgument: too large": 2}
    recordings.failures.clear()


def test_errors_of_the_package_fail_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder((1,), lambda size: [][size])
    with pytest.raises(IndexError):
        recorder(2)
    monkeypatch.setattr(recordings, "raises", False)
    assert recorder(2) is None
    assert recordings.failures.pop("IndexError: list index out of range") == 2
