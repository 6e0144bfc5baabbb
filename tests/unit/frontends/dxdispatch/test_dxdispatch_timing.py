"""The number of dispatches, and the printed timings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dmlgpu
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch import Dispatched, Initialized, TimingOptions, report
from dmlgpu.frontends.dxdispatch.result import timed
from dmlgpu.runtime.executor import Duration
from tests.unit.frontends.dxdispatch.dxdispatch_models import tensor, values


class Clock:
    """A clock that advances only by work and by sleeping."""

    def __init__(self) -> None:
        self.now, self.slept, self.starts = 0.0, [], []

    def work(self, seconds: float) -> Callable[[], Duration]:
        def run() -> Duration:
            self.starts.append(round(self.now * 1e3))
            self.now += seconds
            return Duration(seconds, seconds / 2)

        return run

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds * 1e3))
        self.now += seconds


def loop(options: TimingOptions, seconds: float = 0.01) -> tuple[Dispatched, Clock]:
    clock = Clock()
    return timed("x", clock.work(seconds), options, clock=lambda: clock.now, sleep=clock.sleep), clock


def test_iterations_and_repetitions() -> None:
    done, clock = loop(TimingOptions(iterations=3, repeat=4))
    assert done.cpu == pytest.approx([2.5] * 3) and done.gpu == pytest.approx([1.25] * 3)
    assert (clock.starts, clock.slept) == ([0, 10, 20], [])


def test_the_interval_is_a_minimum() -> None:
    assert loop(TimingOptions(iterations=3, interval=25))[1].starts == [0, 25, 50]
    assert loop(TimingOptions(iterations=3, interval=25))[1].slept == [15, 15]
    assert loop(TimingOptions(iterations=3, interval=5))[1].starts == [0, 10, 20]


def test_time_to_run_overrides_iterations() -> None:
    assert loop(TimingOptions(iterations=2, milliseconds_to_run=45))[1].starts == [0, 10, 20, 30, 40]
    assert loop(TimingOptions(milliseconds_to_run=5))[1].starts == [0]
    assert loop(TimingOptions(milliseconds_to_run=60, interval=25))[1].starts == [0, 25, 50]


def test_device_times_count_only_where_all_are_there() -> None:
    durations = iter([Duration(1, 1), Duration(1, None)])
    assert timed("x", lambda: next(durations), TimingOptions(iterations=2)).gpu == ()


@pytest.mark.parametrize(
    ("count", "warmup", "cold"), [(1, 2, 0), (2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 2, 2), (3, 0, 0), (3, 9, 2)]
)
def test_cold_samples_leave_a_hot_one(count: int, warmup: int, cold: int) -> None:
    samples = tuple(map(float, range(count)))
    done = Dispatched("x", samples, (), warmup)
    assert (done.cold(samples), done.hot(samples)) == (samples[:cold], samples[cold:])


def test_printed_text() -> None:
    done = Dispatched("sum", (9.0, 1.0, 4.0, 2.0), (8.0, 0.5, 3.0, 1.0))
    assert report(done) == "Dispatch 'sum': 4 iterations, 2.0000 ms median (CPU), 1.000000 ms median (GPU)"
    statistics = [
        "Dispatch 'sum': 4 iterations",
        "CPU Timings (Cold) : 1 samples, 9.0000 ms average, 9.0000 ms min, 9.0000 ms median, 9.0000 ms max",
        "GPU Timings (Cold) : 1 samples, 8.0000 ms average, 8.0000 ms min, 8.0000 ms median, 8.0000 ms max",
        "CPU Timings (Hot)  : 3 samples, 2.3333 ms average, 1.0000 ms min, 2.0000 ms median, 4.0000 ms max",
        "GPU Timings (Hot)  : 3 samples, 1.5000 ms average, 0.5000 ms min, 1.0000 ms median, 3.0000 ms max",
    ]
    assert (report(done, 1) or "").splitlines() == statistics
    assert (report(done, 2) or "").splitlines() == [
        *statistics,
        "The timings of each iteration:",
        "iteration 0: 9.0000 ms (CPU), 8.0000 ms (GPU)",
        "iteration 1: 1.0000 ms (CPU), 0.5000 ms (GPU)",
        "iteration 2: 4.0000 ms (CPU), 3.0000 ms (GPU)",
        "iteration 3: 2.0000 ms (CPU), 1.0000 ms (GPU)",
    ]
    assert report(Initialized("sum", 1.5)) is None
    assert report(Initialized("sum", 1.5), 1) == "Initialize 'sum': 1.5000 ms"
    assert report(Dispatched("sum", (1.0,))) == "Dispatch 'sum': 1 iterations, 1.0000 ms median (CPU)"


def test_effects_of_iterations_and_repetitions_are_permanent() -> None:
    """Each of 2 iterations of 3 dispatches doubles the resource in place."""
    model = {
        "resources": {"X": values(1, 2, 3, 4)},
        "dispatchables": {
            "double": {
                "type": "ELEMENT_WISE_IDENTITY",
                "desc": {"InputTensor": tensor(4), "OutputTensor": tensor(4), "ScaleBias": {"Scale": 2, "Bias": 0}},
            }
        },
        "commands": [
            {"type": "dispatch", "dispatchable": "double", "bindings": {"InputTensor": "X", "OutputTensor": "X"}},
            {"type": "print", "resource": "X"},
        ],
    }
    timing = TimingOptions(iterations=2, repeat=3)
    result = dxdispatch.execute(dxdispatch.load(model), dmlgpu.Device("numpy"), timing=timing)
    np.testing.assert_array_equal(result.resources["X"], np.array([1, 2, 3, 4]) * 2**6)
    (done,) = [event for event in result.events if isinstance(event, Dispatched)]
    assert len(done.cpu) == 2 and done.gpu == ()


@pytest.mark.parametrize(
    "options", [{"iterations": 0}, {"repeat": 1.5}, {"interval": -1}, {"milliseconds_to_run": "5"}]
)
def test_options_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=f"^TimingOptions: {next(iter(options))} must be"):
        TimingOptions(**options)
