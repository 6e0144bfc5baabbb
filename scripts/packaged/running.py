"""Run a model on a device and on onnxruntime's CPU provider, in a child process with a time limit."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import dmlgpu
from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.model import all_nodes
from packaged.comparing import difference_of
from packaged.inputs import make
from packaged.listing import TOLERANCE, Entry
from packaged.nodes import onnxruntime_session, with_float_states, worst_node

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
        opset, nodes: Of the model, including nodes of bodies.
        output, difference: The largest difference, relative to the output's largest magnitude.
        node, apart: The same for a single node, if nodes are compared.
        loading, first: seconds until it is read, and of the first run, which compiles.
        ours, theirs: median seconds of the runs after the first of their sizes, here and in onnxruntime.
    """

    entry: Entry
    state: str
    reason: str = ""
    opset: str = ""
    nodes: int = 0
    output: str = ""
    difference: float = 0.0
    node: str = ""
    apart: float = 0.0
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
        answer = ours.recv() if ours.poll(patience) else f"it takes longer than {patience:g} s"
    except (EOFError, OSError):
        answer = "the process ended"
    process.kill()
    process.join()
    return Result(entry, "failed", answer) if isinstance(answer, str) else answer


def _child(entry: Entry, path: Path, adapter: str | None, pipe: Any) -> None:
    pipe.send(run(entry, path, adapter))


def run(entry: Entry, path: Path, adapter: str | None) -> Result:
    """Run a model here and in onnxruntime, and compare."""
    result = Result(entry, "same")
    try:
        proto = onnx.load(path, load_external_data=False)
        plain = next((entry_.version for entry_ in proto.opset_import if entry_.domain in ("", "ai.onnx")), 0)
        result = replace(result, opset=str(plain), nodes=sum(1 for _ in all_nodes(proto.graph)))
        return judged(_compared(entry, path, adapter, result))
    except NotSupported as error:
        listed = bool(entry.refused) and entry.refused in str(error)
        return replace(result, state="refused as listed" if listed else "refused", reason=_plain(error))
    except Exception as error:
        return replace(result, state="failed", reason=f"{type(error).__name__}: {_plain(error)}")


def judged(result: Result) -> Result:
    """Return a result of a model that ran with what the list says of that."""
    entry = result.entry
    if entry.refused:
        return replace(result, state="runs", reason="it is listed as refused")
    if not result.difference <= entry.tolerance:
        reason = f"output {result.output!r} must be within {entry.tolerance:g} of its largest magnitude"
        return replace(result, state="differs", reason=f"{reason}, got {result.difference:.2g}")
    if not result.apart <= TOLERANCE:
        reason = f"node {result.node} must be within {TOLERANCE:g} of its largest magnitude, got {result.apart:.2g}"
        return replace(result, state="differs", reason=reason)
    return result


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


class _Pair:
    """A model in dmlgpu and in onnxruntime, with the results.

    Attributes:
        first, later, theirs: seconds of runs: the first ones of their sizes, others, and onnxruntime's.
        worst: the largest difference by output and sizes.
        nodes: the same by node, at the first sizes, for models whose nodes are compared.
    """

    def __init__(self, entry: Entry, path: Path, adapter: str | None):
        self.entry, self.proto = entry, onnx.load(path)
        self.device = dmlgpu.Device(adapter) if adapter else dmlgpu.default_device()
        start = time.perf_counter()
        self.ours = load(path, self.device)
        self.loading = time.perf_counter() - start
        if entry.float_states:
            self.proto = with_float_states(self.proto)
        self.other = onnxruntime_session(self.proto)
        self.kinds = {input.name: _numpy_type(input.type) for input in self.other.get_inputs()}
        self.names = [output.name for output in self.other.get_outputs()]
        self.first: list[float] = []
        self.later: list[float] = []
        self.theirs: list[float] = []
        self.worst: dict[str, float] = {}
        self.nodes: list[tuple[float, str]] = []

    def run(self, index: int) -> None:
        """Run step by step at some sizes, and again for the time; each step passes its states to the next."""
        entry, sizes = self.entry, self.entry.sizes[index]
        states = {name: input["updated_by"] for name, input in entry.inputs.items() if "updated_by" in input}
        held: dict[str, Array] = {}
        for step in range(entry.steps + 1):
            fed = {
                name: make(settings, sizes, self.kinds[name], (index, step, place))
                for place, (name, settings) in enumerate(entry.inputs.items())
            }
            if step == 0:
                held = {name: fed[name] for name in states}
                for name, output in states.items():
                    self.ours.bind(name, held[name], updated_by=output)
                if entry.by_node and index == 0:
                    self.nodes.append(worst_node(self.proto, fed, self.device))
            theirs = self._step({name: array for name, array in fed.items() if name not in states}, held, states, step)
            held = {name: theirs[output] for name, output in states.items()}

    def _step(
        self, fed: Mapping[str, Array], held: Mapping[str, Array], states: Mapping[str, str], step: int
    ) -> dict[str, Array]:
        start = time.perf_counter()
        outputs = self.ours.run(fed)
        (self.later if step else self.first).append(time.perf_counter() - start)
        start = time.perf_counter()
        expected = dict(zip(self.names, self.other.run(self.names, {**fed, **held}), strict=True))
        self.theirs.append(time.perf_counter() - start)
        outputs |= {output: self.ours.bound[name].numpy() for name, output in states.items()}
        for name in self.names:
            self.worst[name] = max(self.worst.get(name, 0.0), difference_of(outputs[name], expected[name]))
        return expected


def _compared(entry: Entry, path: Path, adapter: str | None, result: Result) -> Result:
    pair = _Pair(entry, path, adapter)
    for index in range(len(entry.sizes)):
        pair.run(index)
    name = max(pair.worst, key=lambda output: pair.worst[output])
    apart, node = max(pair.nodes, default=(0.0, ""))
    return replace(
        result,
        output=name,
        difference=pair.worst[name],
        node=node,
        apart=apart,
        loading=pair.loading,
        first=pair.first[0],
        ours=statistics.median(pair.later),
        theirs=statistics.median(pair.theirs),
    )


def _numpy_type(text: str) -> np.dtype[Any]:
    """Return the type that onnxruntime calls ``tensor(float)`` and so on."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
