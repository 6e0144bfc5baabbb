"""Calls that signal handlers do not interrupt."""

from __future__ import annotations

import signal
import threading

import pytest

from dmlgpu.runtime.wgpu.waiting import without_signals


class Interrupted(BaseException):
    """Exception of the signal handler."""


def test_results_and_exceptions_of_the_call_are_passed_on() -> None:
    assert without_signals(lambda: 3) == 3
    with pytest.raises(KeyError, match="x"):
        without_signals(lambda: {}["x"])


def test_an_interrupt_ends_the_wait_and_not_the_call() -> None:
    interrupted, finished = threading.Event(), threading.Event()

    def call() -> None:
        interrupted.wait(30)
        finished.set()

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            without_signals(call)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not finished.is_set()
    interrupted.set()
    assert finished.wait(30)
