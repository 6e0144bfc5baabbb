"""What constants for sizes save: the time of kernels that read sizes from parameters, relative to that with constants.

    python benchmarks/constants.py [ADAPTER] [-k PART] [-r ROUNDS]

Each row of the suite ``families`` (``dmlgpu bench families``) is compiled both ways. Both run interleaved, and then
each kernel by itself, by CPU time, which depends less on what else the machine does. The schedules at the end are those
whose kernels constants make faster by at most ``NO_GAIN``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

from dmlgpu import Device, DmlError
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.prepared import PreparedOperator
from dmlgpu.bench.ratios import Ratio, ratio
from dmlgpu.bench.specs import suite_rows
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.runtime.specialization import Specialize
from dmlgpu.runtime.wgpu.queue import KernelWork, RecordedWork

SECONDS = 0.05
"""Least time of a measurement, which has as many calls as it takes."""
NO_GAIN = 0.03


def workloads(part: str) -> list[Workload]:
    """Return those of the suite ``families`` whose names contain a part."""
    suite = suite_rows("families")
    assert suite is not None
    every = [load for row in suite[1] for load in of_operator(row.what, row.sizes, row.types, row.layouts)]
    return [load for load in every if part in load.name]


def schedule_of(kernel: RenderedKernel) -> str:
    """Return the files of its schedule."""
    return " ".join(file.removeprefix("schedules/") for file in kernel.bodies if file.startswith("schedules/"))


def compare(prepared: Sequence[PreparedOperator], first: int, last: int, rounds: int) -> Ratio:
    """Return the ratio of the times of the same kernels of two prepared operators."""
    runs = []
    for operator in prepared:
        backend, work = operator._device.backend, [RecordedWork(each[first:last]) for each in operator._work]
        runs.append(lambda number, backend=backend, work=work: backend.wait(backend.submit(work[number % len(work)])))
    runs[1](0)
    start = time.perf_counter()
    runs[1](1)
    calls = max(1, round(SECONDS / (time.perf_counter() - start)))
    return ratio(runs[0], runs[1], rounds, calls=calls, clock=time.process_time)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="llvmpipe")
    parser.add_argument("-k", dest="part", default="", help="only rows whose names contain this")
    parser.add_argument("-r", "--rounds", type=int, default=31)
    options = parser.parse_args()
    rows: list[Ratio] = []
    by_schedule: defaultdict[str, list[Ratio]] = defaultdict(list)
    for workload in workloads(options.part):
        try:
            prepared = [
                PreparedOperator(Device(options.adapter, specialize=policy), workload, checked=False)
                for policy in (Specialize.NEVER, Specialize.ALWAYS)
            ]
        except DmlError as error:
            print(f"{workload.name}: {error}")
            continue
        work = prepared[0]._work[0]
        rows.append(compare(prepared, 0, len(work), options.rounds))
        print(f"{rows[-1]!s:55} {workload.name}", flush=True)
        program = prepared[0]._compiled.program
        assert program is not None
        schedules = {kernel.label: schedule_of(kernel) for kernel in program.kernels}
        firsts = {item.name: number for number, item in reversed([*enumerate(work)]) if isinstance(item, KernelWork)}
        for name, number in sorted(firsts.items(), key=itemgetter(1)):
            measured = compare(prepared, number, number + 1, options.rounds) if len(work) > 1 else rows[-1]
            by_schedule[schedules[name]].append(measured)
            print(f"    {measured!s:55} {name} ({schedules[name]})", flush=True)
        for operator in prepared:
            operator.close()
    medians = [row.median for row in rows]
    print(f"median of {len(rows)} rows: {statistics.median(medians):.3f}, largest {max(medians):.3f}")
    no_faster = sorted(name for name, every in by_schedule.items() if all(each.median < 1 + NO_GAIN for each in every))
    print("no faster:", ", ".join(no_faster))


if __name__ == "__main__":
    main()
