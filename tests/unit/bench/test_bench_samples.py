"""How often contestants are measured, in which order, and when that ends; on a clock that moves as told."""

from dataclasses import replace

import pytest

from dmlgpu.bench.ratios import MINIMUM_ROUNDS, interval
from dmlgpu.bench.records import Measurement, measurement_of
from dmlgpu.bench.samples import MAX_CALLS, MIN_ROUNDS, ROUND_SECONDS, Patience, drift, measure, noise
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import NotSupported
from tests.unit.bench.bench_fakes import Clock, Fake

PATIENCE = Patience(precision=0.03, budget=100.0)


def test_steady_times_end_after_the_fewest_rounds_that_make_an_interval():
    clock = Clock()
    (timing,) = measure([Fake(clock)], PATIENCE, clock=clock)
    assert (timing.status, timing.source, len(timing.samples)) == ("measured", "gpu", MINIMUM_ROUNDS)
    assert set(timing.seconds) == {0.01}


def test_noisy_times_are_measured_until_the_budget_ends():
    clock = Clock()
    noisy = Fake(clock, lambda number: 0.02 * (1 + number % 2))
    (timing,) = measure([noisy], Patience(0.03, 10.0), clock=clock)
    assert not timing.is_narrow(0.03)
    assert 10.0 <= sum(sample.wall for sample in timing.samples) < 10.2


def test_noise_that_averages_out_ends_before_the_budget():
    clock = Clock()
    often = Fake(clock, lambda number: 0.04 if number % 4 == 0 else 0.02)
    (timing,) = measure([often], Patience(0.03, 1000.0), clock=clock)
    assert timing.is_narrow(0.03)
    assert len(timing.samples) < 60


def test_slow_workloads_have_few_rounds_but_at_least_one():
    clock = Clock()
    (timing,) = measure([Fake(clock, lambda number: 50.0)], Patience(0.03, 1.0), clock=clock)
    assert len(timing.samples) == MIN_ROUNDS


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, ROUND_SECONDS / 4, 1.0])
def test_a_round_is_as_many_dispatches_as_clocks_need(seconds):
    clock = Clock()
    fake = Fake(clock, lambda number: seconds)
    (timing,) = measure([fake], Patience(0.03, 100.0), clock=clock)
    assert timing.calls == min(MAX_CALLS, max(1, round(ROUND_SECONDS / seconds)))
    assert set(fake.calls[-len(timing.samples) :]) == {timing.calls}


def test_contestants_run_in_turn_and_each_comes_first_as_often_as_others():
    clock, log = Clock(), []
    fakes = [Fake(clock, name=name, log=log) for name in "ab"]
    measure(fakes, PATIENCE, clock=clock)
    rounds = log[-2 * MINIMUM_ROUNDS :]
    assert rounds[:6] == ["a", "b", "b", "a", "a", "b"]
    assert rounds.count("a") == rounds.count("b") == MINIMUM_ROUNDS


def test_all_go_on_until_the_noisiest_is_sure_so_that_rounds_stay_pairs():
    clock = Clock()
    steady, noisy = Fake(clock), Fake(clock, lambda number: 0.04 if number % 4 == 0 else 0.02)
    first, second = measure([steady, noisy], PATIENCE, clock=clock)
    assert len(first.samples) == len(second.samples) > MINIMUM_ROUNDS


def test_who_fails_leaves_the_others_alone_and_all_are_closed():
    clock = Clock()
    fakes = [Fake(clock), Fake(clock, fails=-1, error=NotSupported), Fake(clock, fails=6)]
    good, refused, failed = measure(fakes, PATIENCE, clock=clock)
    assert [timing.status for timing in (good, refused, failed)] == ["measured", "refused", "failed"]
    assert (refused.message, failed.message) == ("cannot", "gone")
    assert len(good.samples) == MINIMUM_ROUNDS
    assert [fake.closed for fake in fakes] == [1, 1, 1]


def test_single_rounds_without_timestamps_are_omitted():
    clock = Clock()
    fake = Fake(clock)

    def once_without(calls, usual=fake.round):
        sample = usual(calls)
        return replace(sample, gpu=None) if fake.rounds == 8 else sample

    fake.round = once_without
    (timing,) = measure([fake], PATIENCE, clock=clock)
    assert timing.source == "gpu"
    assert len(timing.seconds) == len(timing.samples) - 1 == MINIMUM_ROUNDS


def test_times_are_the_wall_clocks_where_rounds_have_no_timestamps():
    clock = Clock()
    (timing,) = measure([Fake(clock, gpu=False)], PATIENCE, clock=clock)
    assert (timing.source, set(timing.seconds)) == ("wall clock", {0.02})


def test_noise_is_half_the_intervals_width_and_drift_compares_ends():
    assert noise([1.0] * 11) == 0.0
    median, low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (median, low, high) == (3.0, 1.0, 5.0)
    assert noise([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert drift([1.0, 1.0, 9.0, 9.0, 1.5, 1.5]) == pytest.approx(0.5)
    assert drift([1.0, 2.0, 3.0]) == 0.0


def test_a_measurement_keeps_everything_and_comes_back_from_its_record():
    clock = Clock()
    workload = Workload("GEMM m=2", "GEMM", sizes={"m": 2}, data_type="float32", layout="packed")
    (timing,) = measure([Fake(clock)], PATIENCE, clock=clock)
    measurement = measurement_of(workload, timing)
    assert (measurement.key, measurement.median, measurement.wall, measurement.cpu, measurement.cold) == (
        ("GEMM m=2", "fake", ""),
        0.01,
        0.02,
        0.002,
        0.1,
    )
    assert (measurement.bytes_per_second, measurement.operations_per_second) == (1000 / 0.01, 500 / 0.01)
    assert Measurement.from_json(measurement.to_json()) == measurement


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("seconds", [-1.0], "'seconds' must be a number from 0 on"),
        ("name", 3, "'name' must be a string"),
        ("counts", {"bytes": "x"}, "'counts' must be an integer"),
        ("share", "much", "'share' must be a number"),
    ],
)
def test_a_malformed_record_raises_with_the_reason(field, value, said):
    record = {"name": "x", "operator": "GEMM", "adapter": "gpu", "status": "measured", field: value}
    with pytest.raises(ValueError, match=said):
        Measurement.from_json(record)
