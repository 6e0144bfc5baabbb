"""Benchmark results as text and files: JSON Lines with a header, a line per measurement and an end line."""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.bench import machine_load
from dmlgpu.bench.ceilings import Ceilings, share_of
from dmlgpu.bench.counting import Counts
from dmlgpu.bench.ratios import duration, interval
from dmlgpu.bench.samples import ContestantSamples, drift, noise
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import ModelError
from dmlgpu.common.files import first_record
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, info_from_json
from dmlgpu.conformance.report.model import Time, Times
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.records import machine

MIN_SPREAD = 5
"""Minimum rounds for percentiles."""
DIGITS = 5
"""Significant digits of recorded numbers."""


@dataclass(frozen=True)
class Measurement:
    """A workload measured on an adapter under a schedule.

    Attributes:
        name: Name of the workload.
        operator: DirectML's name, ``GRAPH`` or ``MODEL``.
        adapter: Name of the adapter, or of a peer.
        schedule: Requested schedule; empty for the default choice.
        sizes: By name.
        data_type, layout: Data type and layout of the main tensors.
        status: ``measured``, ``refused`` or ``failed``.
        message: Reason why it was not measured.
        check: ``right``, ``wrong`` or ``unchecked``.
        check_text: Error, or why it was not checked.
        source: Source of ``seconds``: ``gpu`` or ``wall clock``.
        seconds: Seconds per warm dispatch, one per round.
        calls: Dispatches per round.
        wall, cpu: Medians of wall-clock seconds per dispatch, and of CPU seconds for its submission.
        init: Seconds of preparation by stage; ``total`` is their sum.
        cold: Seconds of the first dispatch.
        counts: Bytes and operations, as in ``Counts``.
        kernels: Kernels.
        sets, footprint: Number of sets of buffers used in turn, and their total bytes.
        share, bound_by: Fraction of the limiting ceiling, and its name; None and empty if unknown.
        taken: Fraction of CPU time that other processes took (see ``MachineLoad``); None if unknown.
        warnings: Reasons to doubt the times.
        compared_with: Name of the kernel of the user whose measurement is interleaved with this one, or empty.
    """

    name: str
    operator: str
    adapter: str
    schedule: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    data_type: str = ""
    layout: str = ""
    status: str = "measured"
    message: str = ""
    check: str = "unchecked"
    check_text: str = ""
    source: str = ""
    seconds: tuple[float, ...] = ()
    calls: int = 1
    wall: float | None = None
    cpu: float | None = None
    init: Mapping[str, float] = field(default_factory=dict)
    cold: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    sets: int = 1
    footprint: int = 0
    share: float | None = None
    bound_by: str = ""
    taken: float | None = None
    warnings: tuple[str, ...] = ()
    compared_with: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Workload, adapter and schedule, which identify it across runs."""
        return self.name, self.adapter, self.schedule

    @property
    def is_good(self) -> bool:
        """Whether the workload was measured or is unsupported, and its results are not wrong."""
        return self.status != "failed" and self.check != "wrong"

    @property
    def median(self) -> float | None:
        """Seconds per dispatch; None if not measured."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Ends of the confidence interval of the median."""
        return interval(self.seconds)[1:] if self.seconds else None

    @property
    def noise(self) -> float | None:
        """Half-width of the confidence interval, relative to the median."""
        return noise(self.seconds) if self.seconds else None

    @property
    def drift(self) -> float:
        """Relative slowdown of the last rounds compared to the first."""
        return drift(self.seconds)

    @property
    def bytes_per_second(self) -> float | None:
        """Rate by the bytes of the description."""
        return self._rate("bytes")

    @property
    def operations_per_second(self) -> float | None:
        """Rate by the operations of the description."""
        return self._rate("operations")

    def _rate(self, name: str) -> float | None:
        return self.counts[name] / self.median if self.median and name in self.counts else None

    def with_ceilings(self, ceilings: Ceilings | None) -> Measurement:
        """Return the measurement with its fraction of the ceilings."""
        if ceilings is None or not self.median or not self.counts.get("bytes"):
            return self
        reached = share_of(self.median, Counts(**self.counts), ceilings)
        return replace(self, share=_rounded(reached.share), bound_by=reached.bound_by)

    def with_load(self, before: machine_load.MachineLoad, after: machine_load.MachineLoad) -> Measurement:
        """Return the measurement with the load of the machine before and after it, and warnings about it."""
        warnings = tuple(machine_load.load_warnings(before, after, self.drift))
        return replace(self, taken=round(max(before.taken, after.taken), 3), warnings=warnings)

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields as JSON, with derived ones."""
        record = {name: value for name, value in asdict(self).items() if value not in (None, "", (), {})}
        if self.seconds:
            low, high = self.ends or (0.0, 0.0)
            derived = {"median": self.median, "low": low, "high": high, "noise": self.noise, "drift": self.drift}
            record |= {name: _rounded(value or 0.0) for name, value in derived.items()}
            record["rounds"] = len(self.seconds)
        return record

    @classmethod
    def from_json(cls, record: Any) -> Measurement:
        """Return the measurement of a record.

        Raises:
            ValueError: If the record is invalid; the message names the field.
        """
        values = fields.read_known(record, _READERS, "name", "operator", "adapter", "status")
        return cls(**{name: value for name, value in values.items() if name in _READERS and name not in _DERIVED})


_DERIVED = ("median", "low", "high", "noise", "drift", "rounds")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"must be a number, got {value!r}")
    return float(value)


_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(
        ("name", "operator", "adapter", "schedule", "data_type", "layout", "message", "check_text", "source"),
        fields.text,
    ),
    **dict.fromkeys(("status", "check", "bound_by", "compared_with"), fields.text),
    **dict.fromkeys(("wall", "cpu", "cold"), fields.seconds),
    **dict.fromkeys(("calls", "sets", "footprint"), fields.count),
    "sizes": fields.mapping_of(fields.count),
    "counts": fields.mapping_of(fields.count),
    "init": fields.mapping_of(fields.seconds),
    "seconds": fields.list_of(fields.seconds),
    "kernels": fields.list_of(fields.text),
    "warnings": fields.list_of(fields.text),
    "share": _number,
    "taken": _number,
}


def measurement_of(workload: Workload, measured: ContestantSamples) -> Measurement:
    """Return the measurement of a contestant of a workload."""
    ready = measured.readiness
    check = ready.get("check", {})
    samples = measured.samples
    return Measurement(
        workload.name,
        workload.operator,
        measured.contestant.adapter,
        measured.contestant.schedule,
        sizes=dict(workload.sizes),
        data_type=workload.data_type,
        layout=workload.layout,
        status=measured.status,
        message=measured.message,
        check=check.get("status", "unchecked"),
        check_text=check.get("text", ""),
        source=measured.source if samples else "",
        seconds=tuple(map(_rounded, measured.seconds)),
        calls=measured.calls,
        wall=_rounded(statistics.median(sample.wall for sample in samples)) if samples else None,
        cpu=_rounded(statistics.median(sample.cpu for sample in samples)) if samples else None,
        init={name: _rounded(value) for name, value in ready.get("init", {}).items()},
        cold=_rounded(ready["cold"]) if "cold" in ready else None,
        counts=ready.get("counts", {}),
        kernels=tuple(ready.get("kernels", ())),
        sets=ready.get("sets", 1),
        footprint=ready.get("footprint", 0),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


FORMAT = 1
RECORD = "bench"
"""Kind of the header line of a benchmark run."""


@dataclass(frozen=True)
class BenchRun:
    """Measurements of one command.

    Attributes:
        facts: Versions, adapters, ceilings, options.
        measurements: In order.
        is_complete: Whether the run was completed.
    """

    facts: dict[str, Any]
    measurements: tuple[Measurement, ...]
    is_complete: bool = True

    @property
    def is_good(self) -> bool:
        """Whether all our measurements are good. Failures of peers do not count."""
        return all(
            measurement.is_good
            for measurement in self.measurements
            if measurement.adapter not in self.facts.get("peers", {})
        )

    def ceilings(self, adapter: str) -> Ceilings | None:
        """Return the ceilings of an adapter by name; None if unknown."""
        record = self.facts["adapters"].get(adapter, {}).get("ceilings")
        return None if record is None else Ceilings.from_json(record)


def facts(
    adapters: Sequence[LocatedAdapter],
    ceilings: Mapping[str, Ceilings],
    command: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the header of a run: everything needed to repeat it.

    Args:
        adapters: Adapters.
        ceilings: Ceilings by adapter label.
        command: Command line.
        options: When and how it stops.
    """
    header = {
        adapter.label: {
            "adapter": asdict(adapter.info),
            **({"environment": dict(adapter.environment)} if adapter.environment else {}),
            **({"ceilings": ceilings[adapter.label].to_json()} if adapter.label in ceilings else {}),
        }
        for adapter in adapters
    }
    return {
        "format": FORMAT,
        **machine(),
        "adapters": header,
        "command": list(command),
        "options": dict(options),
        "started": _now(),
    }


def write_run(file: TextIO, header: Mapping[str, Any], measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Write a run while it proceeds; yield its measurements."""
    _write(file, {"record": RECORD, **header})
    counts: Counter[str] = Counter()
    for measurement in measurements:
        _write(file, {"record": "measurement", **measurement.to_json()})
        counts[measurement.status if measurement.check != "wrong" else measurement.check] += 1
        yield measurement
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts)})


def is_bench_file(path: Path) -> bool:
    """Return whether a file starts with a benchmark run; False if it cannot be read."""
    return first_record(path).get("record") == RECORD


def read_file(path: Path) -> tuple[BenchRun, ...]:
    """Read the runs of a file. An incomplete last line is ignored.

    Raises:
        ModelError: If a line is invalid; the message names it with the reason.
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        return read_lines(str(path), file)


def read_lines(name: str, lines: Iterable[bytes]) -> tuple[BenchRun, ...]:
    """Read the lines of a file. Raises ModelError as ``read_file``.

    Args:
        name: Name of the file, for messages.
        lines: Its lines.
    """
    runs: list[tuple[dict[str, Any], list[Measurement]]] = []
    complete: set[int] = set()
    for line_number, line in enumerate(lines, start=1):
        where = f"{name}, line {line_number}"
        try:
            record = json.loads(line)
            # Lone surrogates, which JSON can escape and no file can hold, become question marks.
            record = json.loads(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError) as error:
            if runs and not line.endswith(b"\n"):
                break
            raise ModelError(where, f"is not JSON: {error}") from error
        kind = record.get("record") if isinstance(record, dict) else None
        if kind == RECORD:
            runs.append((_header(where, record), []))
        elif not runs or kind not in ("measurement", "end"):
            raise ModelError(where, "was not written by `dmlgpu bench -o`")
        elif kind == "end":
            complete.add(len(runs))
        else:
            runs[-1][1].append(_read_measurement(where, record))
    if not runs:
        raise ModelError(name, "has no run of `dmlgpu bench`")
    return tuple(
        BenchRun(head, tuple(measurements), index in complete)
        for index, (head, measurements) in enumerate(runs, start=1)
    )


_HEADER: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("dmlgpu", "commit", "started"), fields.text),
    "adapters": fields.mapping_of(fields.mapping),
    "command": fields.list_of(fields.text),
}


def _header(where: str, record: dict[str, Any]) -> dict[str, Any]:
    if record.get("format") != FORMAT:
        raise ModelError(f"{where}: format", f"must be {FORMAT}, got {record.get('format')!r}")
    try:
        fields.read_known(record, _HEADER, *_HEADER)
        for adapter in record["adapters"].values():
            fields.read_known(adapter, {"adapter": fields.adapter}, "adapter")
    except ValueError as error:
        raise ModelError(where, f"is not a valid header of a run: {error}") from error
    return {name: value for name, value in record.items() if name != "record"}


def _read_measurement(where: str, record: dict[str, Any]) -> Measurement:
    try:
        return Measurement.from_json(record)
    except ValueError as error:
        raise ModelError(where, f"is not a valid measurement: {error}") from error


def _write(file: TextIO, record: Mapping[str, Any]) -> None:
    print(json.dumps(record), file=file, flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def hot_text(measurement: Measurement) -> str:
    """Return the time of a warm dispatch, its uncertainty and source: ``1.2 ms ± 2.1 % (gpu)``."""
    assert measurement.median is not None and measurement.noise is not None
    return f"{duration(measurement.median)} ± {100 * measurement.noise:.1f} % ({measurement.source})"


def spread_text(measurement: Measurement) -> str:
    """Return the fastest round and percentiles of all: ``fastest round 1.9 ms, 10th percentile 2 ms, 90th 2.4 ms``;
    empty for fewer than five rounds."""
    if len(measurement.seconds) < MIN_SPREAD:
        return ""
    tenths = statistics.quantiles(measurement.seconds, n=10, method="inclusive")
    times = {"fastest round": min(measurement.seconds), "10th percentile": tenths[0], "90th": tenths[-1]}
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in times.items())


def phases_text(measurement: Measurement) -> str:
    """Return the other times: wall clock, first dispatch, compilation."""
    parts = []
    if measurement.source == "gpu" and measurement.wall is not None:
        parts.append(f"{duration(measurement.wall)} by the wall clock")
    if measurement.cpu is not None:
        parts.append(f"cpu {duration(measurement.cpu)}")
    if measurement.cold is not None:
        parts.append(f"first {duration(measurement.cold)}")
    if "total" in measurement.init:
        parts.append(f"compiled in {duration(measurement.init['total'])}")
    return ", ".join(parts)


def work_text(measurement: Measurement) -> str:
    """Return rates and the fraction of the ceiling."""
    parts = []
    if measurement.bytes_per_second:
        parts.append(f"{measurement.bytes_per_second / 1e9:.3g} GB/s")
    if measurement.operations_per_second:
        parts.append(f"{measurement.operations_per_second / 1e9:.3g} GFLOP/s")
    if measurement.share is not None:
        parts.append(f"{share_text(measurement)}")
    counts = measurement.counts
    if "unfused_bytes" in counts and "plan_bytes" in counts and counts["unfused_bytes"]:
        saved = 1 - counts["plan_bytes"] / counts["unfused_bytes"]
        parts.append(f"fusion saves {100 * saved:.0f} % of {counts['unfused_bytes'] / 1e6:.3g} MB")
    elif counts.get("plan_bytes", 0) > counts.get("bytes", 0):
        parts.append(f"kernels move {counts['plan_bytes'] / counts['bytes']:.2g} times the bytes")
    if counts.get("temporary_bytes"):
        parts.append(memory_text(measurement))
    return ", ".join(parts)


def memory_text(measurement: Measurement) -> str:
    """Return the temporary memory, and that of inputs and outputs: ``8.4 MB temporary in addition to 12.6 MB``."""
    counts = measurement.counts
    minimum = counts.get("least_temporary_bytes", 0)
    more = f" (at least {megabytes(minimum)})" if minimum < counts["temporary_bytes"] else ""
    temporary, bound = megabytes(counts["temporary_bytes"]), megabytes(counts.get("bytes", 0))
    return f"{temporary} temporary{more} in addition to {bound}"


def megabytes(count: int) -> str:
    """Return a number of bytes: ``12.9 MB``."""
    return f"{count / 1e6:.3g} MB"


def share_text(measurement: Measurement) -> str:
    """Return the fraction of the ceiling: ``83 % of the copy rate``."""
    names = {"copy": "the copy rate", "multiply-add": "the multiply-add rate", "launch": "the launch overhead"}
    return f"{100 * (measurement.share or 0):.0f} % of {names.get(measurement.bound_by, measurement.bound_by)}"


def ceilings_text(ceilings: Ceilings) -> str:
    """Return the peak rates of a device, and its launch overhead."""
    return (
        f"ceilings ({ceilings.source}): copy {ceilings.copy / 1e9:.1f} GB/s, multiply-add"
        f" {ceilings.multiply_add / 1e9:.1f} GFLOP/s, launch {duration(ceilings.launch)} each,"
        f" submit and wait {duration(ceilings.submission)}"
    )


def as_times(run: BenchRun, predicted: Mapping[tuple[str, str], float] | None = None) -> Times:
    """Return a run in the form of reports.

    Args:
        run: The run.
        predicted: Predicted seconds by names of adapters and workloads.
    """
    adapters = {label: str(info_from_json(record["adapter"])) for label, record in run.facts["adapters"].items()}
    times = (
        replace(_time(measurement), predicted=duration(seconds)) if seconds else _time(measurement)
        for measurement in run.measurements
        for seconds in ((predicted or {}).get((measurement.adapter, measurement.name), 0.0),)
    )
    return Times(run.facts, adapters, tuple(times), run.is_complete)


def _time(measurement: Measurement) -> Time:
    where = " ".join(filter(None, (measurement.adapter, measurement.schedule and f"schedule {measurement.schedule}")))
    if measurement.median is None:
        kind = "refused" if measurement.status == "refused" else "bad"
        return Time(
            measurement.name,
            measurement.operator,
            measurement.adapter,
            where,
            measurement.message,
            result=measurement.status,
            kind=kind,
        )
    kind = (
        "bad"
        if not measurement.is_good
        else "known"
        if measurement.warnings or measurement.check != "right"
        else "good"
    )
    return Time(
        measurement.name,
        measurement.operator,
        measurement.adapter,
        where,
        hot_text(measurement),
        phases_text(measurement),
        work_text(measurement),
        measurement.check,
        kind,
        measurement.warnings,
        measurement.median,
    )
