"""A suite of misbehaving cases, as another package would define it: for tests of the processes that run them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dmlgpu.common.errors import DeviceRemoved, DmlError, NotSupported
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.device import Device

NAMES = ("good-1", "bad-1", "hang-1", "good-2", "crash-1", "refused-1", "raises-1", "broken-1", "lost-1", "good-3")


class MisbehavingSuite:
    """Each case's name says what it does."""

    profiles = ("quick", "full")

    def names(self, profile: str) -> tuple[str, ...]:
        return NAMES if profile == "quick" else (*NAMES, "good-4", "precise-1")

    def has(self, name: str) -> bool:
        return name in self.names("full")

    def run(self, name: str, device: Device) -> Outcome:
        kind = name.partition("-")[0]
        print("a driver prints this to standard output", flush=True)
        if kind == "precise":
            return Outcome(name, Status.PASS, message=f"precise: {device.backend.target.policies.precise}")
        return getattr(self, kind)(name)

    def good(self, name: str) -> Outcome:
        return Outcome(name, Status.PASS, "exact", 0.0, 0.0, 0.0, elements=1, digest="ab")

    def bad(self, name: str) -> Outcome:
        return Outcome(
            name, Status.FAIL, "exact", float("inf"), 2.0, 1.0, 1, 2, (1,), ("3",), "4", "5", 0.0, digest="cd"
        )

    def crash(self, name: str) -> Outcome:
        print("about to crash", file=sys.stderr, flush=True)
        os._exit(3)

    def hang(self, name: str) -> Outcome:
        time.sleep(1000)
        raise AssertionError

    def refused(self, name: str) -> Outcome:
        raise NotSupported("needs the adapter feature shader-f64")

    def lost(self, name: str) -> Outcome:
        raise DeviceRemoved("the device is gone")

    def raises(self, name: str) -> Outcome:
        raise DmlError("every adapter must run it")

    def broken(self, name: str) -> Outcome:
        raise ZeroDivisionError("in the case itself")


_ODD = {7: "bad", 33: "refused"}
MANY = tuple(f"{_ODD.get(index, 'slow')}-{index}" for index in range(40))


class ManySuite(MisbehavingSuite):
    """Enough cases to be shared out, each taking a moment; a few that do not pass."""

    def names(self, profile: str) -> tuple[str, ...]:
        return MANY

    def slow(self, name: str) -> Outcome:
        time.sleep(0.02)
        return self.good(name)


def install(folder: Path, name: str = "misbehaving", suite: type = MisbehavingSuite) -> dict[str, str]:
    """Make a package in a folder that registers a suite; the environment in which it is found."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    module = suite.__module__.rpartition(".")[2]
    (metadata / "entry_points.txt").write_text(f"[dmlgpu.suites]\n{name} = {module}:{suite.__name__}\n")
    paths = [str(folder), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}
