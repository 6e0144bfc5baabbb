"""Every node of a model on a device against the reference, and against onnxruntime or, without it, ONNX's reference.

Where onnxruntime differs, ONNX's reference is asked, too, as a third witness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.reference import ReferenceEvaluator

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.onnx.model import Source, parsed
from dmlgpu.frontends.onnx.session import load
from dmlgpu.runtime.device import Device

Array = NDArray[Any]


@dataclass(frozen=True)
class Divergence:
    """An output of a node that is not what it should be.

    Attributes:
        node: its name; empty for an output of the whole model, run without asking for what lies between.
        op_type: its operator.
        output: the name of the output.
        against: what computes it otherwise: ``reference``, ``onnxruntime`` or ``onnx``.
        error: the largest difference.
        inputs: of the node, as the device computed them.
        actual, expected: the output.
        witness: where onnxruntime differs, whom ONNX's reference agrees with: ``dmlgpu``, ``onnxruntime``, ``both``
            (it lies between) or ``neither``; empty elsewhere, and where it cannot run the model.
        cause: a known cause; empty where none is known.
    """

    node: str
    op_type: str
    output: str
    against: str
    error: float
    inputs: Mapping[str, Array]
    actual: Array
    expected: Array
    witness: str = ""
    cause: str = ""

    def __str__(self) -> str:
        """Return what differs from what, by how much, what the witness says, and the cause if it is known."""
        where = f"{self.op_type} {self.node!r}: output" if self.node else "the model, run as a whole: output"
        witness = f"; ONNX's reference agrees with {self.witness}" if self.witness else ""
        cause = f"; known cause: {self.cause}" if self.cause else ""
        return f"{where} {self.output!r} differs from the {self.against} by up to {self.error:.3g}{witness}{cause}"


@dataclass(frozen=True, repr=False)
class ModelCheck:
    """What a check found.

    Attributes:
        against: what the device was compared with; for what cannot run the model, why.
        compared: how many outputs of nodes.
        divergences: in order of the nodes.
    """

    against: Mapping[str, str]
    compared: int
    divergences: tuple[Divergence, ...]

    @property
    def faults(self) -> tuple[Divergence, ...]:
        """The divergences but those in which ONNX's reference agrees with dmlgpu, against onnxruntime."""
        return tuple(divergence for divergence in self.divergences if divergence.witness != "dmlgpu")

    def __repr__(self) -> str:
        lines = [
            f"{name} cannot run the model: {why}" if why else f"compared with {name}"
            for name, why in self.against.items()
        ]
        if not self.divergences:
            return "\n".join([*lines, f"{self.compared} outputs of nodes agree"])
        differing = self.faults or self.divergences
        count = len({divergence.output for divergence in differing})
        lines += [str(differing[0]), f"{count} of {self.compared} outputs of nodes differ"]
        if not self.faults:
            lines[-1] += " from onnxruntime's; in all of them ONNX's reference agrees with dmlgpu"
        return "\n".join(lines)


def check(
    source: Source, device: Device, inputs: Mapping[str, Any], *, rtol: float = 1e-3, atol: float = 1e-5
) -> ModelCheck:
    """Compare all nodes of the main graph, and the model as it runs without being looked into.

    Args:
        source: as for ``load``.
        device: what is checked.
        inputs: of one run.
        rtol: greatest difference, as a share of the output's largest magnitude.
        atol: greatest difference that never counts.

    Raises:
        DmlError: as ``load`` and ``Session.run``.
    """
    model = parsed(source)
    nodes = {name: node for node in model.graph.node for name in node.output if name}
    opened = _opened(model, nodes)
    results = load(opened, device).run(inputs)
    whole = load(model, device).run(inputs)
    others: dict[str, dict[str, Array]] = {}
    against: dict[str, str] = {}

    def ask(name: str, run: Callable[[ModelProto, Mapping[str, Any]], dict[str, Array]]) -> None:
        try:
            others[name] = run(opened, inputs)
            against[name] = ""
        except Exception as error:  # whatever others raise for what they do not support
            if isinstance(error, DmlError):
                raise
            against[name] = " ".join(str(error).split())[:200]

    ask("reference", _by_reference)
    ask(*_other())
    known = {**{name: np.asarray(array) for name, array in inputs.items()}, **results}
    divergences = [
        Divergence(
            _name(nodes[name]) if which is results and name in nodes else "",
            nodes[name].op_type if name in nodes else "",
            name,
            other,
            _error(array, expected[name]),
            {read: known[read] for read in nodes[name].input if read in known} if name in nodes else {},
            array,
            expected[name],
        )
        for which in (results, whole)
        for name, array in _in_order(which, nodes)
        for other, expected in others.items()
        if name in expected and not _agree(array, expected[name], rtol, atol)
    ]
    if any(divergence.against == "onnxruntime" for divergence in divergences):
        ask("onnx", _by_onnx)
        types = {tensor.name: TensorProto.DataType.Name(tensor.data_type).lower() for tensor in model.graph.initializer}
        types |= {name: array.dtype.name for name, array in known.items()}
        divergences = [
            replace(
                divergence,
                witness=_witness(divergence, others.get("onnx", {}).get(divergence.output), rtol, atol),
                cause=_cause(nodes[divergence.output], types) if divergence.output in nodes else "",
            )
            if divergence.against == "onnxruntime"
            else divergence
            for divergence in divergences
        ]
    return ModelCheck(against, len(results), tuple(divergences))


def _witness(divergence: Divergence, output: Any, rtol: float, atol: float) -> str:
    """Return whom ONNX's reference, which computed an output, agrees with."""
    if output is None:
        return ""
    agrees = {
        "dmlgpu": _agree(divergence.actual, output, rtol, atol),
        "onnxruntime": _agree(np.asarray(divergence.expected), output, rtol, atol),
    }
    if all(agrees.values()):
        return "both"
    return next((name for name, does in agrees.items() if does), "neither")


_PRODUCTS = {
    "ConvInteger": (0, 1),
    "DynamicQuantizeMatMul": (None, 1),
    "MatMulInteger": (0, 1),
    "MatMulIntegerToFloat": (0, 1),
    "QLinearConv": (0, 3),
    "QLinearMatMul": (0, 3),
}
"""The two factors among the inputs of products of 8 bits; None for one that the operator quantizes to uint8."""


def _cause(node: NodeProto, types: Mapping[str, str]) -> str:
    """Return why onnxruntime is known to differ; ``types`` are those of tensors by name."""
    if node.op_type not in _PRODUCTS or len(node.input) <= max(filter(None, _PRODUCTS[node.op_type])):
        return ""
    factors = ["uint8" if place is None else types.get(node.input[place]) for place in _PRODUCTS[node.op_type]]
    if factors != ["uint8", "int8"]:
        return ""
    return (
        "onnxruntime's kernels for processors without VNNI add pairs of uint8 x int8 products in 16 bits, which "
        "saturates; weights quantized with reduce_range=True avoid it"
    )


def _opened(model: ModelProto, nodes: Mapping[str, NodeProto]) -> ModelProto:
    """Return the model with all that its nodes compute as outputs."""
    opened = ModelProto()
    opened.CopyFrom(model)
    declared = {output.name for output in model.graph.output}
    opened.graph.output.extend(ValueInfoProto(name=name) for name in nodes if name not in declared)
    return opened


def _by_reference(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    return load(model, "numpy").run(inputs)


def _other() -> tuple[str, Callable[[ModelProto, Mapping[str, Any]], dict[str, Array]]]:
    """Return what runs models without any part of dmlgpu: onnxruntime, or ONNX's own reference."""
    return ("onnx", _by_onnx) if find_spec("onnxruntime") is None else ("onnxruntime", _by_onnxruntime)


def _by_onnx(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    evaluator = ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True))


def _by_onnxruntime(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    import onnxruntime  # noqa: PLC0415  only where it is installed

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _in_order(results: Mapping[str, Array], nodes: Mapping[str, NodeProto]) -> Iterator[tuple[str, Array]]:
    """Return outputs in the order of the nodes that compute them."""
    places = {name: place for place, name in enumerate(nodes)}
    return iter(sorted(results.items(), key=lambda item: places.get(item[0], -1)))


def _name(node: NodeProto) -> str:
    return node.name or next(iter(node.output), "")


def _error(actual: Array, expected: Any) -> float:
    expected = np.asarray(expected)
    if actual.shape != expected.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    difference = np.where((actual == expected) | (np.isnan(actual) & np.isnan(expected)), 0.0, difference)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def _agree(actual: Array, expected: Any, rtol: float, atol: float) -> bool:
    expected = np.asarray(expected)
    if expected.dtype.kind not in "biuf":
        return True
    if actual.dtype.kind not in "f":
        return actual.shape == expected.shape and bool(np.array_equal(actual, expected))
    finite = np.abs(expected[np.isfinite(expected)])
    return _error(actual, expected) <= atol + rtol * float(finite.max(initial=0.0))
