"""Ceilings: which one bounds a time, where they are kept; when a machine counts as busy."""

import json
import math
from types import SimpleNamespace

import pytest

from dmlgpu.bench import ceilings, machine_load
from dmlgpu.bench.ceilings import (
    CachedCeilings,
    Ceilings,
    _multiply_add_rate,
    ceilings_file,
    copy_kernel,
    load_ceilings,
    measure_ceilings,
    multiply_add_kernel,
    save_ceilings,
    share_of,
)
from dmlgpu.bench.counting import Counts
from dmlgpu.bench.machine_load import MachineLoad, load_warnings, measure_load
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

CEILINGS = Ceilings(copy=1e9, multiply_add=1e10, launch=1e-5, submission=1e-4, source="gpu")
CARD = AdapterInfo("card", "Vulkan", "discrete", "maker", "1.2")


@pytest.mark.parametrize(
    ("counts", "bound_by", "share"),
    [
        (Counts(bytes=10**6, operations=10**6), "copy", 0.5),  # 1 ms of 2
        (Counts(bytes=10**5, operations=10**7), "multiply-add", 0.5),
        (Counts(bytes=4, operations=1, kernels=100), "launch", 0.5),
        (Counts(bytes=4, operations=1), "launch", 0.005),
    ],
)
def test_the_ceiling_that_allows_no_less_time_bounds_it(counts, bound_by, share):
    ceiling_share = share_of(0.002, counts, CEILINGS)
    assert (ceiling_share.bound_by, ceiling_share.share) == (bound_by, pytest.approx(share))


def test_ceilings_are_kept_per_adapter_and_driver(tmp_path):
    assert load_ceilings(CARD, tmp_path) is None
    save_ceilings(CARD, CachedCeilings(CEILINGS, 0.25), tmp_path)
    assert load_ceilings(CARD, tmp_path) == CachedCeilings(CEILINGS, 0.25)
    newer = AdapterInfo("card", "Vulkan", "discrete", "maker", "1.3")
    assert load_ceilings(newer, tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": 1}'])
def test_files_that_are_none_are_measured_again(tmp_path, text):
    save_ceilings(CARD, CachedCeilings(CEILINGS, 0.0), tmp_path)
    ceilings_file(CARD, tmp_path).write_text(text, encoding="utf-8")
    assert load_ceilings(CARD, tmp_path) is None


def test_ceilings_of_another_format_are_measured_again(tmp_path):
    save_ceilings(CARD, CachedCeilings(CEILINGS, 0.0), tmp_path)
    path = ceilings_file(CARD, tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "format": 0}), encoding="utf-8")
    assert load_ceilings(CARD, tmp_path) is None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    save_ceilings(CARD, CachedCeilings(CEILINGS, 0.0), tmp_path / "file")
    assert load_ceilings(CARD, tmp_path / "file") is None


@pytest.mark.usefixtures("homeless")
def test_without_a_home_nothing_is_kept():
    save_ceilings(CARD, CachedCeilings(CEILINGS, 0.0))
    assert load_ceilings(CARD) is None


@pytest.mark.parametrize("record", [None, {}, {"copy": 1}, {**CEILINGS.to_json(), "launch": 0}])
def test_records_that_are_no_ceilings_are_rejected(record):
    with pytest.raises(InvalidArgument, match="must have positive numbers"):
        Ceilings.from_json(record)


def test_kernels_compute_as_much_as_is_counted():
    assert copy_kernel(64, 4, 10).count("= a[first") == 4
    text = multiply_add_kernel(8, 3, 6, 100)
    assert text.count("fma(") == 18
    assert [text.count(f"fma(c2, x{pair}, y{pair})") for pair in range(4)] == [2, 2, 1, 1]


def test_the_longest_loop_is_nearly_all_multiply_adds():
    chains, steps = max(ceilings._CHAINS, key=math.prod)
    assert 4 * chains * steps >= 256  # wgpu's counters add ten instructions
    assert 4 * (chains + 2 * ceilings._FACTORS) < 96  # registers


class FakeBench:
    """Kernels that take a second for each chain of theirs."""

    def __init__(self):
        self.kernels = []
        self.backend = SimpleNamespace(target=SimpleNamespace(max_workgroup_invocations=64))

    def buffer(self, size):
        return size

    def shader(self, wgsl, count):
        self.kernels.append(wgsl)
        return SimpleNamespace(bind=lambda ranges, groups: groups)

    def once(self, work):
        return 1.0

    seconds = once


def test_no_further_kernel_is_compiled_when_time_is_up():
    every, first = FakeBench(), FakeBench()
    assert _multiply_add_rate(every, lambda: True) > _multiply_add_rate(first, lambda: False) > 0
    assert (len(every.kernels), len(first.kernels)) == (10, 1)  # 256 invocations exceed the limit


def test_the_reference_has_ceilings_too(monkeypatch):
    now = iter(range(10**6))
    measured = measure_ceilings(Device(NUMPY_ADAPTER), clock=lambda: next(now))
    assert (measured.launch, measured.source) == (1, "wall clock")
    assert measured.copy == 2 * (64 << 20)
    assert measured.multiply_add == 2 * 512**3


def test_time_that_others_take_is_noticed():
    class Clock:
        """Moves by a tick each time that it is asked; a thread's own clock by three quarters of one."""

        def __init__(self, tick):
            self.now, self.tick = 0.0, tick

        def __call__(self):
            self.now += self.tick
            return self.now

    alone = measure_load(0.0, wall=Clock(1.0), own=Clock(2.0))
    assert (alone.taken, alone.cores) == (0.0, alone.cores)
    disturbed = measure_load(0.0, wall=Clock(1.0), own=Clock(0.5))
    assert disturbed.taken > machine_load.BUSY


def test_doubtful_ceilings_are_reported():
    idle, busy = MachineLoad(0.02, 0.1, 8), MachineLoad(0.4, 9.5, 8)
    assert load_warnings(idle, idle, 0.05) == []
    assert load_warnings(idle, busy, 0.0) == [
        "the machine is busy: other processes took 40 % of the CPU time of a test loop, load 0.1 on 8 cores"
    ]
    assert load_warnings(idle, idle, 0.2) == ["the last rounds were 20 % slower than the first"]
    assert load_warnings(idle, idle, -0.2) == ["the last rounds were 20 % faster than the first"]


# ---- measured while the machine is busy


def load(taken):
    return machine_load.MachineLoad(taken, None, 2)


def rates(copy, launch):
    return Ceilings(copy, 10.0 * copy, launch, 2.0 * launch, "gpu")


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Ceilings as they are kept, or measured while others take some share of the CPU; says whether they were."""
    monkeypatch.setattr(ceilings, "cache_folder", lambda: tmp_path)

    def known_while(taken, measured):
        calls = []
        monkeypatch.setattr(machine_load, "measure_load", lambda: load(taken))
        cached = ceilings.known_ceilings(NUMPY_ADAPTER, lambda: calls.append(1) or measured, load(taken))
        return cached, bool(calls)

    return known_while


def test_ceilings_of_a_busy_machine_are_measured_again_when_it_is_idle(known):
    assert known(0.5, rates(4.4, 1.0))[1]
    cached, was_measured = known(0.01, rates(13.5, 0.5))
    assert was_measured and cached.ceilings == rates(13.5, 0.5) and not cached.doubt
    assert known(0.5, rates(1.0, 9.0)) == (cached, False)
    assert known(0.0, rates(99.0, 0.1)) == (cached, False)


def test_the_best_counts_while_the_machine_is_less_busy_but_not_idle(known):
    known(0.6, rates(4.0, 1.0))
    assert known(0.55, rates(9.0, 9.0))[1] is False
    cached, was_measured = known(0.3, rates(3.0, 0.5))
    assert was_measured and cached.taken == 0.3 and cached.doubt
    assert (cached.ceilings.copy, cached.ceilings.launch) == (4.0, 0.5)
