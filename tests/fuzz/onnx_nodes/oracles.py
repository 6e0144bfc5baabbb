"""What ONNX models compute: onnxruntime's CPU provider and ONNX's reference evaluator; and comparing with them."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

from tests.fuzz.onnx_nodes.draw import Array, NodeCase
from tests.fuzz.onnx_nodes.models import Drawn

_SECONDS = 5.0
"""For an oracle that computes a malformed model."""


def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


onnxruntime.set_default_logger_severity(4)
_OPTIONS = _options()


@dataclass(frozen=True)
class Answer:
    """What an oracle made of a model.

    Attributes:
        outputs: its results; None where it refuses.
        reason: why it refuses.
    """

    outputs: list[Array] | None
    reason: str = ""


def may_abort(drawn: Drawn) -> bool:
    """Whether an oracle may end the process: onnxruntime divides by 0 in Einsum and Unique of nothing."""
    empty = any(array is not None and not array.size for case in drawn.cases for array in case.inputs)
    return bool(drawn.malformed) or (empty and any(case.op_type in ("Einsum", "Unique") for case in drawn.cases))


def runtime(drawn: Drawn) -> Answer:
    """What onnxruntime computes."""
    try:
        session = onnxruntime.InferenceSession(
            drawn.model.SerializeToString(), _OPTIONS, providers=["CPUExecutionProvider"]
        )
        return Answer(session.run(None, drawn.feeds))
    except Exception as error:  # it has an exception of its own for each status
        return Answer(None, str(error))


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions inline; ONNX's inliner leaves out attributes that have their defaults."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    usual = {function.name: function.attribute_proto for function in result.functions}
    for node in result.graph.node:
        present = {attribute.name for attribute in node.attribute}
        node.attribute.extend(default for default in usual.get(node.op_type, ()) if default.name not in present)
    return inline_local_functions(result)


def reference(drawn: Drawn) -> Answer:
    """What ONNX's reference computes; of functions inline, whose attributes it hands to few operators otherwise."""
    try:
        model = _inlined(drawn.model) if drawn.model.functions else drawn.model
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, drawn.feeds)
        return Answer([np.asarray(result) for result in results])
    except Exception as error:  # any exception of NumPy inside
        return Answer(None, f"{type(error).__name__}: {error}")


def apart(oracle: Callable[[Drawn], Answer], drawn: Drawn) -> Answer:
    """What an oracle computes in a process of its own: malformed models abort some, or keep them busy."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        faulthandler.disable()  # that it ends is no news
        try:
            answer = oracle(drawn)
            with os.fdopen(writer, "wb") as file:
                pickle.dump(answer, file)
        finally:
            os._exit(0)
    os.close(writer)
    data = b""
    with os.fdopen(reader, "rb") as file:
        while select.select([file], [], [], _SECONDS)[0]:
            piece = os.read(file.fileno(), 1 << 20)
            if not piece:
                break
            data += piece
        else:
            os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    try:
        answer = pickle.loads(data)
    except Exception:  # cut off where the process died
        return Answer(None, "it ended")
    assert isinstance(answer, Answer)
    return answer


# ---- comparing ------------------------------------------------------------------------------------------------------

_EPSILONS = {"float32": 2.0**-23, "float16": 2.0**-10, "float64": 2.0**-23}
_ULPS = 64
"""How many units in the last place a function may be off, as often as rounding is compounded by a sum's length."""


def difference(
    case: NodeCase, position: int, expected: Array, result: Array, *, factor: float = 1.0, is_open: bool = False
) -> str:
    """How an output of a node differs from an oracle's; empty where it does not.

    Args:
        case: the node.
        position: which of its outputs.
        expected: the oracle's.
        result: dmlgpu's.
        factor: by how much tolerances of floats grow, for results of several nodes.
        is_open: whether only types and shapes count.
    """
    if expected.dtype.name in ("int4", "uint4"):  # dmlgpu holds one to a byte
        expected = expected.astype("int8" if expected.dtype.name == "int4" else "uint8")
    if expected.dtype != result.dtype:
        return f"type {result.dtype}, expected {expected.dtype}"
    if expected.shape != result.shape:
        return f"shape {list(result.shape)}, expected {list(expected.shape)}"
    if case.random or is_open or not expected.size:
        return ""
    if expected.dtype.kind != "f":
        if expected.dtype.kind in "iu" and case.slack:
            wrong = np.abs(expected.astype("int64") - result.astype("int64")) > case.slack
        else:
            wrong = expected != result
    elif case.exact and factor == 1.0:
        wrong = ~((expected == result) | (np.isnan(expected) & np.isnan(result)))
    else:
        epsilon = _EPSILONS[expected.dtype.name]
        relative = (
            min(0.02, epsilon * _ULPS * factor * (1 + case.length**0.5 / 4))
            if epsilon < 1e-4
            else min(0.05, epsilon * 4 * factor * (1 + case.length**0.5 / 4))
        )
        with np.errstate(all="ignore"):
            left, right = expected.astype("float64"), result.astype("float64")
            near = np.abs(left - right) <= relative * (np.abs(left) + case.scale / 4)
        wrong = ~((expected == result) | near | (np.isnan(expected) & np.isnan(result)))
    if not wrong.any():
        return ""
    place = tuple(int(number) for number in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, first at {list(place)}: "
        f"got {result[place]!r}, expected {expected[place]!r}"
    )


def differences(
    cases: Sequence[NodeCase],
    outputs: dict[str, tuple[int, int]],
    expected: Sequence[Array],
    results: dict[str, Array],
    *,
    factor: float = 1.0,
    is_open: bool = False,
) -> str:
    """How a run's outputs differ from an oracle's; empty where they do not."""
    for (name, (node, position)), array in zip(outputs.items(), expected, strict=True):
        if text := difference(cases[node], position, np.asarray(array), results[name], factor=factor, is_open=is_open):
            return f"output {name}: {text}"
    return ""
