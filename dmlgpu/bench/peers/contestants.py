"""The known peers, how each is installed, and rows of suites that they compute beside us."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench.checking import Check, compare_all, expected_outputs, verdict_of
from dmlgpu.bench.children import Child, ChildContestant, Remote
from dmlgpu.bench.peers.calls import Array, Call, load_outputs, parse_node
from dmlgpu.bench.prepared import Sample, set_count
from dmlgpu.bench.workload import Workload
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import DmlError, InvalidArgument, ModelError, NotSupported
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.running.graph_runner import run_graph
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.adapter import NUMPY_ADAPTER


@dataclass(frozen=True)
class PeerRow:
    """What peers compute in place of a workload.

    Args:
        workload: ours.
        given: a suite's row: ``onnx`` is a list of nodes, whose inputs are called ``x0``, ``x1`` ... as the workload's
            and whose outputs ``y0`` ...; ``inputs`` says of some how ours become theirs (``shape``, then ``permute``),
            ``outputs`` how theirs become ours (``permute``); ``constants`` are further inputs; ``weights`` are inputs
            that a program may take into itself; ``at_least`` is the ratio that is aimed at.
    """

    workload: Workload
    given: Mapping[str, Any]

    @property
    def wanted(self) -> float:
        """The ratio of the best peer's time to ours that is aimed at; 0 for none.

        Raises:
            ModelError: it is no number.
        """
        ratio = self.given.get("at_least", 0.0)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float):
            raise ModelError(f"row {self.workload.name!r}: at_least", f"must be a number, got {ratio!r}")
        return float(ratio)

    @functools.cached_property
    def call(self) -> Call:
        """What they compute.

        Raises:
            ModelError: the row is malformed.
        """
        try:
            return self._call()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"row {self.workload.name!r}", f"does not say what peers compute: {error}") from error

    def _call(self) -> Call:
        arrays: dict[str, Array] = {}
        kind = np.dtype(np.float32)
        for number, array in enumerate(self._inputs):
            if array is not None:
                name = f"x{number}"
                kind = array.dtype if array.dtype.kind == "f" else kind
                arrays[name] = _as_theirs(array, self.given.get("inputs", {}).get(name, {}))
        constants = self.given.get("constants", {})
        for name, value in constants.items():
            value_array = np.array(value)
            arrays[name] = value_array.astype(kind if value_array.dtype.kind == "f" else np.int64)
        nodes = tuple(map(parse_node, self.given["onnx"]))
        fixed = frozenset((*constants, *self.given.get("weights", ())))
        known = {*arrays, *(name for node in nodes for name in node.outputs)}
        outputs = tuple(f"y{number}" for number in range(len(self._tensors)))
        for name in (*outputs, *fixed, *(name for node in nodes for name in node.inputs)):
            if name not in known:
                raise ValueError(f"there is no value {name!r}")
        size = sum(array.nbytes for name, array in arrays.items() if name not in fixed)
        return Call(nodes, arrays, fixed, outputs, set_count(2 * size))

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
        """What the reference gives."""
        desc = self.workload.desc
        with np.errstate(all="ignore"):
            if isinstance(desc, OperatorDesc):
                return expected_outputs(desc, self._inputs)
            arrays = [np.zeros(0) if array is None else array for array in self._inputs]
            return list(run_graph(Device(NUMPY_ADAPTER).compile_graph(desc), arrays))  # type: ignore[arg-type]

    def check(self, outputs: list[Array]) -> Check:
        """Compare what a peer gives with what the reference gives."""
        verdicts = []
        for number, (tensor, theirs) in enumerate(zip(self._tensors, outputs, strict=True)):
            permuted = self.given.get("outputs", {}).get(f"y{number}", {}).get("permute")
            ours = theirs if permuted is None else theirs.transpose(permuted)
            if ours.size != tensor.element_count:
                return Check("wrong", f"y{number} has sizes {theirs.shape}")
            verdicts.append(ours.reshape(tensor.sizes).astype(tensor.data_type.numpy))
        with np.errstate(all="ignore"):
            return verdict_of(compare_all(self._expected, verdicts))


def _as_theirs(array: Array, how: Mapping[str, Any]) -> Array:
    """An input of ours in a peer's sizes; indices in the type that ONNX has for them."""
    if "shape" in how:
        array = array.reshape(how["shape"])
    if "permute" in how:
        array = array.transpose(how["permute"])
    return np.ascontiguousarray(array, np.int64 if array.dtype == np.uint32 else None)


@dataclass
class PeerContestant(ChildContestant):
    """A row in the process of a peer, which its ``adapter`` names.

    Attributes:
        row: what it computes.
        checked: whether its results are compared with the reference.
    """

    row: PeerRow
    checked: bool = True
    schedule: str = ""

    def prepare(self) -> dict[str, Any]:
        """Make it ready (see ``Contestant``)."""
        with tempfile.TemporaryDirectory(prefix="dmlgpu-peer-") as name:
            folder = Path(name)
            self.row.call.save(folder)
            ready = self._prepare({"folder": name})
            check = self.row.check(load_outputs(folder)) if self.checked else Check("unchecked", "nobody asked for it")
        return {**ready, "check": asdict(check), "kernels": [self.adapter]}


@dataclass
class OneByOne(Remote):
    """A workload of ours as peers run theirs: each dispatch submitted and waited for alone, by the wall clock."""

    def round(self, calls: int) -> Sample:
        """Run it (see ``Contestant``)."""
        ask: Callable[[int], Sample] = super().round
        samples = [ask(1) for _ in range(calls)]
        wall, cpu = (
            sum(values) / calls for values in zip(*((sample.wall, sample.cpu) for sample in samples), strict=True)
        )
        return Sample(None, wall, cpu)


_FOLDER = Path(__file__).parent

_START = """
import sys
folder, name, module = sys.argv[1:]
sys.path[:] = [folder, *filter(None, sys.path)]  # not the working directory
worker = __import__(f"{name}.worker").worker
del sys.path[0]
sys.exit(worker.main(module))
"""
"""Imports this package under its own short name, since where a peer is installed dmlgpu need not be."""


@dataclass(frozen=True)
class KnownPeer:
    """A program that computes the same.

    Attributes:
        name: what tables and options call it.
        module: of the folder ``programs``, which knows how to call it.
        install: the packages that it needs.
        is_gpu: whether it runs on a GPU's adapter; others are shown, and not counted as the best.
    """

    name: str
    module: str
    install: str
    is_gpu: bool = True

    def command(self, interpreter: str) -> tuple[str, ...]:
        """Return what starts its process with a Python interpreter."""
        return (interpreter, "-c", _START, str(_FOLDER.parent), _FOLDER.name, self.module)


PEERS: tuple[KnownPeer, ...] = (
    KnownPeer("webgpu-provider", "webgpu_provider", "onnxruntime onnxruntime-ep-webgpu onnx"),
    KnownPeer("tinygrad", "tinygrad_webgpu", "tinygrad dawn-python numpy"),
    KnownPeer("ncnn", "ncnn_vulkan", "ncnn numpy"),
    KnownPeer("iree", "iree_vulkan", "iree-base-compiler iree-base-runtime onnx numpy"),
    KnownPeer("taichi", "taichi_vulkan", "taichi numpy"),
    KnownPeer("torch-cuda", "torch_cuda", "torch numpy"),
    KnownPeer("torch", "torch_cpu", "torch numpy", is_gpu=False),
    KnownPeer("onnxruntime", "onnxruntime_cpu", "onnxruntime onnx", is_gpu=False),
)


@dataclass(frozen=True)
class InstalledPeer:
    """A peer that answers.

    Attributes:
        peer: which.
        child: its process.
        interpreter: the Python that runs it.
        versions: of what computes, by the packages' names.
    """

    peer: KnownPeer
    child: Child
    interpreter: str
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """What a run writes down about it."""
        return {"interpreter": self.interpreter, "is_gpu": self.peer.is_gpu, "versions": dict(self.versions)}


def parse_environments(texts: Sequence[str], peers: Sequence[KnownPeer] = PEERS) -> dict[str, str]:
    """Return interpreters by the peers' names from texts ``NAME=PATH``; a virtual environment's folder stands for the
    interpreter in it.

    Raises:
        InvalidArgument: a text is malformed, names no peer or nothing that exists.
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
    """Return the peers with some names; all of them where none is given.

    Raises:
        InvalidArgument: a name is none.
    """
    known = {peer.name: peer for peer in peers}
    for name in names:
        if name not in known:
            raise InvalidArgument(f"a peer must be one of {', '.join(known)}, got {name!r}")
    return tuple(known[name] for name in names) if names else tuple(peers)


def start_peers(
    peers: Sequence[KnownPeer], interpreters: Mapping[str, str], time_limit: float
) -> tuple[list[InstalledPeer], list[str]]:
    """Start the peers that are installed.

    Args:
        peers: those that are wanted.
        interpreters: by their names, where not this one.
        time_limit: seconds for one answer.

    Returns:
        Those that answer, and of each other one a sentence that says why not, and how to install it.
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
