"""The statistics of dmlgpu/bench/ratios.py, on clocks that tick as told."""

import random
import statistics

import pytest
from scipy.stats import binom

from dmlgpu.bench import ratios
from dmlgpu.bench.ratios import Ratio, duration, interval_rank, ratio, summarize


class Clock:
    """Time that passes only when work says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds, log=None, name=""):
        def call(number):
            self.now += seconds(number) if callable(seconds) else seconds
            if log is not None:
                log.append((name, number))

        return call


def test_constant_work_gives_its_ratio_and_a_point_interval():
    clock = Clock()
    result = ratio(clock.work(3.0), clock.work(2.0), clock=clock)
    assert (result.median, result.low, result.high, result.rounds) == (1.5, 1.5, 1.5, 11)
    assert (result.a_seconds, result.b_seconds) == (3.0, 2.0)


def test_rounds_alternate_and_both_see_the_same_rotating_numbers():
    clock, log = Clock(), []
    ratio(clock.work(1.0, log, "a"), clock.work(1.0, log, "b"), rounds=12, warm=1, clock=clock)
    assert log[:2] == [("a", 0), ("b", 0)]
    assert log[2:8] == [("a", 1), ("b", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3)]
    assert [number for name, number in log if name == "a"] == list(range(13))


def test_several_calls_per_measurement_count_once_each():
    clock, log = Clock(), []
    result = ratio(clock.work(4.0, log, "a"), clock.work(1.0, log, "b"), calls=5, warm=0, clock=clock)
    assert result.median == 4.0
    assert result.a_seconds == 4.0
    assert [number for name, number in log if name == "a"] == list(range(55))


def test_warm_up_is_not_measured():
    clock = Clock()
    result = ratio(clock.work(lambda number: 1000.0 if number < 2 else 1.0), clock.work(1.0), clock=clock)
    assert result.high == 1.0


def test_rest_comes_before_each_measurement_and_is_not_measured(monkeypatch):
    clock, log = Clock(), []

    def sleep(seconds):
        clock.now += seconds
        log.append(seconds)

    monkeypatch.setattr(ratios.time, "sleep", sleep)
    result = ratio(clock.work(3.0, log, "a"), clock.work(2.0, log, "b"), warm=0, rest=0.5, clock=clock)
    assert log[:4] == [0.5, ("a", 0), 0.5, ("b", 0)]
    assert (result.a_seconds, result.b_seconds) == (3.0, 2.0)


def test_drift_that_hits_both_cancels():
    clock = Clock()
    result = ratio(clock.work(lambda n: 2.0 * 1.5**n), clock.work(lambda n: 1.0 * 1.5**n), clock=clock)
    assert result.low == pytest.approx(2.0)
    assert result.high == pytest.approx(2.0)


def test_one_outlier_moves_neither_median_nor_interval():
    result = summarize([1.0] * 10 + [100.0], [1.0] * 11)
    assert (result.median, result.low, result.high) == (1.0, 1.0, 1.0)


def test_interval_is_the_third_smallest_and_third_largest_of_eleven():
    times = [float(value) for value in (5, 11, 1, 9, 3, 7, 2, 10, 4, 8, 6)]
    result = summarize(times, [1.0] * 11)
    assert (result.low, result.median, result.high) == (3.0, 6.0, 9.0)


@pytest.mark.parametrize(("count", "rank"), [(5, 1), (8, 2), (11, 3), (13, 4), (16, 5), (20, 6), (25, 8), (30, 11)])
def test_rank_is_the_largest_that_keeps_nine_tenths(count, rank):
    assert interval_rank(count) == rank
    assert 1 - 2 * binom.cdf(rank - 1, count, 0.5) >= 0.9
    assert 1 - 2 * binom.cdf(rank, count, 0.5) < 0.9


@pytest.mark.parametrize("count", [11, 15, 21])
def test_interval_covers_the_true_median_at_least_nine_times_in_ten(count):
    draw = random.Random(20)
    hits, trials = 0, 2000
    for _ in range(trials):
        result = summarize([draw.lognormvariate(0, 1) for _ in range(count)], [1.0] * count)
        hits += result.low <= 1.0 <= result.high
    # Two standard errors below 90 %.
    assert hits / trials > 0.9 - 2 * (0.09 / trials) ** 0.5


def test_median_of_an_even_number_of_rounds():
    assert summarize([1.0, 2.0, 3.0, 4.0], [1.0] * 4).median == statistics.median([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("bound", "met"),
    [
        ({"at_least": 0.8}, True),
        ({"at_least": 0.95}, True),
        ({"at_least": 0.951}, False),
        ({"at_most": 0.7}, True),
        ({"at_most": 0.69}, False),
    ],
)
def test_a_target_is_met_when_the_interval_reaches_it(bound, met):
    assert Ratio(0.75, 0.7, 0.95, 11, 1.0, 1.0).meets(**bound) is met


def test_printed():
    assert str(Ratio(1.5, 1.25, 2.0, 11, 0.003, 0.002)) == "1.5 [1.25, 2] (3 ms / 2 ms, 11 rounds)"
    assert [duration(value) for value in (2.0, 0.0123, 4.5e-5)] == ["2 s", "12.3 ms", "45 us"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ratio(print, print, rounds=10), "ratio: rounds must be at least 11, got 10"),
        (lambda: ratio(print, print, calls=0), "ratio: calls must be at least 1, got 0"),
        (lambda: Ratio(1, 1, 1, 11, 1, 1).meets(), "Ratio.meets: give exactly one of at_least and at_most"),
        (
            lambda: Ratio(1, 1, 1, 11, 1, 1).meets(at_least=1, at_most=1),
            "Ratio.meets: give exactly one of at_least and at_most",
        ),
    ],
)
def test_rejected(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
