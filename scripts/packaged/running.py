"""A model on a device and on onnxruntime's CPU provider, in a child process with a time limit."""

from __future__ import annotations

import collections
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from packaged.inputs import make
from packaged.listing import Entry

import dmlgpu
from dmlgpu.errors import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.model import all_nodes

Array = NDArray[Any]

WELL = ("same", "refused as listed")
"""States in which nothing is wrong."""


@dataclass(frozen=True)
class Result:
    """What became of a model.

    Attributes:
        entry: which one.
        state: ``same``, ``differs``, ``refused``, ``refused as listed``, ``runs`` though it is listed as refused,
            ``failed``, ``absent``.
        reason: why it is not ``same``.
        opset, nodes: of the model; nodes of bodies included.
        difference: the largest, as a share of its output's largest magnitude.
        loading, first: seconds until it is read, and of the first run, which compiles.
        ours, theirs: median seconds of the runs after the first of their sizes, here and in onnxruntime.
    """

    entry: Entry
    state: str
    reason: str = ""
    opset: str = ""
    nodes: int = 0
    difference: float = 0.0
    loading: float = 0.0
    first: float = 0.0
    ours: float = 0.0
    theirs: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether the model did what the list says."""
        return self.state in WELL


def run_apart(entry: Entry, path: Path, adapter: str | None, patience: float) -> Result:
    """Run a model in a process of its own, ended when it takes longer than some seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(entry, path, adapter, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(patience) else f"it takes longer than {patience:g} s"
    except (EOFError, OSError):
        found = "the process ended"
    process.kill()
    process.join()
    return Result(entry, "failed", found) if isinstance(found, str) else found


def _child(entry: Entry, path: Path, adapter: str | None, pipe: Any) -> None:
    pipe.send(run(entry, path, adapter))


def run(entry: Entry, path: Path, adapter: str | None) -> Result:
    """Run a model here and in onnxruntime, and compare."""
    found = Result(entry, "same")
    try:
        proto = onnx.load(path, load_external_data=False)
        plain = next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), 0)
        found = replace(found, opset=str(plain), nodes=sum(1 for _ in all_nodes(proto.graph)))
        return judged(_compared(entry, path, adapter, found), entry)
    except NotSupported as error:
        listed = bool(entry.refused) and entry.refused in str(error)
        return replace(found, state="refused as listed" if listed else "refused", reason=_plain(error))
    except Exception as error:
        return replace(found, state="failed", reason=f"{type(error).__name__}: {_plain(error)}")


def judged(found: Result, entry: Entry) -> Result:
    """Return a result of a model that ran with what the list says of that."""
    if entry.refused:
        return replace(found, state="runs", reason="it is listed as refused")
    if not found.difference <= entry.tolerance:
        reason = found.reason or f"the difference must be at most {entry.tolerance:g} of the largest magnitude"
        return replace(found, state="differs", reason=reason)
    return found


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


@dataclass
class _Times:
    """Seconds of runs: the first ones of their sizes, and others."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)


def _compared(entry: Entry, path: Path, adapter: str | None, found: Result) -> Result:
    start = time.perf_counter()
    session = load(path, dmlgpu.Device(adapter) if adapter else None)
    loading = time.perf_counter() - start
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    other = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    times = _Times()
    worst = collections.Counter({"": 0.0})
    for number, sizes in enumerate(entry.sizes):
        for name, one in _run_steps(entry, sizes, session, other, times, number).items():
            worst[f"output {name!r} of {dict(sizes)}"] = one
    place, difference = max(worst.items(), key=lambda one: one[1] if one[1] == one[1] else float("inf"))
    middle = [statistics.median(one) if one else 0.0 for one in (times.later, times.theirs)]
    reason = f"{place}: {difference:.2g} of the largest magnitude" if difference > entry.tolerance else ""
    return replace(
        found,
        reason=reason,
        difference=difference,
        loading=loading,
        first=times.first[0],
        ours=middle[0],
        theirs=middle[1],
    )


def _run_steps(
    entry: Entry, sizes: Mapping[str, int], session: Any, other: Any, times: _Times, number: int
) -> dict[str, float]:
    """Run a model at some sizes, step by step and once more for the time; return the largest difference by output."""
    kinds = {one.name: _numpy_type(one.type) for one in other.get_inputs()}
    names = [one.name for one in other.get_outputs()]
    states = {name: one["updated_by"] for name, one in entry.inputs.items() if "updated_by" in one}
    worst: dict[str, float] = collections.defaultdict(float)
    held: dict[str, Array] = {}
    for step in range(entry.steps + 1):
        fed = {
            name: make(one, sizes, kinds[name], (number, step, place))
            for place, (name, one) in enumerate(entry.inputs.items())
            if name not in states or step == 0
        }
        for name, output in states.items() if step == 0 else ():
            held[name] = fed.pop(name)
            session.bind(name, held[name], updated_by=output)
        start = time.perf_counter()
        found = session.run(fed)
        taken = time.perf_counter() - start
        (times.later if step else times.first).append(taken)
        start = time.perf_counter()
        wanted = dict(zip(names, other.run(names, fed | held), strict=True))
        times.theirs.append(time.perf_counter() - start)
        found |= {output: session.bound[name].numpy() for name, output in states.items()}
        for name in names:
            worst[name] = max(worst[name], difference_of(found[name], wanted[name]))
        held = {name: wanted[output] for name, output in states.items()}
    return worst


def _numpy_type(text: str) -> np.dtype[Any]:
    """Return the type that onnxruntime calls ``tensor(float)`` and so on."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))


def difference_of(found: Array, wanted: Array) -> float:
    """Return the largest difference as a share of the wanted array's largest magnitude; infinity for other shapes,
    other types, integers that are not equal, and numbers that are missing or there where they should not be."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if not np.all(same | (np.isfinite(found) & np.isfinite(wanted))):
        return float("inf")
    apart = np.where(same, 0.0, found.astype(np.float64) - wanted.astype(np.float64))
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return float(np.abs(apart).max(initial=0.0)) / max(scale, 1e-6)
