"""Known peers: installation, suite rows that they compute, and comparison with our times."""

from __future__ import annotations

import functools
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench.peers.worker import Array, PeerCall, load_outputs, parse_node
from dmlgpu.bench.prepared import ResultCheck, Sample, compare_all, expected_outputs, set_count, verdict_of
from dmlgpu.bench.ratios import MINIMUM_ROUNDS, Ratio, summarize
from dmlgpu.bench.records import BenchRun, Measurement
from dmlgpu.bench.scaling import NUMPY
from dmlgpu.bench.worker import Child, ChildContestant, Remote
from dmlgpu.bench.workload import Workload
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import DmlError, InvalidArgument, ModelError, NotSupported
from dmlgpu.common.processes import python_command
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.running.runner import run_graph
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER


@dataclass(frozen=True)
class PeerRow:
    """Computation of peers that corresponds to a workload.

    Args:
        workload: Our workload.
        entry: A suite's row. ``onnx`` is a list of nodes with inputs ``x0``, ``x1`` ... (those of the workload) and
            outputs ``y0`` ...; ``inputs`` converts some of our inputs to theirs (``shape``, then ``permute``),
            ``outputs`` theirs to ours (``permute``); ``constants`` are further inputs; ``weights`` are inputs that a
            program may embed; ``at_least`` is the target ratio.
    """

    workload: Workload
    entry: Mapping[str, Any]

    @property
    def least_ratio(self) -> float:
        """Target of the ratio of the best peer's time to ours; 0 for none.

        Raises:
            ModelError: If it is not a number.
        """
        ratio = self.entry.get("at_least", 0.0)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float):
            raise ModelError(f"row {self.workload.name!r}: at_least", f"must be a number, got {ratio!r}")
        return float(ratio)

    @functools.cached_property
    def call(self) -> PeerCall:
        """Computation for peers.

        Raises:
            ModelError: If the row is malformed.
        """
        try:
            return self._call()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"row {self.workload.name!r}", f"does not say what peers compute: {error}") from error

    def _call(self) -> PeerCall:
        arrays: dict[str, Array] = {}
        kind = np.dtype(np.float32)
        for index, array in enumerate(self._inputs):
            if array is not None:
                name = f"x{index}"
                kind = array.dtype if array.dtype.kind == "f" else kind
                arrays[name] = _as_theirs(array, self.entry.get("inputs", {}).get(name, {}))
        constants = self.entry.get("constants", {})
        for name, value in constants.items():
            value_array = np.array(value)
            arrays[name] = value_array.astype(kind if value_array.dtype.kind == "f" else np.int64)
        nodes = tuple(map(parse_node, self.entry["onnx"]))
        fixed = frozenset((*constants, *self.entry.get("weights", ())))
        known = {*arrays, *(name for node in nodes for name in node.outputs)}
        outputs = tuple(f"y{index}" for index in range(len(self._tensors)))
        for name in (*outputs, *fixed, *(name for node in nodes for name in node.inputs)):
            if name not in known:
                raise ValueError(f"there is no value {name!r}")
        size = sum(array.nbytes for name, array in arrays.items() if name not in fixed)
        return PeerCall(nodes, arrays, fixed, outputs, set_count(2 * size, self.workload.cache))

    @functools.cached_property
    def _inputs(self) -> tuple[Array | None, ...]:
        return self.workload.inputs()

    @functools.cached_property
    def _tensors(self) -> list[Any]:
        desc = self.workload.desc
        if isinstance(desc, GraphDesc):
            return list(resolve(desc).output_tensors)
        assert desc is not None
        return [slot.tensor for slot in desc.outputs if slot.tensor is not None]

    @functools.cached_property
    def _expected(self) -> list[Array]:
        """Return the result of the reference."""
        desc = self.workload.desc
        with np.errstate(all="ignore"):
            if isinstance(desc, OperatorDesc):
                return expected_outputs(desc, self._inputs)
            arrays = [np.zeros(0) if array is None else array for array in self._inputs]
            return list(run_graph(Device(NUMPY_ADAPTER).compile_graph(desc), arrays))  # type: ignore[arg-type]

    def check(self, outputs: list[Array]) -> ResultCheck:
        """Compare a peer's result with the reference."""
        verdicts = []
        for index, (tensor, theirs) in enumerate(zip(self._tensors, outputs, strict=True)):
            permuted = self.entry.get("outputs", {}).get(f"y{index}", {}).get("permute")
            ours = theirs if permuted is None else theirs.transpose(permuted)
            if ours.size != tensor.element_count:
                return ResultCheck("wrong", f"y{index} has sizes {theirs.shape}")
            verdicts.append(ours.reshape(tensor.sizes).astype(tensor.data_type.numpy))
        with np.errstate(all="ignore"):
            return verdict_of(compare_all(self._expected, verdicts))


def _as_theirs(array: Array, how: Mapping[str, Any]) -> Array:
    """Return an input of ours in a peer's sizes; indices in the dtype that ONNX has for them."""
    if "shape" in how:
        array = array.reshape(how["shape"])
    if "permute" in how:
        array = array.transpose(how["permute"])
    return np.ascontiguousarray(array, np.int64 if array.dtype == np.uint32 else None)


@dataclass
class PeerContestant(ChildContestant):
    """A row in the process of a peer, named by its ``adapter``.

    Attributes:
        row: Computation of the peer.
        checked: Whether its results are compared with the reference.
    """

    row: PeerRow
    checked: bool = True
    schedule: str = ""

    def prepare(self) -> dict[str, Any]:
        """Prepare the call (see ``Contestant``)."""
        with tempfile.TemporaryDirectory(prefix="dmlgpu-peer-") as name:
            folder = Path(name)
            self.row.call.save(folder)
            ready = self._prepare({"folder": name})
            check = self.row.check(load_outputs(folder)) if self.checked else ResultCheck("unchecked", "not requested")
        return {**ready, "check": asdict(check), "kernels": [self.adapter]}


@dataclass
class OneByOne(Remote):
    """A workload run as by peers: each dispatch submitted and waited for, by wall clock."""

    def round(self, calls: int) -> Sample:
        """Run the workload (see ``Contestant``)."""
        ask: Callable[[int], Sample] = super().round
        samples = [ask(1) for _ in range(calls)]
        wall, cpu = (
            sum(values) / calls for values in zip(*((sample.wall, sample.cpu) for sample in samples), strict=True)
        )
        return Sample(None, wall, cpu)


@dataclass(frozen=True)
class KnownPeer:
    """A program that computes the same.

    Attributes:
        name: Name in tables and options.
        module: Module that calls it.
        install: Packages that it needs.
        is_gpu: Whether it runs on a GPU; others are shown but never the best.
    """

    name: str
    module: str
    install: str
    is_gpu: bool = True

    def command(self, interpreter: str) -> tuple[str, ...]:
        """Return the command that starts its process with a Python interpreter."""
        return python_command("dmlgpu.bench.peers.worker", self.module, interpreter=interpreter)


_PROGRAMS = "dmlgpu.bench.peers.programs."

PEERS: tuple[KnownPeer, ...] = (
    KnownPeer("webgpu-provider", _PROGRAMS + "webgpu_provider", "onnxruntime onnxruntime-ep-webgpu onnx"),
    KnownPeer("tinygrad", _PROGRAMS + "tinygrad_webgpu", "tinygrad dawn-python numpy"),
    KnownPeer("ncnn", _PROGRAMS + "ncnn_vulkan", "ncnn numpy"),
    KnownPeer("iree", _PROGRAMS + "iree_vulkan", "iree-base-compiler iree-base-runtime onnx numpy"),
    KnownPeer("taichi", _PROGRAMS + "taichi_vulkan", "taichi numpy"),
    KnownPeer("torch-cuda", _PROGRAMS + "torch_cuda", "torch numpy"),
    KnownPeer("torch", _PROGRAMS + "torch_cpu", "torch numpy", is_gpu=False),
    KnownPeer("onnxruntime", _PROGRAMS + "onnxruntime_cpu", "onnxruntime onnx", is_gpu=False),
)


@dataclass(frozen=True)
class InstalledPeer:
    """A running peer.

    Attributes:
        peer: The peer.
        child: Its process.
        interpreter: Its Python interpreter.
        versions: Versions by package.
    """

    peer: KnownPeer
    child: Child
    interpreter: str
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the peer's fields for the header of a run."""
        return {"interpreter": self.interpreter, "is_gpu": self.peer.is_gpu, "versions": dict(self.versions)}


def parse_environments(texts: Sequence[str], peers: Sequence[KnownPeer] = PEERS) -> dict[str, str]:
    """Return interpreters by peer from ``NAME=PATH`` strings; PATH is an interpreter or the folder of a virtual
    environment.

    Raises:
        InvalidArgument: If a string is malformed, the peer is unknown, or the path does not exist.
    """
    interpreters = {}
    names = [peer.name for peer in peers]
    for text in texts:
        name, _, location = text.partition("=")
        if name not in names or not location:
            raise InvalidArgument(
                f"a peer's environment must be NAME=PATH with one of {', '.join(names)}, got {text!r}"
            )
        path = Path(location)
        if path.is_dir():
            path = path / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        if not path.is_file():
            raise InvalidArgument(f"there is no Python interpreter {str(path)!r}, which {text!r} names")
        interpreters[name] = str(path.absolute())
    return interpreters


def choose_peers(names: Sequence[str], peers: Sequence[KnownPeer] = PEERS) -> tuple[KnownPeer, ...]:
    """Return the peers with some names; all by default.

    Raises:
        InvalidArgument: If a name is unknown.
    """
    known = {peer.name: peer for peer in peers}
    for name in names:
        if name not in known:
            raise InvalidArgument(f"a peer must be one of {', '.join(known)}, got {name!r}")
    return tuple(known[name] for name in names) if names else tuple(peers)


def start_peers(
    peers: Sequence[KnownPeer], interpreters: Mapping[str, str], time_limit: float
) -> tuple[list[InstalledPeer], list[str]]:
    """Start the installed peers.

    Args:
        peers: Requested peers.
        interpreters: Interpreters by peer, if not this one.
        time_limit: Timeout of an answer, in seconds.

    Returns:
        Running peers, and for each other one a sentence with the reason and how to install it.
    """
    installed, missing = [], []
    for peer in peers:
        interpreter = interpreters.get(peer.name, sys.executable)
        child = Child(peer.command(interpreter), time_limit=time_limit)
        try:
            versions = child.ask({"do": "versions"})["versions"]
        except NotSupported as error:
            child.close()
            how = f"pip install {peer.install}, or --peer-env {peer.name}=PYTHON of an environment that has them"
            missing.append(f"{peer.name} is not installed ({error}): {how}")
        except (DmlError, OSError, ValueError) as error:
            child.close()
            missing.append(f"{peer.name} cannot be started by {interpreter}: {error}")
        else:
            installed.append(InstalledPeer(peer, child, interpreter, versions))
    return installed, missing


FAILED, WRONG, MISSING = "x", "W", "-"
"""Symbols instead of a time: failure, wrong result, unsupported or not measured."""


@dataclass(frozen=True)
class PeerComparison:
    """A row of a suite.

    Attributes:
        name: Name of the row.
        ours: Our measurement on one adapter.
        theirs: Measurements of peers, in the order of the columns; None if not measured.
        best: Fastest peer on a GPU with right results, or None.
        ratio: Time of the best peer divided by ours, round by round; None if there is no such peer.
        target: Target ratio; 0 for none.
    """

    name: str
    ours: Measurement
    theirs: tuple[Measurement | None, ...]
    best: Measurement | None
    ratio: Ratio | None
    target: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the confidence interval reaches the target, or there is no target or too few rounds."""
        few = self.ratio is None or self.ratio.rounds < MINIMUM_ROUNDS
        return few or self.ratio.meets(at_least=self.target)  # type: ignore[union-attr]

    def cells(self) -> list[str]:
        """Return a row of the table: times in ms, the best peer, the ratio with its interval, the target, our
        fraction of the ceiling."""
        times = [time_text(measurement) for measurement in (self.ours, *self.theirs)]
        share = "" if self.ours.share is None else f"{100 * self.ours.share:.0f} % {self.ours.bound_by}"
        aim = f"{self.target:g}{'' if self.is_met else ', missed'}" if self.target else ""
        best = "" if self.best is None else self.best.adapter
        return [self.name, *times, best, ratio_text(self.ratio), aim, share]


def time_text(measurement: Measurement | None) -> str:
    """Return milliseconds, or a symbol."""
    if measurement is None or measurement.status == "refused":
        return MISSING
    if measurement.status == "failed" or measurement.median is None:
        return FAILED
    return WRONG if measurement.check == "wrong" else f"{1e3 * measurement.median:.3g}"


def ratio_text(ratio: Ratio | None) -> str:
    """Return the ratio and its interval, if there are enough rounds."""
    if ratio is None:
        return ""
    ends = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.rounds >= MINIMUM_ROUNDS else f" ({ratio.rounds} rounds)"
    return f"{ratio.median:.2f}{ends}"


def compare_peers(run: BenchRun) -> list[PeerComparison]:
    """Return the comparison of each of our measurements with those of peers in the same run."""
    peers = run.facts.get("peers", {})
    columns = (*peers, NUMPY)
    counted = [name for name, candidate in peers.items() if candidate["is_gpu"]]
    theirs = {
        (measurement.name, measurement.adapter): measurement
        for measurement in run.measurements
        if measurement.adapter in columns
    }
    comparisons = []
    for ours in run.measurements:
        if ours.adapter in columns or not any((ours.name, name) in theirs for name in peers):
            continue
        row = tuple(theirs.get((ours.name, name)) for name in columns)
        good = [
            candidate
            for candidate in row
            if candidate is not None and candidate.adapter in counted and _is_good(candidate)
        ]
        best = min(good, key=lambda candidate: candidate.median or 0.0, default=None)
        ratio = None
        if best is not None and _is_good(ours):
            rounds = min(len(best.seconds), len(ours.seconds))
            ratio = summarize(best.seconds[:rounds], ours.seconds[:rounds])
        comparisons.append(
            PeerComparison(ours.name, ours, row, best, ratio, run.facts.get("least_ratios", {}).get(ours.name, 0.0))
        )
    return comparisons


def _is_good(measurement: Measurement) -> bool:
    return measurement.status == "measured" and bool(measurement.median) and measurement.check != "wrong"


def summary(comparisons: Iterable[PeerComparison]) -> str:
    """Return the number of rows on which we are first, and the geometric mean of the ratios; empty without rows."""
    ratios = [comparison.ratio for comparison in comparisons if comparison.ratio is not None]
    if not ratios:
        return ""
    first = sum(ratio.low > 1 for ratio in ratios)
    behind = sum(ratio.high < 1 for ratio in ratios)
    mean = math.exp(sum(math.log(ratio.median) for ratio in ratios) / len(ratios))
    return (
        f"{len(ratios)} rows: faster than the best peer on {first}, slower on {behind}, a tie on the others;"
        f" geometric mean of the ratios {mean:.2f}"
    )
