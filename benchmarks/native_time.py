"""How much of a call's time is spent in Python: the time outside of wgpu-native's calls and waits for the device.

Every function of wgpu's C library is timed at the transition from Python to C, so wgpu-py's own checks count as Python.
Hundreds of clock reads in a call take longer than in a loop of clock reads, because caches hold other data meanwhile.
So two kinds of runs alternate: one times only the waits, which are few, the other the library's functions. A wait
counts as a whole, including its polls: Python has nothing else to do then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from wgpu.backends.wgpu_native import _api

from dmlgpu.bench.ratios import duration
from dmlgpu.runtime.wgpu import queue, transfers
from dmlgpu.runtime.wgpu.native import NATIVE


@dataclass(frozen=True)
class PythonTime:
    """Where the time of a call went, in seconds: that of the pair of calls with the median share of Python.

    Attributes:
        whole: from its beginning to its end.
        native: in calls of the C library, outside of waits.
        waiting: for the device.
    """

    whole: float
    native: float
    waiting: float

    @property
    def python(self) -> float:
        """The rest."""
        return self.whole - self.native - self.waiting

    @property
    def share(self) -> float:
        """Of Python in the whole."""
        return self.python / self.whole

    def __str__(self) -> str:
        parts = f"{duration(self.native)} in wgpu-native, {duration(self.waiting)} waiting"
        return f"{100 * self.share:.1f} % in Python ({duration(self.python)} of {duration(self.whole)}; {parts})"


class _Clock:
    """Sums the time of calls; nested calls count once."""

    def __init__(self) -> None:
        self._inside = False
        self.clear()

    def clear(self) -> None:
        """Begin at zero."""
        self.seconds = {"native": 0.0, "waiting": 0.0}

    def timed(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Return a function that does the same and is timed."""

        def call(*arguments: Any) -> Any:
            if self._inside:
                return function(*arguments)
            self._inside, start = True, time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds[what] += time.perf_counter() - start
                self._inside = False

        return call


class _Library:
    """The C library with other functions under the names of some."""

    def __init__(self, library: Any, calls: dict[str, Callable[..., Any]]):
        self._library = library
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


@contextmanager
def _waits_watched(clock: _Clock) -> Iterator[None]:
    """Have a clock time waits."""
    with ExitStack() as stack:
        for module in (queue, transfers):
            waiting = clock.timed(module.wait_until, "waiting")
            stack.enter_context(patch.object(module, "wait_until", waiting))
        yield


@contextmanager
def _watched(clock: _Clock) -> Iterator[None]:
    """Have a clock time all that leaves Python."""
    library = _api.lib
    names = [name for name in dir(library) if name.startswith("wgpu")]
    calls = {name: clock.timed(getattr(library, name), "native") for name in names}
    with _waits_watched(clock), ExitStack() as stack:
        for holder in (NATIVE, _api):
            stack.enter_context(patch.object(holder, "lib", _Library(library, calls)))
        for name, call in calls.items():
            stack.enter_context(patch.object(_api.libf, name, _api.libf._make_proxy_func(name, call)))
        yield


def python_time(call: Callable[[], object], rounds: int) -> PythonTime:
    """Measure a call that was made before, in this thread; it must wait for its own work."""
    times = []
    for _ in range(rounds):
        clock = _Clock()
        with _waits_watched(clock):
            whole = _timed(call, clock)
        waiting = clock.seconds["waiting"]
        with _watched(clock):
            _timed(call, clock)
        times.append(PythonTime(whole, clock.seconds["native"], waiting))
    return sorted(times, key=lambda python_time: python_time.share)[rounds // 2]


def _timed(call: Callable[[], object], clock: _Clock) -> float:
    """Return the seconds of a call, the second one under a clock."""
    call()
    clock.clear()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
