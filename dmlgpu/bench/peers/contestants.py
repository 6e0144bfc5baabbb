"""A suite's rows for peers: the same inputs as ours, what they compute, and their results beside the reference's."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench.checking import Check, compare_all, expected_outputs, verdict_of
from dmlgpu.bench.children import ChildContestant, Remote
from dmlgpu.bench.peers.calls import Array, Call, load_outputs, parse_node
from dmlgpu.bench.prepared import Sample, set_count
from dmlgpu.bench.workload import Workload
from dmlgpu.conformance.running.graph_runner import run_graph
from dmlgpu.device.device import Device
from dmlgpu.errors import ModelError
from dmlgpu.graph.description import GraphDesc
from dmlgpu.graph.resolve import resolve
from dmlgpu.host.adapter import NUMPY_ADAPTER
from dmlgpu.operator_desc import OperatorDesc


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
        found = self.given.get("at_least", 0.0)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ModelError(f"row {self.workload.name!r}: at_least", f"must be a number, got {found!r}")
        return float(found)

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
            made = np.array(value)
            arrays[name] = made.astype(kind if made.dtype.kind == "f" else np.int64)
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
            given = [np.zeros(0) if one is None else one for one in self._inputs]
            return list(run_graph(Device(NUMPY_ADAPTER).compile_graph(desc), given))  # type: ignore[arg-type]

    def check(self, outputs: list[Array]) -> Check:
        """Compare what a peer gives with what the reference gives."""
        found = []
        for number, (tensor, theirs) in enumerate(zip(self._tensors, outputs, strict=True)):
            permuted = self.given.get("outputs", {}).get(f"y{number}", {}).get("permute")
            ours = theirs if permuted is None else theirs.transpose(permuted)
            if ours.size != tensor.element_count:
                return Check("wrong", f"y{number} has sizes {theirs.shape}")
            found.append(ours.reshape(tensor.sizes).astype(tensor.data_type.numpy))
        with np.errstate(all="ignore"):
            return verdict_of(compare_all(self._expected, found))


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
        wall, cpu = (sum(values) / calls for values in zip(*((one.wall, one.cpu) for one in samples), strict=True))
        return Sample(None, wall, cpu)
