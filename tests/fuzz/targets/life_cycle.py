"""Objects of devices in any order; arguments are of the right kinds."""

from __future__ import annotations

from tests.fuzz.machine import LifeCycle, run_machine
from tests.fuzz.monitor import Monitor


def run(seed: int, monitor: Monitor) -> None:
    """Run some examples of the machine."""
    run_machine(LifeCycle, seed, monitor)
