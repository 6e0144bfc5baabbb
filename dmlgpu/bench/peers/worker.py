"""The process in which a peer computes, in that peer's own environment, where dmlgpu need not be installed.

Calls are nodes as ONNX has them, with arrays: plain data.
"""

from __future__ import annotations

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
    """An operator of ONNX.

    Attributes:
        op: Its type.
        inputs, outputs: Names of values.
        attributes: By name.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def parse_node(text: str) -> PeerNode:
    """Return a node from ONNX's own notation, such as ``y0 = Conv <pads = [1, 1, 1, 1]> (x0, x1)``.

    Raises:
        ValueError: If it is none.
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
    """Something to compute.

    Attributes:
        nodes: In an order in which they can be computed.
        arrays: Inputs by name: first those that change, then ``fixed`` ones.
        fixed: Names of the inputs that a program may take into itself: weights, axes, numbers.
        outputs: Names of what is asked for.
        sets: How many copies of the inputs runs take in turn, so that none finds them in a cache.
    """

    nodes: tuple[PeerNode, ...]
    arrays: Mapping[str, Array]
    fixed: frozenset[str]
    outputs: tuple[str, ...]
    sets: int = 1

    @property
    def inputs(self) -> dict[str, Array]:
        """The inputs that are handed in at each run."""
        return {name: array for name, array in self.arrays.items() if name not in self.fixed}

    def integers(self, node: PeerNode, number: int) -> list[int] | None:
        """Return an input of a node whose numbers are known beforehand; None if it is not."""
        name = node.inputs[number] if number < len(node.inputs) else ""
        return [int(item) for item in self.arrays[name].reshape(-1)] if name in self.fixed else None

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        np.savez(folder / "inputs.npz", **self.arrays)  # type: ignore[arg-type]
        nodes = [[node.op, node.inputs, node.outputs, dict(node.attributes)] for node in self.nodes]
        record = {"nodes": nodes, "fixed": sorted(self.fixed), "outputs": self.outputs, "sets": self.sets}
        (folder / "call.json").write_text(json.dumps(record), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> PeerCall:
        """Read it from a folder."""
        record = json.loads((folder / "call.json").read_text(encoding="utf-8"))
        nodes = tuple(
            PeerNode(op, tuple(inputs), tuple(outputs), more) for op, inputs, outputs, more in record["nodes"]
        )
        with np.load(folder / "inputs.npz") as arrays:
            held = {name: arrays[name] for name in arrays.files}
        return cls(nodes, held, frozenset(record["fixed"]), tuple(record["outputs"]), record["sets"])


class NotOffered(Exception):
    """A peer does not have an operator."""


def save_outputs(folder: Path, outputs: Sequence[Array]) -> None:
    """Write the outputs of a call into its folder."""
    np.savez(folder / "outputs.npz", *outputs)


def load_outputs(folder: Path) -> list[Array]:
    """Read the outputs of a call."""
    with np.load(folder / "outputs.npz") as arrays:
        return [arrays[name] for name in arrays.files]


class Running(Protocol):
    """A call that is ready."""

    def run(self, number: int) -> object:
        """Compute it on the inputs' set of that number, modulo their count, and wait for the end."""

    def results(self) -> Sequence[Array]:
        """Return what the first set gives."""


class Peer(Protocol):
    """A peer, as its module has it: functions ``versions`` and ``prepare``."""

    def versions(self) -> dict[str, str]:
        """Return the versions of what computes, by the packages' names."""

    def prepare(self, call: PeerCall) -> Running:
        """Make a call ready.

        Raises:
            NotOffered: If it has no such operator.
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
        for number in range(first, first + calls):
            run(number)
        wall = self._clock() - start
        return {"gpu": None, "wall": wall / calls, "cpu": (time.thread_time() - cpu) / calls}


def main() -> int:
    """Serve the peer that a module calls."""
    (module,) = sys.argv[1:]
    exit_with_parent()
    with answer_stream() as answers:
        PeerServer(lambda: importlib.import_module(module)).serve(sys.stdin, answers)
    return 0
