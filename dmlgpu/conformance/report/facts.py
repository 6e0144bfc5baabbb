"""What ran on what, run beside run: features, limits, versions, times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.running.wording import moment_text


@dataclass(frozen=True)
class Table:
    """Runs beside each other.

    Attributes:
        numbers: of the runs.
        rows: a text per run for each fact; empty where a run has none.
    """

    numbers: tuple[int, ...]
    rows: Mapping[str, tuple[str, ...]]


def features(report: Report) -> Table:
    """Every feature that some adapter has: ``yes`` or empty."""
    return _of_adapters(report, lambda adapter: dict.fromkeys(sorted(adapter["features"]), "yes"))


def limits(report: Report) -> Table:
    """Every limit of the adapters."""
    return _of_adapters(report, lambda adapter: {name: _text(value) for name, value in adapter["limits"].items()})


def _of_adapters(report: Report, values: Callable[[dict[str, Any]], Mapping[str, str]]) -> Table:
    """Each adapter once, however many suites ran on it."""
    seen: list[dict[str, Any]] = []
    numbers = []
    for number, run in enumerate(report.runs):
        if run.facts["adapter"] not in seen:
            seen.append(run.facts["adapter"])
            numbers.append(number)
    return _side_by_side(tuple(numbers), [values(adapter) for adapter in seen], in_order=sorted)


def run_facts(report: Report) -> Table:
    """Everything else that a run says of itself: the adapter, versions, the list of cases, times."""
    found = []
    for number, run in enumerate(report.runs):
        adapter = {f"adapter {name}": value for name, value in run.facts["adapter"].items()}
        facts = {
            **adapter,
            **run.facts,
            "started": moment_text(run.facts["started"]),
            "time in cases": f"{report.totals[number].seconds:.1f} s",
        }
        hidden = ("adapter", "adapter features", "adapter limits", "format")
        found.append({name.replace("_", " "): _text(value) for name, value in facts.items() if name not in hidden})
    return _side_by_side(tuple(range(len(found))), found, in_order=list)


def _side_by_side(
    numbers: tuple[int, ...], columns: Sequence[Mapping[str, str]], in_order: Callable[[Iterable[str]], list[str]]
) -> Table:
    names = in_order(dict.fromkeys(name for column in columns for name in column))
    rows = {name: tuple(column.get(name, "") for column in columns) for name in names}
    return Table(numbers, {name: texts for name, texts in rows.items() if any(texts)})


def _text(value: Any) -> str:
    """Numbers by thousands, lists and tables as their entries."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
