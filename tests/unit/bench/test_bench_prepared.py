"""Rounds on an executor with given timestamps: buffers take turns, times are the device's if possible."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.prepared import COLD_BYTES, MAX_SETS, PreparedOperator, set_count
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.backend import NumPyBackend


class TimedBackend(NumPyBackend):
    """NumPy with timestamps: every list of work takes the given time.

    Attributes:
        seconds, source: what the timestamps tell.
        submitted: the work of each submission.
    """

    def __init__(self, seconds=6.0, source="gpu"):
        super().__init__()
        self.seconds, self.source, self.submitted = seconds, source, []

    def submit(self, *work):
        self.submitted.append(work)
        return super().submit(*work)

    def time(self, work, parts=False):
        return SimpleNamespace(seconds=self.seconds, source=self.source, host_seconds=1.0)

    def prepare(self, program):
        raise NotImplementedError

    def compile_shader(self, wgsl, entry_point, constants, kinds, label):
        raise NotImplementedError


def prepared(backend):
    (workload,) = of_operator("GEMM", [{"m": 2, "k": 3, "n": 4}])
    return PreparedOperator(Device.from_backend(backend), workload)


def test_dispatches_take_the_sets_of_buffers_in_turn():
    backend = TimedBackend()
    workload = prepared(backend)
    backend.submitted.clear()
    workload.round(3)
    workload.round(MAX_SETS)
    first, second = backend.submitted
    assert workload.readiness.sets == MAX_SETS
    assert len({id(work) for work in (*first, *second[: MAX_SETS - 3])}) == MAX_SETS
    assert [id(work) for work in second[-3:]] == [id(work) for work in first]


@pytest.mark.parametrize(
    ("seconds", "source", "gpu"), [(6.0, "gpu", 2.0), (0.0, "gpu", None), (6.0, "wall clock", None)]
)
def test_times_are_the_devices_where_there_are_some(seconds, source, gpu):
    sample = prepared(TimedBackend(seconds, source)).round(3)
    assert sample.gpu == gpu
    assert sample.seconds == (gpu or sample.wall)
    assert sample.wall > 0


def test_a_call_runs_once_on_the_set_that_its_number_picks():
    backend = TimedBackend()
    workload = prepared(backend)
    backend.submitted.clear()
    for number in (1, 2, MAX_SETS + 1):
        workload.run(number)
    first, second, third = backend.submitted
    assert first == third != second
    assert len(first) == 1


def test_memory_is_freed():
    backend = TimedBackend()
    workload = prepared(backend)
    assert backend.allocated > 0
    workload.close()
    assert backend.allocated == 0


def test_buffer_sets_exceed_the_caches(monkeypatch):
    monkeypatch.setattr("dmlgpu.bench.prepared.host_budget", lambda: 4 << 30)
    assert set_count(4) == MAX_SETS
    assert set_count(COLD_BYTES // 4) == 4
    assert set_count(COLD_BYTES) == 2
    assert set_count(1 << 30) == 1  # a quarter of the memory


def test_caches_are_cold_or_warm_on_request(monkeypatch):
    monkeypatch.setattr("dmlgpu.bench.prepared.host_budget", lambda: 4 << 30)
    assert [set_count(size, "warm") for size in (4, 1 << 20, 1 << 30)] == [1, 1, 1]
    assert [set_count(size, "cold") for size in (4, 1 << 20, 1 << 30)] == [1024, 256, 1]
    (usual,) = of_operator("ELEMENT_WISE_ADD", ({"elements": 1 << 16},))
    sizes = 3 * 4 << 16
    for cache, count in (("", MAX_SETS), ("warm", 1), ("cold", -(-COLD_BYTES // sizes))):
        prepared = PreparedOperator(Device("numpy"), replace(usual, cache=cache))
        assert (prepared.readiness.sets, prepared.readiness.footprint) == (count, count * sizes)
        prepared.close()
