"""Print results as lines and as a page."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from packaged.listing import TOLERANCE
from packaged.running import Result


def line(result: Result) -> str:
    """Return a line with the result of a model."""
    entry = result.entry
    if not result.nodes:
        return f"{result.state:18} {entry.name}: {result.reason}"
    times = f"load {result.loading:.1f} s, first {result.first:.1f} s, then {_milliseconds(result.ours)} ms"
    measured = f"difference {result.difference:.1e}; {times}; onnxruntime {_milliseconds(result.theirs)} ms"
    why = f": {result.reason}" if result.reason else ""
    return f"{result.state:18} {entry.name} {measured if result.first else ''}{why}"


def summary(results: Sequence[Result]) -> str:
    """Return counts by state."""
    counts = collections.Counter(result.state for result in results)
    return f"{len(results)} models: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def page(results: Sequence[Result], adapter: str) -> str:
    """Return the page that lists all models."""
    packages = {(result.entry.package, result.entry.version) for result in results}
    lines = [
        "# ONNX models from PyPI packages",
        "",
        f"{len(results)} models of {len(packages)} packages from PyPI ran on dmlgpu (adapter `{adapter}`) and on"
        " onnxruntime's CPU provider, with equal inputs. The last column is the largest difference between the two,"
        f" relative to the largest magnitude of the output. It is at most {TOLERANCE:g} unless a note says otherwise,"
        " and 0 for integers. Nodes of subgraphs count.",
        "",
        "    python scripts/real_models.py --write docs/onnx-models.md",
        "",
        "This command downloads the packages listed in `scripts/real_models.toml`, which has the inputs' shapes too,"
        " and writes this page. It runs none of their code.",
        "",
        "| package | model | task | opset | nodes | difference |",
        "|---|---|---|---:|---:|---|",
    ]
    rows = [f"| {' | '.join((*_model(result), _difference(result)))} |" for result in results]
    return "\n".join([*lines, *rows, *_notes(results)]) + "\n"


def measurements(results: Sequence[Result], adapter: str, date: str) -> str:
    """Return the file of benchmarks/results with shapes and times."""
    lines = [
        f"# {date}: ONNX models from PyPI packages",
        "",
        f"`python scripts/real_models.py --measurements FILE.md`, adapter `{adapter}`, and onnxruntime's CPU provider,"
        " on all cores of a busy machine: times of one run after compilation are an order of magnitude. Words are free"
        " dimensions of a model. A model with states feeds them back for as many steps.",
        "",
        "| package | model | shapes | steps | dmlgpu, ms | onnxruntime, ms |",
        "|---|---|---|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(_measurement, results)]) + "\n"


def _model(result: Result) -> tuple[str, ...]:
    entry = result.entry
    name = PurePosixPath(entry.member).name
    return f"{entry.package} {entry.version}", name, entry.what, result.opset, str(result.nodes or "")


def _difference(result: Result) -> str:
    return f"{result.difference:.1e}" if result.state == "same" else _state(result)


def _measurement(result: Result) -> str:
    entry, ran = result.entry, result.first > 0
    times = (_milliseconds(result.ours), _milliseconds(result.theirs)) if ran else ("", "")
    cells = *_model(result)[:2], "; ".join(map(_sizes, entry.sizes)), str(entry.steps), *times
    return f"| {' | '.join(cells)} |"


def _state(result: Result) -> str:
    return "rejected" if result.state == "refused as listed" else result.state


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _notes(results: Sequence[Result]) -> list[str]:
    """Return notes on single models; models with the same note share it."""
    models: dict[str, list[str]] = {}
    for result in results:
        for text in _notes_on(result):
            models.setdefault(text, []).append(f"`{result.entry.name}`")
    notes = [f"- {', '.join(names)}: {text}" for text, names in models.items()]
    return ["", "## Notes", "", *notes] if notes else []


def _notes_on(result: Result) -> Iterator[str]:
    entry = result.entry
    if entry.differs:
        yield f"tolerance {entry.tolerance:g}: {entry.differs}."
    if entry.by_node and result.node:
        yield f"each node alone is within {TOLERANCE:g}, and rounded integers within 1."
    if entry.float_states:
        yield "onnxruntime runs LSTM with the same weights, because its DynamicQuantizeLSTM rounds the states."
    if result.state != "same":
        yield f"{_state(result)}: {result.reason}"
