"""The process of a peer, in its own environment, where dmlgpu need not be installed.

Calls are ONNX nodes with arrays: plain data.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.processes import RequestServer, answer_stream, exit_with_parent

Array: TypeAlias = NDArray[Any]

_NODE = re.compile(r"([\w, ]+?)\s*=\s*(\w+)\s*(?:<(.*)>)?\s*\(([\w, ]*)\)")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*=\s*(\[[^\]]*\]|[^,\[\]]+?)\s*(?:,|$)")


@dataclass(frozen=True)
class PeerNode:
    """An ONNX node.

    Attributes:
        op: Operator.
        inputs, outputs: Names of values.
        attributes: By name.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def parse_node(text: str) -> PeerNode:
    """Parse a node in ONNX's text format, such as ``y0 = Conv <pads = [1, 1, 1, 1]> (x0, x1)``.

    Raises:
        ValueError: If it is malformed.
    """
    match = _NODE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a node must be like 'y0 = Softmax <axis = -1> (x0)', got {text!r}")
    outputs, op, attributes, inputs = match.groups()
    known, end = {}, 0
    for attribute in _ATTRIBUTE.finditer(attributes or ""):
        if attribute.start() != end:
            break
        known[attribute[1]], end = json.loads(attribute[2]), attribute.end()
    if end != len(attributes or ""):
        raise ValueError(f"attributes must be NAME = NUMBER or NAME = [NUMBERS], got {attributes!r}")
    return PeerNode(op, _names(inputs), _names(outputs), known)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class PeerCall:
    """A computation.

    Attributes:
        nodes: In topological order.
        arrays: Inputs by name: first those that change, then ``fixed`` ones.
        fixed: Names of inputs that a program may embed: weights, axes, numbers.
        outputs: Names of outputs.
        sets: Number of copies of the inputs that runs use in turn, so that none is in a cache.
    """

    nodes: tuple[PeerNode, ...]
    arrays: Mapping[str, Array]
    fixed: frozenset[str]
    outputs: tuple[str, ...]
    sets: int = 1

    @property
    def inputs(self) -> dict[str, Array]:
        """Inputs passed at each run."""
        return {name: array for name, array in self.arrays.items() if name not in self.fixed}

    def integers(self, node: PeerNode, index: int) -> list[int] | None:
        """Return an input of a node if it is constant, else None."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        return [int(item) for item in self.arrays[name].reshape(-1)] if name in self.fixed else None

    def save(self, folder: Path) -> None:
        """Write the call into a folder."""
        np.savez(folder / "inputs.npz", **self.arrays)  # type: ignore[arg-type]
        nodes = [[node.op, node.inputs, node.outputs, dict(node.attributes)] for node in self.nodes]
        record = {"nodes": nodes, "fixed": sorted(self.fixed), "outputs": self.outputs, "sets": self.sets}
        (folder / "call.json").write_text(json.dumps(record), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> PeerCall:
        """Read a call from a folder."""
        record = json.loads((folder / "call.json").read_text(encoding="utf-8"))
        nodes = tuple(
            PeerNode(op, tuple(inputs), tuple(outputs), more) for op, inputs, outputs, more in record["nodes"]
        )
        with np.load(folder / "inputs.npz") as arrays:
            contents = {name: arrays[name] for name in arrays.files}
        return cls(nodes, contents, frozenset(record["fixed"]), tuple(record["outputs"]), record["sets"])


class NotOffered(Exception):
    """A peer lacks an operator."""


def save_outputs(folder: Path, outputs: Sequence[Array]) -> None:
    """Write the outputs of a call into its folder."""
    np.savez(folder / "outputs.npz", *outputs)


def load_outputs(folder: Path) -> list[Array]:
    """Read the outputs of a call."""
    with np.load(folder / "outputs.npz") as arrays:
        return [arrays[name] for name in arrays.files]


class Running(Protocol):
    """A prepared call."""

    def run(self, index: int) -> object:
        """Compute on the input set with that index, modulo their count, and wait."""

    def results(self) -> Sequence[Array]:
        """Return the results of the first set."""


class Peer(Protocol):
    """Interface of a peer's module: functions ``versions`` and ``prepare``."""

    def versions(self) -> dict[str, str]:
        """Return versions by package."""

    def prepare(self, call: PeerCall) -> Running:
        """Prepare a call.

        Raises:
            NotOffered: If the peer lacks an operator.
        """


class PeerServer(RequestServer):
    """Answers requests about calls.

    Args:
        load: Returns the peer; an ImportError says that it is not installed.
        clock: Returns seconds.
    """

    refusals = (NotOffered, ImportError)

    def __init__(self, load: Callable[[], Peer], clock: Callable[[], float] = time.perf_counter):
        self._load, self._clock = load, clock
        self._ready: dict[str, Running] = {}
        self._numbers: dict[str, int] = {}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "versions":
                return {"versions": {"python": sys.version.split()[0], **self._load().versions()}}
            case "prepare":
                gc.collect()
                return {"ready": self._prepare(request["key"], Path(request["folder"]))}
            case "round":
                return {"sample": self._round(request["key"], request["calls"])}
            case "close":
                self._ready.pop(request["key"], None)
                return {}
        raise ValueError(f"unknown request {request['do']!r}")

    def _prepare(self, key: str, folder: Path) -> dict[str, Any]:
        call = PeerCall.load(folder)
        peer = self._load()
        start = self._clock()
        running = peer.prepare(call)
        total = self._clock() - start
        start = self._clock()
        running.run(0)
        cold = self._clock() - start
        save_outputs(folder, running.results())
        self._ready[key], self._numbers[key] = running, 0
        size = sum(array.nbytes for array in call.inputs.values())
        return {"init": {"total": total}, "cold": cold, "sets": call.sets, "footprint": size * call.sets}

    def _round(self, key: str, calls: int) -> dict[str, float | None]:
        run, first = self._ready[key].run, self._numbers[key]
        self._numbers[key] += calls
        cpu, start = time.thread_time(), self._clock()
        for index in range(first, first + calls):
            run(index)
        wall = self._clock() - start
        return {"gpu": None, "wall": wall / calls, "cpu": (time.thread_time() - cpu) / calls}


def main() -> int:
    """Serve the peer of a module."""
    (module,) = sys.argv[1:]
    exit_with_parent()
    with answer_stream() as answers:
        with contextlib.suppress(ImportError):  # which requests are refused with
            importlib.import_module(module)
        PeerServer(lambda: importlib.import_module(module)).serve(sys.stdin, answers)
    return 0
