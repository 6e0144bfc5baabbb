"""``dmlgpu bench compare``: what became slower or faster between two runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from dmlgpu.bench.comparing import TimeChange, TimeChangeKind, compare
from dmlgpu.bench.ratios import duration
from dmlgpu.bench.records import Measurement, read_file
from dmlgpu.cli import tables


def bench_compare(
    before: Path, after: Path, threshold: float, alpha: float, *, strict: bool = False, as_json: bool = False
) -> bool:
    """Print what changed, what is worst first.

    Args:
        before, after: files that ``dmlgpu bench -o`` wrote.
        threshold, alpha: as for ``comparing.compare``.
        strict: whether what is unsure counts as worse, if it is slower.
        as_json: print JSON in place of a table.

    Returns:
        Whether nothing is worse: slower, wrong, or not measured any more.

    Raises:
        ModelError, OSError: a file holds no measurements, or cannot be read.
    """
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
        print("Some times are the device's and some the wall clock's; where both meet in a row, the ratio says little.")
    return good


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
