"""Doing several things at once, in threads that end with the call."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """Return ``function`` of each item, in order. The caller works too, beside at most ``threads - 1`` others.

    Pays where the function spends its time in C, without Python's lock. Hold no lock that a finalizer may want: the
    other threads collect garbage like any thread, and the caller waits for them.

    Raises: what the function raises, for the first of the items for which it does, as if they came one by one. What a
    signal handler raises ends the call once the other threads have done what they are at.
    """
    waiting = deque(enumerate(items))
    results: dict[int, Result] = {}
    failures: dict[int, Exception] = {}

    def work() -> None:
        while not failures:  # asked before an item is taken: all before one that fails are done
            try:
                number, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = function(item)
            except Exception as failure:  # for the caller
                failures[number] = failure

    helpers = [threading.Thread(target=work, name="dmlgpu helper") for _ in range(min(threads, len(items)) - 1)]
    try:
        for helper in helpers:
            try:
                helper.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                break
        work()
    finally:
        waiting.clear()
        for helper in helpers:
            if helper.is_alive():
                helper.join()
    if failures:
        first = failures[min(failures)]
        failures.clear()  # else its traceback would keep itself, and all that is in use here, alive
        try:
            raise first
        finally:
            del first
    return [results[number] for number in range(len(items))]


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
