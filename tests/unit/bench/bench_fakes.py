"""Contestants with given times, on a clock that advances only while they run; and invented runs of measurements."""

from dataclasses import replace

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.prepared import Sample
from dmlgpu.bench.records import BenchRun, Measurement, facts
from dmlgpu.common.errors import DmlError
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

CEILINGS = Ceilings(1e9, 1e10, 1e-5, 1e-4, "gpu")
CARD = LocatedAdapter(replace(NUMPY_ADAPTER, name="card", driver=""), 3, (("VK_DRIVER_FILES", "x"),), "gpu")

READY = {
    "init": {"total": 0.5},
    "cold": 0.1,
    "check": {"status": "right", "text": "ok"},
    "counts": {"bytes": 1000, "operations": 500, "kernels": 1},
    "kernels": ["map"],
    "sets": 2,
    "footprint": 2000,
}


class Clock:
    """A clock that advances only on request."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Fake:
    """A contestant.

    Args:
        clock: which its rounds move on.
        seconds: of a dispatch, by the number of the round, from 0.
        gpu: whether the device tells times, half of the host's.
        fails: the number of the round that raises; -1 for ``prepare``.
        log: gets its name at each round.
    """

    schedule = ""

    def __init__(
        self, clock, seconds=lambda number: 0.02, *, name="fake", gpu=True, fails=None, log=None, error=DmlError
    ):
        self.clock, self.seconds, self.gpu, self.fails, self.adapter = clock, seconds, gpu, fails, name
        self.log, self.error = log, error
        self.rounds, self.calls, self.closed = 0, [], 0

    def prepare(self):
        if self.fails == -1:
            raise self.error("cannot")
        return READY

    def round(self, calls):
        if self.fails == self.rounds:
            raise self.error("gone")
        seconds = self.seconds(self.rounds)
        self.rounds += 1
        self.calls.append(calls)
        self.clock.now += seconds * calls
        if self.log is not None:
            self.log.append(self.adapter)
        return Sample(seconds / 2 if self.gpu else None, seconds, seconds / 10)

    def close(self):
        self.closed += 1


def measured(name="GEMM", adapter="gpu", seconds=(0.001,) * 12, **more):
    """A measurement with these times."""
    fields = {"check": "right", "source": "gpu", "counts": READY["counts"], **more}
    return Measurement(name, "GEMM", adapter, seconds=tuple(seconds), **fields)


SOME = (measured("a", warnings=("busy",)), measured("b", seconds=(), status="refused", message="no float64"))


def run(*measurements):
    """A run on one adapter, of some measurements."""
    header = facts([CARD], {"gpu": CEILINGS}, ["dmlgpu", "bench", "GEMM"], {"precision": 0.03})
    return BenchRun(header, measurements or SOME)
