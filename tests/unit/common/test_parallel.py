"""Parallel calls: results in order, each item once, the first failure, and no remaining threads."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import pytest

from dmlgpu.runtime.wgpu.pipelines import cores, in_parallel


class Interrupted(BaseException):
    """Exception of a signal handler."""


def helpers() -> list[threading.Thread]:
    """Return the remaining threads of those that worked for the caller."""
    return [thread for thread in threading.enumerate() if thread.name == "dmlgpu helper"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_results_come_in_order(threads: int, count: int) -> None:
    called: list[int] = []

    def square(number: int) -> int:
        called.append(number)
        return number**2

    assert in_parallel(square, range(count), threads) == [number**2 for number in range(count)]
    assert sorted(called) == list(range(count))
    assert helpers() == []


def test_the_caller_and_other_threads_work_concurrently() -> None:
    everybody = threading.Barrier(3, timeout=60)
    assert len(set(in_parallel(lambda _: _meet(everybody), range(3), 3))) == 3


def _meet(everybody: threading.Barrier) -> int:
    everybody.wait()
    return threading.get_ident()


def test_a_single_thread_is_the_caller() -> None:
    assert set(in_parallel(lambda _: threading.get_ident(), range(4), 1)) == {threading.get_ident()}


def test_the_failure_of_the_first_item_is_raised() -> None:
    later_failed = threading.Event()
    called: list[int] = []

    def fail(number: int) -> None:
        called.append(number)
        if number == 3:
            later_failed.set()
            raise ValueError("the later one")
        if number == 2:
            assert later_failed.wait(60)
            raise KeyError("the first one")

    with pytest.raises(KeyError, match="the first one"):
        in_parallel(fail, range(100), 2)
    assert len(called) < 10


def test_an_interrupted_caller_waits_for_the_others_and_no_longer() -> None:
    main, begun, done = threading.get_ident(), threading.Event(), threading.Event()
    called: list[int] = []

    def work(number: int) -> None:
        called.append(number)
        if threading.get_ident() == main:
            assert begun.wait(60)
            raise Interrupted
        begun.set()
        done.wait(0.05)

    with pytest.raises(Interrupted):
        in_parallel(work, range(1000), 2)
    assert helpers() == []
    assert len(called) < 1000


def test_the_caller_works_alone_if_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert in_parallel(lambda number: -number, range(5), 3) == [0, -1, -2, -3, -4]


def test_a_failure_keeps_no_object_alive() -> None:
    class Thing:
        """Object that the function uses."""

    thing = Thing()
    alive = weakref.ref(thing)

    def fail(_number: int, used: Thing = thing) -> None:
        raise ValueError(repr(used))

    del thing
    gc.disable()
    try:
        with pytest.raises(ValueError, match="Thing"):
            in_parallel(fail, range(2), 2)
        del fail
        assert alive() is None
    finally:
        gc.enable()


def test_cores_are_those_that_the_process_may_use() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
