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
        " onnxruntime's CPU provider, with equal inputs. The table lists the differences and the times.",
        "",
        "    python scripts/real_models.py --write docs/onnx-models.md",
        "",
        "This command downloads the packages listed in `scripts/real_models.toml` and writes this page. It runs none of"
        " their code.",
        "",
        "| column | meaning |",
        "|---|---|",
        "| nodes | all nodes, including those of subgraphs |",
        "| shapes | the shapes that ran; words are free dimensions of the model |",
        "| steps | consecutive runs; a model with states feeds them back |",
        "| difference | the largest, relative to the largest magnitude of the output; at most"
        f" {TOLERANCE:g} unless a note says otherwise, and 0 for integers |",
        "| ours, onnxruntime | one run after compilation, on all cores of a busy machine: an order of magnitude |",
        "",
        "| package | model | task | opset | nodes | shapes | steps | difference | ours, ms | onnxruntime, ms |",
        "|---|---|---|---:|---:|---|---:|---|---:|---:|",
    ]
    return "\n".join([*lines, *map(_row, results), *_notes(results)]) + "\n"


def _row(result: Result) -> str:
    entry, ran = result.entry, result.first > 0
    cells = [
        f"{entry.package} {entry.version}",
        PurePosixPath(entry.member).name,
        entry.what,
        result.opset,
        str(result.nodes or ""),
        "; ".join(map(_sizes, entry.sizes)),
        str(entry.steps),
        f"{result.difference:.1e}" if result.state == "same" else result.state,
        _milliseconds(result.ours) if ran else "",
        _milliseconds(result.theirs) if ran else "",
    ]
    return f"| {' | '.join(cells)} |"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _notes(results: Sequence[Result]) -> list[str]:
    """Return notes on single models."""
    notes = [f"- `{result.entry.name}`: {text}" for result in results for text in _said(result)]
    return ["", "## Notes", "", *notes] if notes else []


def _said(result: Result) -> Iterator[str]:
    entry = result.entry
    if entry.differs:
        yield f"tolerance {entry.tolerance:g}: {entry.differs}."
    if entry.by_node and result.node:
        largest = f"the largest difference is {result.apart:.1e}, in {result.node}"
        yield f"each node alone is within {TOLERANCE:g}, rounded integers within 1; {largest}."
    if entry.float_states:
        yield "onnxruntime runs LSTM with the same weights, because its DynamicQuantizeLSTM rounds the states."
    if result.state != "same":
        yield f"{result.state}: {result.reason}"
