"""``dmlgpu bench``: benchmark operators, cases, models and kernels on adapters."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.bench import machine_load, scaling, validators
from dmlgpu.bench.aims import AGAINST_NUMPY, aims_of, read_aims
from dmlgpu.bench.ceilings import Ceilings, known_ceilings
from dmlgpu.bench.choosing import schedules_of
from dmlgpu.bench.comparing import TimeChange, TimeChangeKind, compare
from dmlgpu.bench.compiled import (
    CompiledKernel,
    KernelChange,
    KernelChangeKind,
    compare_kernels,
    is_compiled_file,
    read_kernels,
    write_kernels,
)
from dmlgpu.bench.machine_load import load_warnings
from dmlgpu.bench.numpy_baseline import has_formula
from dmlgpu.bench.peers import contestants
from dmlgpu.bench.peers.contestants import InstalledPeer, OneByOne, PeerContestant, PeerRow, choose_peers, start_peers
from dmlgpu.bench.radv import FAMILIES, compile_workloads
from dmlgpu.bench.ratios import duration, summarize
from dmlgpu.bench.records import (
    BenchRun,
    Measurement,
    ceilings_text,
    facts,
    hot_text,
    measurement_of,
    phases_text,
    read_file,
    spread_text,
    work_text,
    write_run,
)
from dmlgpu.bench.samples import Contestant, Patience, measure
from dmlgpu.bench.scaling import NUMPY, REFERENCE, break_evens, sweeps
from dmlgpu.bench.worker import Child, Remote, ceilings_of, child_of
from dmlgpu.bench.workload import Workload
from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapters
from dmlgpu.cli.subjects import BenchSubject
from dmlgpu.cli.tables import BenchProgress, table
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.common.files import file_stem, growing_file, whole_file
from dmlgpu.compiler.schedule.registry import check_name
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, process_adapters
from dmlgpu.runtime.adapters import announce_faults, target_of
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

ALL = "all"
"""Value of ``--schedule`` that selects every schedule."""


@dataclass(frozen=True)
class BenchRequest:
    """Options of ``dmlgpu bench``.

    Attributes:
        subjects: Workloads to measure.
        adapters, drivers: Adapters to use, as for ``dmlgpu test``.
        patience: When to stop measuring.
        time_limit: Timeout of a child process, in seconds.
        ceilings: Measure the adapters' ceilings again.
        checked: Check results against the reference.
        numpy: Also measure plain NumPy.
        against: Workloads to measure in turn with each kernel of the user, and to compare it with.
        peers: Names of the peers to compare suites with; empty selects all.
        interpreters: Python interpreters of peers, by name.
        plot: File for a plot, or None.
        output: File for JSON Lines, or None.
        as_json: Print JSON instead of tables.
        command: Command line, recorded in the output.
    """

    subjects: tuple[BenchSubject, ...]
    adapters: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)
    time_limit: float = 300.0
    ceilings: bool = False
    checked: bool = True
    numpy: bool = False
    against: tuple[Workload, ...] = ()
    peers: tuple[str, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)
    plot: Path | None = None
    output: Path | None = None
    as_json: bool = False
    command: tuple[str, ...] = ()


def bench(request: BenchRequest) -> BenchRun:
    """Measure workloads on adapters, interleaved, and print each result when it is available.

    Raises:
        AdapterNotFound, InvalidArgument: If an adapter, driver or option does not exist.
        OSError: If the output cannot be written.
    """
    _check(request)
    aims = {subject.workload.name: _aims(subject) for subject in request.subjects if _aims(subject)}
    adapters = choose_adapters(request.adapters, request.drivers)
    children = _children(adapters, request)
    if request.numpy or any(_has_peers(subject) or AGAINST_NUMPY in _aims(subject) for subject in request.subjects):
        children[NUMPY] = _host_child(adapters, children, request)
    peers = _peers(request)
    try:
        before = machine_load.measure_load()
        ceilings, doubted = _ceilings(adapters, children, before, request)
        header = facts(adapters, ceilings, request.command, _options(request))
        if aims:
            header["aims"] = aims
        if peers:
            header["peers"] = {peer.peer.name: peer.to_json() for peer in peers}
            header["least_ratios"] = {
                subject.workload.name: PeerRow(subject.workload, subject.more).least_ratio
                for subject in request.subjects
            }
        if not request.as_json:
            print_busyness(before, doubted)
        with growing_file(request.output) if request.output else contextlib.nullcontext() as file:
            measured = _measurements(request, adapters, children, ceilings, peers)
            measurements = []
            for measurement in _written(file, header, measured):
                measurements.append(measurement)
                if not request.as_json:
                    print_measurement(measurement, is_busy=bool(load_warnings(before, before, 0.0)))
        run = BenchRun(header, tuple(measurements))
    finally:
        for child in {id(child): child for child in (*children.values(), *(peer.child for peer in peers))}.values():
            child.close()
    if request.plot is not None:
        scaling.plot(measurements, ceilings, request.plot)
    if not request.as_json:
        for text in break_evens(sweeps(measurements)):
            print(text)
        print_against(run)
        print_variants(run)
        print_standings(run)
        print_aims(run)
    else:
        print(json.dumps({**header, "measurements": [measurement.to_json() for measurement in measurements]}, indent=2))
    return run


def _check(request: BenchRequest) -> None:
    """Validate the options before anything is measured.

    Raises:
        InvalidArgument: If a schedule or the format of the plot is unknown.
        ModuleNotFoundError: If the plotting library is not installed.
    """
    if request.plot is not None:
        scaling.check_path(request.plot)
    for kernel in (subject.workload.kernel for subject in request.subjects):
        if request.numpy and kernel is not None and not kernel.references:
            raise InvalidArgument("--numpy needs --reference EXPRESSION, such as 'a + b', to measure a kernel")
    check_schedules(request)


def check_schedules(request: BenchRequest) -> None:
    """Raise InvalidArgument if a schedule is unknown."""
    for name in (name for subject in request.subjects for name in subject.schedules):
        if name != ALL:
            check_name(name)


def _children(adapters: Sequence[LocatedAdapter], request: BenchRequest) -> dict[str, Child]:
    """Return a child process for each adapter, by label. Warn of known faults of drivers: the warnings of children are
    lost."""
    for adapter in adapters:
        announce_faults(adapter.info)
    return {adapter.label: child_of(adapter, request.time_limit) for adapter in adapters}


def _host_child(adapters: Sequence[LocatedAdapter], children: Mapping[str, Child], request: BenchRequest) -> Child:
    """Return a child process without a GPU, in which NumPy runs; shared with the reference if that is measured."""
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
) -> tuple[dict[str, Ceilings], list[str]]:
    """Return the ceilings of adapters, by label: cached ones, or measured now if there are none or the cached ones
    were measured on a busy machine that is idle now. Also return the labels of adapters whose ceilings are too low."""
    ceilings: dict[str, Ceilings] = {}
    doubted: list[str] = []
    for adapter in adapters:
        child = children[adapter.label]
        try:
            measure_them = partial(_measured_ceilings, adapter, child)
            cached = known_ceilings(adapter.info, measure_them, before, again=request.ceilings)
        except DmlError as error:
            print(f"dmlgpu: the ceilings of {adapter} could not be measured: {error}", file=sys.stderr)
            if not request.as_json:
                print_adapter(adapter, None)
            continue
        if cached.doubt:
            doubted.append(adapter.label)
        ceilings[adapter.label] = cached.ceilings
        if not request.as_json:
            print_adapter(adapter, cached.ceilings)
    return ceilings, doubted


def _measured_ceilings(adapter: LocatedAdapter, child: Child) -> Ceilings:
    """Measure the ceilings of an adapter, and report it on standard error, with dots on a terminal. Raises as
    ``ceilings_of``."""
    with tables.patience(f"measuring the ceilings of {adapter.label}, once per driver", sys.stderr):
        return ceilings_of(child)


def _measurements(
    request: BenchRequest,
    adapters: Sequence[LocatedAdapter],
    children: Mapping[str, Child],
    ceilings: Mapping[str, Ceilings],
    peers: Sequence[InstalledPeer],
) -> Iterator[Measurement]:
    """Measure one workload after the other, its contestants interleaved."""
    progress = BenchProgress(sys.stderr, len(request.subjects))
    for index, subject in enumerate(request.subjects):
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
        against = request.against if workload.kernel is not None else ()
        contestants += [
            Remote(children[adapter.label], adapter.label, other, checked=request.checked)
            for other in against
            for adapter in adapters
        ]
        if beside:
            row = PeerRow(workload, subject.more)
            contestants += [PeerContestant(peer.child, peer.peer.name, row, request.checked) for peer in peers]
        before = machine_load.measure_load()
        results = measure(
            contestants,
            request.patience,
            tell=lambda text, index=index, name=workload.name: progress.show(index, name, text),  # type: ignore[misc]
        )
        after = machine_load.measure_load()
        progress.clear()
        for measured in results:
            own = getattr(measured.contestant, "workload", workload)
            result = measurement_of(own if own in against else workload, measured)
            result = result.with_ceilings(ceilings.get(measured.contestant.adapter))
            if own in against:
                result = replace(result, compared_with=workload.name)
            yield result.with_load(before, after)
    progress.finish()


def _in_numpy(child: Child, workload: Workload) -> Remote:
    """Return the workload in plain NumPy, or on the reference if it has no NumPy formula."""
    if has_formula(workload):
        return Remote(child, NUMPY, workload, plain=True)
    return Remote(child, REFERENCE, workload, checked=False)


def _aims(subject: BenchSubject) -> dict[str, float]:
    return read_aims(subject.workload.name, subject.more.get("aims", {}))


def _has_peers(subject: BenchSubject) -> bool:
    return "onnx" in subject.more


def _peers(request: BenchRequest) -> list[InstalledPeer]:
    """Start the requested peers and print those that are not installed. Starts none if no row has a computation for
    peers.

    Raises:
        InvalidArgument: If a name is unknown.
    """
    chosen = choose_peers(request.peers)
    if not any(map(_has_peers, request.subjects)):
        return []
    installed, missing = start_peers(chosen, request.interpreters, request.time_limit)
    for text in missing:
        print(f"dmlgpu: {text}", file=sys.stderr)
    return installed


def _schedules(workload: Workload, requested: Sequence[str], adapter: LocatedAdapter) -> tuple[str, ...]:
    """Return the schedules under which to measure a workload on an adapter."""
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


def print_busyness(busyness: machine_load.MachineLoad, doubted: Sequence[str] = ()) -> None:
    """Print a warning, in one line, if the machine is busy or was while the ceilings of adapters were measured."""
    notes = load_warnings(busyness, busyness, 0.0)
    if doubted:
        notes.append(
            f"the ceilings of {', '.join(doubted)} were measured on a busy machine and are too low; --ceilings "
            "measures them again"
        )
    if notes:
        print(f"Warning: {'; '.join(notes)}")
    print(flush=True)


def print_measurement(measurement: Measurement, *, is_busy: bool = False) -> None:
    """Print a measurement: name, times, and warnings, but for that of a busy machine if it was printed before."""
    where = " ".join(filter(None, (measurement.adapter, measurement.schedule and f"schedule {measurement.schedule}")))
    print(f"{measurement.name} on {where}")
    if measurement.median is None:
        print(f"  {measurement.status}: {measurement.message}", flush=True)
        return
    rounds = f"{len(measurement.seconds)} rounds of {measurement.calls}"
    print(f"  {hot_text(measurement)}, {rounds}; {phases_text(measurement)}")
    for text in filter(None, (spread_text(measurement), work_text(measurement))):
        print(f"  {text}")
    # The reference of a user's kernel came from the user, so it is always printed.
    if measurement.check_text and (measurement.check != "right" or measurement.operator == "KERNEL"):
        print(f"  {measurement.check}: {measurement.check_text}")
    if measurement.compared_with:
        print(f"  interleaved with {measurement.compared_with}")
    for text in measurement.warnings:
        if not (is_busy and text.startswith(machine_load.BUSY_MACHINE)):
            print(f"  warning: {text}")
    print(end="", flush=True)


def print_standings(run: BenchRun) -> None:
    """Print our times, the times of the peers, and the ratio to the best peer, if any were measured."""
    comparisons = contestants.compare_peers(run)
    names = [*run.facts.get("peers", {}), NUMPY]
    for label in dict.fromkeys(entry.ours.adapter for entry in comparisons):
        rows = [entry for entry in comparisons if entry.ours.adapter == label]
        legend = f"{contestants.FAILED} fails, {contestants.WRONG} wrong result, {contestants.MISSING} unsupported"
        print(f"\nms per run, one synchronous run at a time, wall clock; {legend}")
        columns = ["", label, *names, "best on the adapter", "its time / ours", "target", "share of ceiling"]
        table(columns, [row.cells() for row in rows], right=range(1, 2 + len(names)))
        print(contestants.summary(rows), flush=True)


def print_against(run: BenchRun) -> None:
    """Print how much faster the kernels of users are than the workloads interleaved with them."""
    kernels = {(each.name, each.adapter): each for each in run.measurements if each.operator == "KERNEL"}
    for other in run.measurements:
        kernel = kernels.get((other.compared_with, other.adapter))
        if kernel is not None and kernel.seconds and other.seconds and kernel.check != "wrong":
            rounds = min(len(kernel.seconds), len(other.seconds))
            ratio = summarize(other.seconds[:rounds], kernel.seconds[:rounds])
            verdict = "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "as fast, as far as was measured"
            print(f"{kernel.name} is {verdict}: {other.name} takes {ratio} times as long on {other.adapter}")
    print(end="", flush=True)


def print_variants(run: BenchRun) -> None:
    """Print one table of the kernels of users, the fastest first and wrong ones last, if there are several."""
    rows = [each for each in run.measurements if each.operator == "KERNEL" and each.adapter in run.facts["adapters"]]
    if len(rows) < 2:
        return
    rows.sort(key=lambda each: (each.median is None, each.check == "wrong", each.median or 0.0))
    print()
    table(
        ["kernel", "adapter", "time", "", "work", "result"],
        [
            (each.name, each.adapter, _time(each), f"± {100 * (each.noise or 0):.1f} %", work_text(each), each.check)
            for each in rows
        ],
        right=(2, 3),
    )
    print(end="", flush=True)


def print_aims(run: BenchRun) -> None:
    """Print the targets of rows and whether they were met, if there are any."""
    aims = aims_of(run)
    if aims:
        print()
        columns = ["", "adapter", "aim", "measured", "target", ""]
        table(columns, [aim.cells() for aim in aims], right=(3, 4))
        print(end="", flush=True)


def bench_compare(
    before: Path, after: Path, threshold: float, alpha: float, *, strict: bool = False, as_json: bool = False
) -> bool:
    """Print changes, the worst first.

    Args:
        before, after: Files written by ``dmlgpu bench -o``, or both by ``dmlgpu bench compiled -o``, for which the
            other options mean nothing.
        threshold, alpha: As for ``comparing.compare``.
        strict: Also count slowdowns measured on a busy machine.
        as_json: Print JSON instead of a table.

    Returns:
        True if nothing became slower, wrong or missing.

    Raises:
        ModelError, OSError: If a file has no measurements, or cannot be read.
    """
    if is_compiled_file(before):
        return compare_compiled(before, after, as_json=as_json)
    changes = compare(read_file(before), read_file(after), threshold, alpha)
    good = not any(change.kind.is_worse or (strict and _is_slower(change)) for change in changes)
    if as_json:
        print(json.dumps({"changes": list(map(_as_json, changes)), "worse": not good}, indent=2, ensure_ascii=False))
        return good
    shown = [change for change in changes if change.kind is not TimeChangeKind.SAME]
    if shown:
        tables.table(
            ("change", "time", "before", "after", "ratio", "chance", "what"), map(_row, shown), right=(2, 3, 4, 5)
        )
    counts = Counter(change.kind for change in changes)
    print(", ".join(f"{counts[kind]} {kind}" for kind in TimeChangeKind if counts[kind]))
    sources = {
        measurement.source
        for change in changes
        for measurement in (change.before, change.after)
        if measurement and measurement.source
    }
    if len(sources) > 1:
        print("Some times are GPU timestamps and some wall clock; ratios of one to the other mean little.")
    return good


# ---- compiled kernels


def bench_compiled(
    workloads: Sequence[Workload],
    families: Sequence[str],
    *,
    output: Path | None = None,
    listing: Path | None = None,
    validation: bool = False,
    as_json: bool = False,
) -> bool:
    """Compile workloads for AMD GPUs and print the statistics of their kernels.

    Args:
        workloads: Workloads to compile.
        families: GPU families, as RADV names them; empty selects ``radv.FAMILIES``.
        output: File for JSON Lines, or None.
        listing: Folder for WGSL and GPU instructions, or None.
        validation: Whether kernels are validated as SPIR-V, MSL and HLSL.
        as_json: Print JSON instead of a table.

    Returns:
        True if everything compiles without spills and is valid, or is unsupported.

    Raises:
        NotSupported: If RADV, a C compiler or a validator is not installed.
        DmlError: If RADV does not know a family.
        OSError: If a file cannot be written.
    """
    reporter = BenchProgress(sys.stderr, len(workloads))
    try:
        drivers, kernels = compile_workloads(
            workloads,
            tuple(dict.fromkeys(families)) or FAMILIES,
            listings=listing is not None,
            validation=validation,
            progress=lambda index, name, family: reporter.show(index, name, f"for {family}"),
        )
    finally:
        reporter.finish()
    if listing is not None:
        write_listings(listing, kernels)
    if output is not None:
        write_kernels(output, drivers, kernels)
    good = all(kernel.is_good for kernel in kernels)
    if as_json:
        records = [kernel.to_json() for kernel in kernels]
        print(json.dumps({"drivers": drivers, "kernels": records, "good": good}, indent=2, ensure_ascii=False))
        return good
    for driver in drivers.values():
        print(driver)
    print()
    print_kernels(kernels)
    return good


_KERNEL_COLUMNS = {
    "VGPRs": "vgprs",
    "waves": "waves",
    "shared": "shared_bytes",
    "code": "code_bytes",
    "instr.": "instructions",
    "VALU": "valu",
    "VMEM": "vmem",
    "LDS": "lds",
}
"""Headings of a table of kernels, with the names of statistics: as many as fit into 80 columns."""


def print_kernels(kernels: Sequence[CompiledKernel]) -> None:
    """Print statistics of kernels, then which spill, which could not be compiled, and which are invalid."""
    compiled = [kernel for kernel in kernels if kernel.status == "compiled"]
    rows = [
        (
            kernel.name,
            kernel.family,
            *(str(kernel.statistics[name]) for name in _KERNEL_COLUMNS.values()),
            str(kernel.statistics["loop_instructions"] or "-"),
            _share(kernel.multiply_add_share),
        )
        for kernel in compiled
    ]
    columns = ("kernel", "family", *_KERNEL_COLUMNS, "loop", "FMA")
    if rows:
        table(columns, rows, right=range(2, len(columns)))
        print()
    for kernel in kernels:
        if kernel.status != "compiled":
            print(f"{kernel.name} for {kernel.family}: {kernel.status}: {kernel.message}")
        elif kernel.spills:
            spilled = {name: kernel.statistics[name] for name in ("spilled_vgprs", "spilled_sgprs", "scratch_bytes")}
            print(f"{kernel.name} for {kernel.family} spills: {spilled}")
        for language, message in kernel.invalid.items():
            print(f"{kernel.name}: invalid {language}: {message}")
    counts = Counter(kernel.status for kernel in kernels)
    texts = [f"{count} {status}" for status, count in counts.items()]
    print(", ".join([*texts, f"{sum(kernel.spills for kernel in kernels)} spill registers"]))
    for line in validators.summary(kernel.validation for kernel in kernels):
        print(line)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def write_listings(folder: Path, kernels: Sequence[CompiledKernel]) -> None:
    """Write a file with the WGSL of each kernel, and one per family with its instructions.

    Raises:
        OSError: If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    for kernel in kernels:
        if kernel.listing:
            index = numbers.setdefault(kernel.wgsl, len(numbers) + 1)
            stem = f"{index:04}-{file_stem(kernel.name)}"
            for name, text in ((f"{stem}.wgsl", kernel.wgsl), (f"{stem}.{file_stem(kernel.family)}.s", kernel.listing)):
                with whole_file(folder / name) as file:
                    file.write(text.encode())


def compare_compiled(before: Path, after: Path, *, as_json: bool = False) -> bool:
    """Print how statistics of compiled kernels changed, the worst first.

    Returns:
        True if nothing is worse or missing (see ``compiled.compare_kernels``).

    Raises:
        ModelError, OSError: If a file has no compiled kernels, or cannot be read.
    """
    changes = compare_kernels(read_kernels(before), read_kernels(after))
    good = not any(change.kind in (KernelChangeKind.WORSE, KernelChangeKind.MISSING) for change in changes)
    shown = [change for change in changes if change.kind is not KernelChangeKind.SAME]
    if as_json:
        records = [
            {
                "kind": change.kind,
                "kernel": change.kernel.name,
                "family": change.kernel.family,
                "reasons": change.reasons,
                "differences": change.differences,
            }
            for change in shown
        ]
        print(json.dumps({"changes": records, "worse": not good}, indent=2, ensure_ascii=False))
        return good
    if shown:
        rows = [
            (change.kind, change.kernel.family, f"{change.ratio:.2f}", change.kernel.name, _differences(change))
            for change in shown
        ]
        table(("change", "family", "instr.", "kernel", "what"), rows, right=(2,))
    counts = Counter(change.kind for change in changes)
    print(", ".join(f"{counts[kind]} {kind}" for kind in KernelChangeKind if counts[kind]))
    return good


_MAX_DIFFERENCES = 5


def _differences(change: KernelChange) -> str:
    """Return the statistics that got worse, or the first few that changed."""
    texts = [f"{name} {old} -> {new}" for name, (old, new) in change.differences.items()]
    return "; ".join(change.reasons) or ", ".join(texts[:_MAX_DIFFERENCES])


# ---- time changes


def _is_slower(change: TimeChange) -> bool:
    return change.kind is TimeChangeKind.UNSURE and (change.ratio or 0) > 1


def _row(change: TimeChange) -> tuple[str, ...]:
    name, adapter, schedule = change.key
    what = f"{name} on {adapter}" + (f", schedule {schedule}" if schedule else "")
    ratio = "-" if change.ratio is None else f"{change.ratio:.2f} [{change.low:.2f}, {change.high:.2f}]"
    chance = "-" if change.chance is None else f"{change.chance:.1g}"
    source = (change.after or change.before or Measurement("", "", "")).source or "-"
    return change.kind, source, _time(change.before), _time(change.after), ratio, chance, what


def _time(measurement: Measurement | None) -> str:
    if measurement is None:
        return "-"
    return measurement.status if measurement.median is None else duration(measurement.median)


def _as_json(change: TimeChange) -> dict[str, Any]:
    name, adapter, schedule = change.key
    return {
        "kind": change.kind,
        "name": name,
        "adapter": adapter,
        "schedule": schedule,
        "before": change.before and change.before.median,
        "after": change.after and change.after.median,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "chance": change.chance,
    }
