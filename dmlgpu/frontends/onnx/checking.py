"""Compare every node of a model on a device with the reference, and with onnxruntime or ONNX's reference.

If onnxruntime differs, ONNX's reference decides which result is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.onnx.model import Source, parsed
from dmlgpu.frontends.onnx.session import load
from dmlgpu.runtime.device import Device

Array = NDArray[Any]

_NAMES = {"reference": "the reference", "onnx": "ONNX's reference"}
"""Implementations by ``Divergence.against``, as messages name them."""


@dataclass(frozen=True)
class Divergence:
    """An output of a node that differs.

    Attributes:
        node: Name of the node; empty for an output of the whole model.
        op_type: Operator.
        output: Name of the output.
        against: The other implementation: ``reference``, ``onnxruntime`` or ``onnx``.
        error: Largest difference.
        inputs: Inputs of the node, as the device computed them.
        actual, expected: The output on the device, and of the other implementation.
        witness: If onnxruntime differs, the side that ONNX's reference agrees with: ``dmlgpu``, ``onnxruntime``,
            ``both`` (it lies between) or ``neither``. Empty otherwise, or if the reference cannot run the model.
        cause: A known cause; else empty.
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
        """Return the node, the difference, the verdict of ONNX's reference, and the cause if it is known."""
        where = f"{self.op_type} {self.node!r}: output" if self.node else "the whole model: output"
        witness = f"; ONNX's reference agrees with {self.witness}" if self.witness else ""
        cause = f"; known cause: {self.cause}" if self.cause else ""
        against = _NAMES.get(self.against, self.against)
        return f"{where} {self.output!r} differs from {against} by up to {self.error:.3g}{witness}{cause}"


@dataclass(frozen=True, repr=False)
class ModelCheck:
    """Result of a check.

    Attributes:
        against: The implementations compared with; for one that cannot run the model, the reason.
        compared: Number of outputs of nodes.
        divergences: Differences, in the order of the nodes.
    """

    against: Mapping[str, str]
    compared: int
    divergences: tuple[Divergence, ...]

    @property
    def faults(self) -> tuple[Divergence, ...]:
        """Differences, except those from onnxruntime for which ONNX's reference agrees with dmlgpu."""
        return tuple(divergence for divergence in self.divergences if divergence.witness != "dmlgpu")

    def __repr__(self) -> str:
        lines = [
            f"{name} cannot run the model: {why}" if why else f"compared with {name}"
            for name, why in self.against.items()
        ]
        if not self.divergences:
            return "\n".join([*lines, f"all {self.compared} node outputs agree"])
        differing = self.faults or self.divergences
        count = len({divergence.output for divergence in differing})
        lines += [str(differing[0]), f"{count} of {self.compared} node outputs differ"]
        if not self.faults:
            lines[-1] += " from onnxruntime's; in all of them ONNX's reference agrees with dmlgpu"
        return "\n".join(lines)


def check(
    source: Source, device: Device, inputs: Mapping[str, Any], *, rtol: float = 1e-3, atol: float = 1e-5
) -> ModelCheck:
    """Compare the tensors of all nodes of the main graph, and the outputs of the model as it normally runs.

    Args:
        source: As for ``load``.
        device: Device to check.
        inputs: Inputs of one run.
        rtol: Maximum difference, relative to the largest magnitude of the output.
        atol: Differences up to this are ignored.

    Raises:
        DmlError: As ``load`` and ``Session.run``.
    """
    model = parsed(source)
    nodes = {name: node for node in model.graph.node for name in node.output if name}
    opened = _opened(model, nodes)
    results = _tensors(load(opened, device).run(inputs))
    complete = _tensors(load(model, device).run(inputs))
    others: dict[str, dict[str, Array]] = {}
    against: dict[str, str] = {}

    def ask(name: str, run: Callable[[ModelProto, Mapping[str, Any]], dict[str, Array]]) -> None:
        try:
            others[name] = run(opened, inputs)
            against[name] = ""
        except Exception as error:  # other implementations raise any exception for unsupported nodes
            if isinstance(error, DmlError):
                raise
            against[name] = " ".join(str(error).split())[:200]

    ask("reference", _by_reference)
    ask(*other_implementation())
    values = {**_tensors(inputs), **results}
    divergences = [
        Divergence(
            _name(nodes[name]) if which is results and name in nodes else "",
            nodes[name].op_type if name in nodes else "",
            name,
            other,
            _error(array, expected[name]),
            {read: values[read] for read in nodes[name].input if read in values} if name in nodes else {},
            array,
            expected[name],
        )
        for which in (results, complete)
        for name, array in _in_order(which, nodes)
        for other, expected in others.items()
        if name in expected and not _agree(array, expected[name], rtol, atol)
    ]
    if any(divergence.against == "onnxruntime" for divergence in divergences):
        ask("onnx", compute_by_onnx)
        types = {tensor.name: TensorProto.DataType.Name(tensor.data_type).lower() for tensor in model.graph.initializer}
        types |= {name: array.dtype.name for name, array in values.items()}
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


def _tensors(values: Mapping[str, Any]) -> dict[str, Array]:
    """Return values as arrays, without sequences and optionals, whose tensors other nodes compute."""
    return {
        name: np.asarray(value) for name, value in values.items() if value is not None and not isinstance(value, list)
    }


def _witness(divergence: Divergence, output: Any, rtol: float, atol: float) -> str:
    """Return the side that ONNX's reference agrees with about an output."""
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
"""Input indices of the two factors of 8-bit products; None for a factor that the operator quantizes to uint8."""


def _cause(node: NodeProto, types: Mapping[str, str]) -> str:
    """Return a known cause of a difference of onnxruntime; ``types`` are those of tensors by name."""
    if node.op_type not in _PRODUCTS or len(node.input) <= max(filter(None, _PRODUCTS[node.op_type])):
        return ""
    factors = ["uint8" if index is None else types.get(node.input[index]) for index in _PRODUCTS[node.op_type]]
    if factors != ["uint8", "int8"]:
        return ""
    return (
        "onnxruntime's kernels for CPUs without VNNI add pairs of uint8 x int8 products in 16 bits, which "
        "saturates; weights quantized with reduce_range=True avoid it"
    )


def _opened(model: ModelProto, nodes: Mapping[str, NodeProto]) -> ModelProto:
    """Return the model with the results of all nodes as outputs."""
    opened = ModelProto()
    opened.CopyFrom(model)
    declared = {output.name for output in model.graph.output}
    opened.graph.output.extend(ValueInfoProto(name=name) for name in nodes if name not in declared)
    return opened


def _by_reference(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    return load(model, "numpy").run(inputs)


def other_implementation() -> tuple[str, Callable[[ModelProto, Mapping[str, Any]], dict[str, Array]]]:
    """Return an independent implementation: onnxruntime, or ONNX's reference."""
    return ("onnx", compute_by_onnx) if find_spec("onnxruntime") is None else ("onnxruntime", compute_by_onnxruntime)


def compute_by_onnx(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the outputs of a model by ONNX's reference."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - slow to import, and takes memory

    evaluator = ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True))


def compute_by_onnxruntime(model: ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the outputs of a model by onnxruntime's CPU provider."""
    import onnxruntime  # noqa: PLC0415  only where it is installed

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _in_order(results: Mapping[str, Array], nodes: Mapping[str, NodeProto]) -> Iterator[tuple[str, Array]]:
    """Return outputs in the order of the nodes that compute them."""
    places = {name: index for index, name in enumerate(nodes)}
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
