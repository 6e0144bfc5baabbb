"""Graphics cards side by side: times and ceilings, and cases whose results differ between vendors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dmlgpu.conformance.report.model import SIGNS, Report, Times, kind_of
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.records import RecordedRun


@dataclass(frozen=True)
class SpeedTable:
    """Times of workloads by adapter.

    Attributes:
        adapters: Names of the columns.
        rows: A string per adapter, by ceiling or workload; empty if it was not measured.
    """

    adapters: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


_MACHINE = ("os", "processor", "commit")
"""Facts that tell runs of equal adapters apart."""

_CEILINGS = {
    "copy": ("copy rate, GB/s", 1e-9),
    "multiply_add": ("multiply-add rate, GFLOP/s", 1e-9),
    "launch": ("launch of a kernel, µs", 1e6),
}


def speeds(report: Report) -> SpeedTable | None:
    """Return the times of all measured adapters; None if there are fewer than two."""
    columns: dict[tuple[str, ...], dict[str, str]] = {}
    for times in report.times:
        for label, adapter in times.adapters.items():
            key = (adapter, *(str(times.facts.get(name, "")) for name in _MACHINE))
            columns.setdefault(key, {}).update(_column(times, label))
    if len(columns) < 2:
        return None
    ceilings = [name for name, _ in _CEILINGS.values()]
    measured = dict.fromkeys(name for column in columns.values() for name in column)
    names = [name for name in (*ceilings, *(name for name in measured if name not in ceilings)) if name in measured]
    return SpeedTable(
        tuple(_numbered([key[0] for key in columns])),
        {name: tuple(column.get(name, "") for column in columns.values()) for name in names},
    )


def _column(times: Times, label: str) -> Iterator[tuple[str, str]]:
    """Yield the ceilings and times of an adapter."""
    ceilings = times.facts["adapters"][label].get("ceilings", {})
    for field, (name, factor) in _CEILINGS.items():
        if isinstance(ceilings.get(field), int | float):
            yield name, f"{factor * ceilings[field]:.3g}"
    for time in times.times:
        if time.adapter == label and time.where == label and time.seconds is not None:
            yield time.name, time.time.partition(" ±")[0]


def _numbered(names: list[str]) -> Iterator[str]:
    """Yield the names; equal ones get numbers."""
    for index, name in enumerate(names):
        yield f"{name} #{names[: index + 1].count(name)}" if names.count(name) > 1 else name


@dataclass(frozen=True)
class VendorRow:
    """Cases of an operator that end alike on each vendor's adapters, but not on all.

    Attributes:
        operator: Operator.
        statuses: Worst status by vendor; None if it has none of the cases.
        cases: Names, sorted.
    """

    operator: str
    statuses: tuple[Status | None, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True)
class VendorTable:
    """What differs between vendors.

    Attributes:
        vendors: Names.
        rows: Cases that differ, by operator.
    """

    vendors: tuple[str, ...]
    rows: tuple[VendorRow, ...]


def vendor_differences(report: Report) -> VendorTable | None:
    """Return the cases whose results differ between vendors; None if there are none."""
    statuses: dict[tuple[str, str, str], dict[str, Status]] = {}
    runs = [run for run in report.runs if run.facts["adapter"]["backend"] != "NumPy"]
    for run in runs:
        vendor = _vendor(run)
        for outcome in run.outcomes:
            by_vendor = statuses.setdefault((outcome.operator, run.facts["suite"], outcome.case), {})
            by_vendor[vendor] = min(by_vendor.get(vendor, outcome.status), outcome.status, key=_badness)
    vendors = tuple(dict.fromkeys(map(_vendor, runs)))
    rows: dict[tuple[str, tuple[Status | None, ...]], list[str]] = {}
    for (operator, _, case), by_vendor in sorted(statuses.items()):
        if len(set(by_vendor.values())) > 1:
            rows.setdefault((operator, tuple(map(by_vendor.get, vendors))), []).append(case)
    if not rows:
        return None
    return VendorTable(vendors, tuple(VendorRow(*key, tuple(cases)) for key, cases in rows.items()))


def _vendor(run: RecordedRun) -> str:
    adapter = run.facts["adapter"]
    return str(adapter["vendor"] or adapter["name"])


def _badness(status: Status) -> int:
    return list(SIGNS).index(kind_of(status))
