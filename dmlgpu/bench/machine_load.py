"""How much CPU time other processes take while something is measured."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

BUSY = 0.1
"""The share of a test loop's time that others may take before the machine counts as busy."""
DRIFTING = 0.1
"""By how much last rounds may be slower than first ones before that is said."""

_BLOCK = bytes(1 << 20)


@dataclass(frozen=True)
class MachineLoad:
    """How busy the machine is.

    Attributes:
        taken: The share of its time that a loop on every core did not get; 0 on an idle machine.
        load: The system's load average of the last minute; None if it has none.
        cores: Of the machine.
    """

    taken: float
    load: float | None
    cores: int


def measure_load(
    seconds: float = 0.1,
    wall: Callable[[], float] = time.perf_counter,
    own: Callable[[], float] = time.thread_time,
) -> MachineLoad:
    """Compute on every core for a while, and see how much of that time somebody else got."""
    cores = os.cpu_count() or 1
    spent = [0.0] * cores

    def loop(number: int) -> None:
        start, before = wall(), own()
        while wall() - start < seconds:
            hashlib.sha256(_BLOCK)  # lets the other threads run
        spent[number] = (own() - before) / max(wall() - start, 1e-9)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(cores)]
    for worker in threads:
        worker.start()
    for thread in threads:
        thread.join()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return MachineLoad(max(0.0, 1 - sum(spent) / cores), load, cores)


def load_warnings(before: MachineLoad, after: MachineLoad, drift: float) -> list[str]:
    """Return what to say of a machine that was busy, or grew slower or faster; nothing if all is well."""
    said = []
    taken = max(before.taken, after.taken)
    if taken > BUSY:
        load = "" if before.load is None else f", load {before.load:.1f} on {before.cores} cores"
        said.append(
            f"the machine is busy: other processes took {100 * taken:.0f} % of the CPU time of a test loop{load}"
        )
    if abs(drift) > DRIFTING:
        how = "slower" if drift > 0 else "faster"
        said.append(f"the last rounds were {100 * abs(drift):.0f} % {how} than the first")
    return said
