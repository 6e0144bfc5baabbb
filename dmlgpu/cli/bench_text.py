"""What ``dmlgpu bench`` prints: a line per measurement as it comes, and how far it is."""

from __future__ import annotations

from typing import TextIO

from dmlgpu.bench import noise
from dmlgpu.bench.aims import aims_of
from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.measurement import Measurement
from dmlgpu.bench.peers import standing
from dmlgpu.bench.ratios import duration
from dmlgpu.bench.records import BenchRun
from dmlgpu.bench.scaling import NUMPY
from dmlgpu.bench.wording import hot_text, phases_text, work_text
from dmlgpu.cli.tables import table
from dmlgpu.conformance.drivers.discovery import LocatedAdapter


def print_adapter(one: LocatedAdapter, ceilings: Ceilings | None) -> None:
    """Print an adapter with its ceilings."""
    print(f"{one.label}: {one.info}")
    if ceilings is not None:
        print_ceilings(ceilings)
    print(end="", flush=True)


def print_busyness(busyness: noise.Busyness) -> None:
    """Print whether the machine is busy."""
    for text in noise.warnings(busyness, busyness, 0.0):
        print(f"Warning: {text}")
    print(flush=True)


def print_ceilings(ceilings: Ceilings) -> None:
    """Print what a device can do at most."""
    print(
        f"  ceilings ({ceilings.source}): copy {ceilings.copy / 1e9:.1f} GB/s, multiply-add"
        f" {ceilings.multiply_add / 1e9:.1f} GFLOP/s, launch {duration(ceilings.launch)} each,"
        f" submit and wait {duration(ceilings.submission)}"
    )


def print_measurement(one: Measurement) -> None:
    """Print a measurement: what it is, then its times, then what makes them doubtful."""
    where = " ".join(filter(None, (one.adapter, one.schedule and f"schedule {one.schedule}")))
    print(f"{one.name} on {where}")
    if one.median is None:
        print(f"  {one.status}: {one.message}", flush=True)
        return
    print(f"  {hot_text(one)}, {len(one.seconds)} rounds of {one.calls}; {phases_text(one)}")
    if text := work_text(one):
        print(f"  {text}")
    if one.check != "right" and one.check_text:
        print(f"  {one.check}: {one.check_text}")
    for text in one.warnings:
        print(f"  warning: {text}")
    print(end="", flush=True)


def print_standings(run: BenchRun) -> None:
    """Print a table of times, ours and the peers', and the ratio to the best of them; nothing where there are none."""
    found = standing.standings(run)
    names = [*run.facts.get("peers", {}), NUMPY]
    for label in dict.fromkeys(one.ours.adapter for one in found):
        rows = [one for one in found if one.ours.adapter == label]
        legend = f"{standing.FAILED} fails, {standing.WRONG} wrong result, {standing.MISSING} not offered"
        print(f"\nms per run, one at a time, by the wall clock; {legend}")
        columns = ["", label, *names, "best on a GPU", "its time / ours", "wanted", "share of ceiling"]
        table(columns, [one.cells() for one in rows], right=range(1, 2 + len(names)))
        print(standing.summary(rows), flush=True)


def print_aims(run: BenchRun) -> None:
    """Print a table of what rows aim at and what became of it; nothing where they aim at nothing."""
    found = aims_of(run)
    if found:
        print()
        columns = ["", "adapter", "aim", "measured", "wanted", ""]
        table(columns, [one.cells() for one in found], right=(3, 4))
        print(end="", flush=True)


class BenchProgress:
    """Tells on a terminal, in a line that overwrites itself, what is being measured; elsewhere nothing.

    Args:
        file: where it is told.
        count: of all workloads.
    """

    def __init__(self, file: TextIO, count: int):
        self._file, self._count, self._shown = file, count, 0

    def show(self, number: int, name: str, text: str) -> None:
        """Tell that the workload with a number, from 0, is where a text says."""
        if not self._file.isatty():
            return
        done = round(20 * number / max(1, self._count))
        line = f"[{'#' * done}{'.' * (20 - done)}] {number + 1} of {self._count}: {name}, {text}"[:118]
        print(f"\r{line:{self._shown}}", end="", file=self._file, flush=True)
        self._shown = len(line)

    def clear(self) -> None:
        """Take the line away, for others to print theirs."""
        if self._shown:
            print(f"\r{'':{self._shown}}\r", end="", file=self._file, flush=True)
            self._shown = 0

    def finish(self) -> None:
        """Tell nothing more."""
        self.clear()
