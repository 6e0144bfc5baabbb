"""``dmlgpu bench``: how fast are these operators, cases and models on these adapters?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from dmlgpu.bench import machine_load, scaling
from dmlgpu.bench.aims import AGAINST_NUMPY, aims_of, read_aims
from dmlgpu.bench.ceilings import Ceilings, known_ceilings
from dmlgpu.bench.children import Child, Remote, ceilings_of, child_of
from dmlgpu.bench.choosing import SCHEDULE_NAMES, schedules_of
from dmlgpu.bench.numpy_baseline import has_formula
from dmlgpu.bench.peers import comparison
from dmlgpu.bench.peers.contestants import InstalledPeer, OneByOne, PeerContestant, PeerRow, choose_peers, start_peers
from dmlgpu.bench.records import BenchRun, Measurement, facts, measurement_of, write_run
from dmlgpu.bench.samples import Contestant, Patience, measure
from dmlgpu.bench.scaling import NUMPY, REFERENCE, break_evens, sweeps
from dmlgpu.bench.wording import ceilings_text, hot_text, phases_text, work_text
from dmlgpu.bench.workload import Workload
from dmlgpu.cli.adapters import choose_adapters
from dmlgpu.cli.progress import BenchProgress
from dmlgpu.cli.tables import table
from dmlgpu.cli.workloads import BenchSubject
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.common.files import growing_file
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, process_adapters
from dmlgpu.runtime.adapters import target_of
from dmlgpu.runtime.numpy.adapter import NUMPY_ADAPTER

ALL = "all"
"""Of schedules: every one there is."""


@dataclass(frozen=True)
class BenchRequest:
    """The options of the command.

    Attributes:
        subjects: what is measured.
        adapters, drivers: where, as for ``dmlgpu test``.
        patience: when to stop.
        time_limit: seconds for one answer of a child.
        ceilings: measure the adapters' ceilings again.
        checked: compare results with the reference.
        numpy: measure plain NumPy beside.
        peers: names of the peers that are measured beside rows that say what peers compute; none for all.
        interpreters: of peers' environments, by their names.
        plot: the file for a plot, or None.
        output: the file for JSON Lines, or None.
        as_json: print JSON in place of tables.
        command: the command line, to be written down.
    """

    subjects: tuple[BenchSubject, ...]
    adapters: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)
    time_limit: float = 300.0
    ceilings: bool = False
    checked: bool = True
    numpy: bool = False
    peers: tuple[str, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)
    plot: Path | None = None
    output: Path | None = None
    as_json: bool = False
    command: tuple[str, ...] = ()


def bench(request: BenchRequest) -> BenchRun:
    """Measure workloads on adapters, in turn, and print what comes of each as it comes.

    Raises:
        AdapterNotFound, InvalidArgument: for what does not exist.
        OSError: the output cannot be written.
    """
    _check(request)
    aims = {subject.workload.name: _aims(subject) for subject in request.subjects if _aims(subject)}
    adapters = choose_adapters(request.adapters, request.drivers)
    children = {adapter.label: child_of(adapter, request.time_limit) for adapter in adapters}
    if request.numpy or any(_has_peers(subject) or AGAINST_NUMPY in _aims(subject) for subject in request.subjects):
        children[NUMPY] = _host_child(adapters, children, request)
    peers = _peers(request)
    try:
        before = machine_load.measure_load()
        ceilings = _ceilings(adapters, children, before, request)
        header = facts(adapters, ceilings, request.command, _options(request))
        if aims:
            header["aims"] = aims
        if peers:
            header["peers"] = {peer.peer.name: peer.to_json() for peer in peers}
            header["wanted"] = {
                subject.workload.name: PeerRow(subject.workload, subject.more).wanted for subject in request.subjects
            }
        if not request.as_json:
            print_busyness(before)
        with growing_file(request.output) if request.output else contextlib.nullcontext() as file:
            measured = _measurements(request, adapters, children, ceilings, peers)
            measurements = []
            for measurement in _written(file, header, measured):
                measurements.append(measurement)
                if not request.as_json:
                    print_measurement(measurement)
        run = BenchRun(header, tuple(measurements))
    finally:
        for child in {id(child): child for child in (*children.values(), *(peer.child for peer in peers))}.values():
            child.close()
    if request.plot is not None:
        scaling.plot(measurements, ceilings, request.plot)
    if not request.as_json:
        for text in break_evens(sweeps(measurements)):
            print(text)
        print_standings(run)
        print_aims(run)
    else:
        print(json.dumps({**header, "measurements": [measurement.to_json() for measurement in measurements]}, indent=2))
    return run


def _check(request: BenchRequest) -> None:
    """Look, before anything is measured, whether what is asked for exists.

    Raises:
        InvalidArgument: a schedule, or a plot's format, that does not.
        ModuleNotFoundError: what draws plots is not installed.
    """
    if request.plot is not None:
        scaling.check_path(request.plot)
    for name in (name for subject in request.subjects for name in subject.schedules):
        if name not in (ALL, *SCHEDULE_NAMES):
            raise InvalidArgument(f"a schedule must be one of {', '.join((ALL, *SCHEDULE_NAMES))}, got {name!r}")


def _host_child(adapters: Sequence[LocatedAdapter], children: Mapping[str, Child], request: BenchRequest) -> Child:
    """Return a child without a GPU, in which NumPy runs: that of the reference, where it is measured too."""
    for located in adapters:
        if located.info == NUMPY_ADAPTER:
            return children[located.label]
    host = next(adapter for adapter in process_adapters() if adapter.info == NUMPY_ADAPTER)
    return child_of(host, request.time_limit)


def _options(request: BenchRequest) -> dict[str, float | bool]:
    patience = request.patience
    return {"precision": patience.precision, "budget": patience.budget, "checked": request.checked}


def _written(
    file: TextIO | None, header: Mapping[str, object], measurements: Iterator[Measurement]
) -> Iterator[Measurement]:
    return measurements if file is None else write_run(file, header, measurements)


def _ceilings(
    adapters: Sequence[LocatedAdapter],
    children: Mapping[str, Child],
    before: machine_load.MachineLoad,
    request: BenchRequest,
) -> dict[str, Ceilings]:
    """Return the ceilings of adapters, by label: those that are kept, or measured now where there are none, and where
    the machine was busy when they were measured and is not any more."""
    ceilings = {}
    for adapter in adapters:
        child = children[adapter.label]
        try:
            cached = known_ceilings(adapter.info, partial(ceilings_of, child), before, again=request.ceilings)
        except DmlError as error:
            print(f"dmlgpu: the ceilings of {adapter} could not be measured: {error}", file=sys.stderr)
            if not request.as_json:
                print_adapter(adapter, None)
            continue
        if cached.doubt:
            print(f"dmlgpu: ceilings of {adapter}: {cached.doubt}; --ceilings measures them again", file=sys.stderr)
        ceilings[adapter.label] = cached.ceilings
        if not request.as_json:
            print_adapter(adapter, cached.ceilings)
    return ceilings


def _measurements(
    request: BenchRequest,
    adapters: Sequence[LocatedAdapter],
    children: Mapping[str, Child],
    ceilings: Mapping[str, Ceilings],
    peers: Sequence[InstalledPeer],
) -> Iterator[Measurement]:
    """Measure one workload after the other; of each, all contestants in turn."""
    progress = BenchProgress(sys.stderr, len(request.subjects))
    for number, subject in enumerate(request.subjects):
        workload = subject.workload
        beside = _has_peers(subject)
        ours = OneByOne if beside else Remote
        contestants: list[Contestant] = [
            ours(children[adapter.label], adapter.label, workload, schedule, request.checked)
            for adapter in adapters
            for schedule in _schedules(workload, subject.schedules, adapter)
        ]
        if request.numpy or AGAINST_NUMPY in _aims(subject) or (beside and has_formula(workload)):
            contestants.append(_in_numpy(children[NUMPY], workload))
        if beside:
            row = PeerRow(workload, subject.more)
            contestants += [PeerContestant(peer.child, peer.peer.name, row, request.checked) for peer in peers]
        before = machine_load.measure_load()
        results = measure(
            contestants,
            request.patience,
            tell=lambda text, number=number, name=workload.name: progress.show(number, name, text),  # type: ignore[misc]
        )
        after = machine_load.measure_load()
        progress.clear()
        taken = round(max(before.taken, after.taken), 3)
        for measured in results:
            result = measurement_of(workload, measured).with_ceilings(ceilings.get(measured.contestant.adapter))
            yield replace(result, taken=taken, warnings=tuple(machine_load.load_warnings(before, after, result.drift)))
    progress.finish()


def _in_numpy(child: Child, workload: Workload) -> Remote:
    """Return the workload in plain NumPy, or on the reference where there is no formula for it."""
    if has_formula(workload):
        return Remote(child, NUMPY, workload, plain=True)
    return Remote(child, REFERENCE, workload, checked=False)


def _aims(subject: BenchSubject) -> dict[str, float]:
    return read_aims(subject.workload.name, subject.more.get("aims", {}))


def _has_peers(subject: BenchSubject) -> bool:
    return "onnx" in subject.more


def _peers(request: BenchRequest) -> list[InstalledPeer]:
    """Start the peers that are wanted, and say which are not installed; none where no row says what they compute.

    Raises:
        InvalidArgument: for a name that is none.
    """
    chosen = choose_peers(request.peers)
    if not any(map(_has_peers, request.subjects)):
        return []
    installed, missing = start_peers(chosen, request.interpreters, request.time_limit)
    for text in missing:
        print(f"dmlgpu: {text}", file=sys.stderr)
    return installed


def _schedules(workload: Workload, requested: Sequence[str], adapter: LocatedAdapter) -> tuple[str, ...]:
    """Return the schedules that a workload is measured under on an adapter."""
    if not requested:
        return ("",)
    target = target_of(adapter.info, workload.half_precision)
    if target is None or workload.desc is None:
        return ("",)
    return schedules_of(workload, target) if ALL in requested else ("", *requested)


def print_adapter(adapter: LocatedAdapter, ceilings: Ceilings | None) -> None:
    """Print an adapter with its ceilings."""
    print(f"{adapter.label}: {adapter.info}")
    if ceilings is not None:
        print(f"  {ceilings_text(ceilings)}")
    print(end="", flush=True)


def print_busyness(busyness: machine_load.MachineLoad) -> None:
    """Print whether the machine is busy."""
    for text in machine_load.load_warnings(busyness, busyness, 0.0):
        print(f"Warning: {text}")
    print(flush=True)


def print_measurement(measurement: Measurement) -> None:
    """Print a measurement: what it is, then its times, then what makes them doubtful."""
    where = " ".join(filter(None, (measurement.adapter, measurement.schedule and f"schedule {measurement.schedule}")))
    print(f"{measurement.name} on {where}")
    if measurement.median is None:
        print(f"  {measurement.status}: {measurement.message}", flush=True)
        return
    rounds = f"{len(measurement.seconds)} rounds of {measurement.calls}"
    print(f"  {hot_text(measurement)}, {rounds}; {phases_text(measurement)}")
    if text := work_text(measurement):
        print(f"  {text}")
    if measurement.check != "right" and measurement.check_text:
        print(f"  {measurement.check}: {measurement.check_text}")
    for text in measurement.warnings:
        print(f"  warning: {text}")
    print(end="", flush=True)


def print_standings(run: BenchRun) -> None:
    """Print a table of times, ours and the peers', and the ratio to the best of them; nothing where there are none."""
    comparisons = comparison.compare_peers(run)
    names = [*run.facts.get("peers", {}), NUMPY]
    for label in dict.fromkeys(entry.ours.adapter for entry in comparisons):
        rows = [entry for entry in comparisons if entry.ours.adapter == label]
        legend = f"{comparison.FAILED} fails, {comparison.WRONG} wrong result, {comparison.MISSING} not offered"
        print(f"\nms per run, one at a time, by the wall clock; {legend}")
        columns = ["", label, *names, "best on a GPU", "its time / ours", "wanted", "share of ceiling"]
        table(columns, [row.cells() for row in rows], right=range(1, 2 + len(names)))
        print(comparison.summary(rows), flush=True)


def print_aims(run: BenchRun) -> None:
    """Print a table of what rows aim at and what became of it; nothing where they aim at nothing."""
    aims = aims_of(run)
    if aims:
        print()
        columns = ["", "adapter", "aim", "measured", "wanted", ""]
        table(columns, [aim.cells() for aim in aims], right=(3, 4))
        print(end="", flush=True)
