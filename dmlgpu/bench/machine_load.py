"""CPU time that other processes take during a measurement."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

BUSY = 0.1
"""Fraction of CPU time of other processes above which the machine counts as busy."""
BUSY_MACHINE = "the machine is busy"
DRIFTING = 0.1
"""Relative difference between last and first rounds that is reported."""

_BLOCK = bytes(1 << 20)


@dataclass(frozen=True)
class MachineLoad:
    """Load of the machine.

    Attributes:
        taken: Fraction of CPU time that a busy loop on every core did not get; 0 on an idle machine.
        load: Load average of the last minute; None if the system has none.
        cores: Number of cores.
    """

    taken: float
    load: float | None
    cores: int


def measure_load(
    seconds: float = 0.1,
    wall: Callable[[], float] = time.perf_counter,
    own: Callable[[], float] = time.thread_time,
) -> MachineLoad:
    """Run a busy loop on every core for a while; measure how much CPU time other processes took."""
    cores = os.cpu_count() or 1
    spent = [0.0] * cores

    def loop(core: int) -> None:
        start, before = wall(), own()
        while wall() - start < seconds:
            hashlib.sha256(_BLOCK)  # lets the other threads run
        spent[core] = (own() - before) / max(wall() - start, 1e-9)

    threads = [threading.Thread(target=loop, args=(core,)) for core in range(cores)]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return MachineLoad(max(0.0, 1 - sum(spent) / cores), load, cores)


def load_warnings(before: MachineLoad, after: MachineLoad, drift: float) -> list[str]:
    """Return warnings about a busy machine or drift; empty if there are none."""
    said = []
    taken = max(before.taken, after.taken)
    if taken > BUSY:
        load = "" if before.load is None else f", load {before.load:.1f} on {before.cores} cores"
        said.append(f"{BUSY_MACHINE}: other processes took {100 * taken:.0f} % of the CPU time of a test loop{load}")
    if abs(drift) > DRIFTING:
        how = "slower" if drift > 0 else "faster"
        said.append(f"the last rounds were {100 * abs(drift):.0f} % {how} than the first")
    return said
