"""Every node of a model on a device against the reference, and against onnxruntime or, without it, ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto
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
    """

    node: str
    op_type: str
    output: str
    against: str
    error: float
    inputs: Mapping[str, Array]
    actual: Array
    expected: Array


@dataclass(frozen=True)
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
    others, against = {}, {}
    for name, run in (("reference", _by_reference), _other()):
        try:
            others[name] = run(opened, inputs)
            against[name] = ""
        except Exception as error:  # whatever others raise for what they do not support
            if isinstance(error, DmlError):
                raise
            against[name] = " ".join(str(error).split())[:200]
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
    return ModelCheck(against, len(results), tuple(divergences))


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
