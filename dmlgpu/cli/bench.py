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
from dmlgpu.bench.peers import comparison, contestants
from dmlgpu.bench.peers.contestants import InstalledPeer, OneByOne, PeerContestant, PeerRow
from dmlgpu.bench.records import BenchRun, Measurement, facts, measurement, write_run
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
    aims = {one.workload.name: _aims(one) for one in request.subjects if _aims(one)}
    adapters = choose_adapters(request.adapters, request.drivers)
    children = {one.label: child_of(one, request.time_limit) for one in adapters}
    if request.numpy or any(_has_peers(one) or AGAINST_NUMPY in _aims(one) for one in request.subjects):
        children[NUMPY] = _host_child(adapters, children, request)
    peers = _peers(request)
    try:
        before = machine_load.measure_load()
        ceilings = _ceilings(adapters, children, before, request)
        header = facts(adapters, ceilings, request.command, _options(request))
        if aims:
            header["aims"] = aims
        if peers:
            header["peers"] = {one.peer.name: one.to_json() for one in peers}
            header["wanted"] = {one.workload.name: PeerRow(one.workload, one.more).wanted for one in request.subjects}
        if not request.as_json:
            print_busyness(before)
        with growing_file(request.output) if request.output else contextlib.nullcontext() as file:
            measured = _measurements(request, adapters, children, ceilings, peers)
            found = []
            for one in _written(file, header, measured):
                found.append(one)
                if not request.as_json:
                    print_measurement(one)
        run = BenchRun(header, tuple(found))
    finally:
        for child in {id(one): one for one in (*children.values(), *(one.child for one in peers))}.values():
            child.close()
    if request.plot is not None:
        scaling.plot(found, ceilings, request.plot)
    if not request.as_json:
        for text in break_evens(sweeps(found)):
            print(text)
        print_standings(run)
        print_aims(run)
    else:
        print(json.dumps({**header, "measurements": [one.to_json() for one in found]}, indent=2))
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
    for one in adapters:
        if one.info == NUMPY_ADAPTER:
            return children[one.label]
    host = next(one for one in process_adapters() if one.info == NUMPY_ADAPTER)
    return child_of(host, request.time_limit)


def _options(request: BenchRequest) -> dict[str, float | bool]:
    patience = request.patience
    return {"precision": patience.precision, "budget": patience.budget, "checked": request.checked}


def _written(file: TextIO | None, header: Mapping[str, object], found: Iterator[Measurement]) -> Iterator[Measurement]:
    return found if file is None else write_run(file, header, found)


def _ceilings(
    adapters: Sequence[LocatedAdapter],
    children: Mapping[str, Child],
    before: machine_load.MachineLoad,
    request: BenchRequest,
) -> dict[str, Ceilings]:
    """Return the ceilings of adapters, by label: those that are kept, or measured now where there are none, and where
    the machine was busy when they were measured and is not any more."""
    found = {}
    for one in adapters:
        child = children[one.label]
        try:
            kept = known_ceilings(one.info, partial(ceilings_of, child), before, again=request.ceilings)
        except DmlError as error:
            print(f"dmlgpu: the ceilings of {one} could not be measured: {error}", file=sys.stderr)
            if not request.as_json:
                print_adapter(one, None)
            continue
        if kept.doubt:
            print(f"dmlgpu: ceilings of {one}: {kept.doubt}; --ceilings measures them again", file=sys.stderr)
        found[one.label] = kept.ceilings
        if not request.as_json:
            print_adapter(one, kept.ceilings)
    return found


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
            ours(children[one.label], one.label, workload, schedule, request.checked)
            for one in adapters
            for schedule in _schedules(workload, subject.schedules, one)
        ]
        wanted = request.numpy or AGAINST_NUMPY in _aims(subject)
        if wanted or (beside and has_formula(workload)):
            contestants.append(_in_numpy(children[NUMPY], workload))
        if beside:
            row = PeerRow(workload, subject.more)
            contestants += [PeerContestant(one.child, one.peer.name, row, request.checked) for one in peers]
        before = machine_load.measure_load()
        measured = measure(
            contestants,
            request.patience,
            tell=lambda text, number=number, name=workload.name: progress.show(number, name, text),  # type: ignore[misc]
        )
        after = machine_load.measure_load()
        progress.clear()
        for one in measured:
            made = measurement(workload, one).with_ceilings(ceilings.get(one.contestant.adapter))
            taken = round(max(before.taken, after.taken), 3)
            yield replace(made, taken=taken, warnings=tuple(machine_load.load_warnings(before, after, made.drift)))
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
    chosen = contestants.choose_peers(request.peers)
    if not any(map(_has_peers, request.subjects)):
        return []
    found, missing = contestants.start_peers(chosen, request.interpreters, request.time_limit)
    for text in missing:
        print(f"dmlgpu: {text}", file=sys.stderr)
    return found


def _schedules(workload: Workload, wanted: Sequence[str], adapter: LocatedAdapter) -> tuple[str, ...]:
    """Return the schedules that a workload is measured under on an adapter."""
    if not wanted:
        return ("",)
    target = target_of(adapter.info, workload.half_precision)
    if target is None or workload.desc is None:
        return ("",)
    return schedules_of(workload, target) if ALL in wanted else ("", *wanted)


def print_adapter(one: LocatedAdapter, ceilings: Ceilings | None) -> None:
    """Print an adapter with its ceilings."""
    print(f"{one.label}: {one.info}")
    if ceilings is not None:
        print(f"  {ceilings_text(ceilings)}")
    print(end="", flush=True)


def print_busyness(busyness: machine_load.MachineLoad) -> None:
    """Print whether the machine is busy."""
    for text in machine_load.load_warnings(busyness, busyness, 0.0):
        print(f"Warning: {text}")
    print(flush=True)


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
    found = comparison.compare_peers(run)
    names = [*run.facts.get("peers", {}), NUMPY]
    for label in dict.fromkeys(one.ours.adapter for one in found):
        rows = [one for one in found if one.ours.adapter == label]
        legend = f"{comparison.FAILED} fails, {comparison.WRONG} wrong result, {comparison.MISSING} not offered"
        print(f"\nms per run, one at a time, by the wall clock; {legend}")
        columns = ["", label, *names, "best on a GPU", "its time / ours", "wanted", "share of ceiling"]
        table(columns, [one.cells() for one in rows], right=range(1, 2 + len(names)))
        print(comparison.summary(rows), flush=True)


def print_aims(run: BenchRun) -> None:
    """Print a table of what rows aim at and what became of it; nothing where they aim at nothing."""
    found = aims_of(run)
    if found:
        print()
        columns = ["", "adapter", "aim", "measured", "wanted", ""]
        table(columns, [one.cells() for one in found], right=(3, 4))
        print(end="", flush=True)
