"""Measurements in words, and as `dmlgpu report` shows them."""

from __future__ import annotations

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.ratios import duration
from dmlgpu.bench.records import BenchRun, Measurement
from dmlgpu.conformance.drivers.discovery import info_from_json
from dmlgpu.conformance.report.times import Time, Times


def hot_text(measurement: Measurement) -> str:
    """The time of a dispatch, how sure it is, and where it comes from: ``1.2 ms ± 2.1 % (gpu)``."""
    assert measurement.median is not None and measurement.noise is not None
    return f"{duration(measurement.median)} ± {100 * measurement.noise:.1f} % ({measurement.source})"


def phases_text(measurement: Measurement) -> str:
    """The other times: of the host, of the first dispatch, of compiling."""
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
    """Rates and the share of the ceiling."""
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
    """The temporary memory beside what inputs and outputs take: ``8.4 MB temporary beside 12.6 MB``."""
    counts = measurement.counts
    least = counts.get("least_temporary_bytes", 0)
    more = f" (at least {_megabytes(least)})" if least < counts["temporary_bytes"] else ""
    return f"{_megabytes(counts['temporary_bytes'])} temporary{more} beside {_megabytes(counts.get('bytes', 0))}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3g} MB"


def share_text(measurement: Measurement) -> str:
    """``83 % of the copy rate``."""
    names = {"copy": "the copy rate", "multiply-add": "the multiply-add rate", "launch": "the time to launch"}
    return f"{100 * (measurement.share or 0):.0f} % of {names.get(measurement.bound_by, measurement.bound_by)}"


def ceilings_text(ceilings: Ceilings) -> str:
    """Peak rates of a device, and the time of a launch."""
    return (
        f"ceilings ({ceilings.source}): copy {ceilings.copy / 1e9:.1f} GB/s, multiply-add"
        f" {ceilings.multiply_add / 1e9:.1f} GFLOP/s, launch {duration(ceilings.launch)} each,"
        f" submit and wait {duration(ceilings.submission)}"
    )


def as_times(run: BenchRun) -> Times:
    """Return a run as reports take it."""
    adapters = {label: str(info_from_json(record["adapter"])) for label, record in run.facts["adapters"].items()}
    return Times(run.facts, adapters, tuple(map(_time, run.measurements)), run.is_complete)


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
