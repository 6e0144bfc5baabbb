"""Probabilities of classes from those of pairs of classes, as LIBSVM couples them.

T.-F. Wu, C.-J. Lin, R. C. Weng: Probability estimates for multi-class classification by pairwise coupling, 2004,
algorithm 2. Every row iterates until its error is small. The iterations are a Loop of ONNX, whose body is compiled
once.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import combinations, count
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import broadcast_to, multiply, reshaped
from dmlgpu.frontends.onnx.loops import NeedsBranch
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import mark_version
from dmlgpu.frontends.onnx.scores import complement
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_ITERATIONS = 100
_TOLERANCE = 0.005
"""Largest error at which the iteration ends, times the number of classes."""

_VERSION = 18
"""Operator set version of the nodes."""


def coupled(node: OnnxNode, label: OnnxValue, pairwise: Tensor) -> Generator[Any, Any, tuple[OnnxValue, OnnxValue]]:
    """Return a value as it is, and the probabilities {rows, classes}.

    Args:
        node: The node.
        label: A value computed before the loop and needed after it.
        pairwise: Probability of the first class of each pair {rows, pairs}, in the order of ``combinations``.
    """
    classes = round((1 + (1 + 8 * pairwise.sizes[1]) ** 0.5) / 2)
    start = node.constant(np.full((1, classes), 1 / classes), DataType.FLOAT32)
    active = node.constant([[1.0]], DataType.FLOAT32)
    values = {
        "label": label,
        "quadratic": node.valued(_quadratic(node, pairwise, classes)),
        "start": node.valued(dml.identity(broadcast_to(start, (pairwise.sizes[0], classes)))),
        "active": node.valued(dml.identity(broadcast_to(active, (pairwise.sizes[0], 1)))),
    }
    result, probabilities = yield NeedsBranch(_iterations(classes), values=values)
    return result, probabilities


def _quadratic(node: OnnxNode, pairwise: Tensor, classes: int) -> Tensor:
    """Return the matrices {rows, classes, classes} whose quadratic form is minimized."""
    pairs = list(combinations(range(classes), 2))
    pair_index = np.zeros((classes, classes), np.int32)
    for index, (low, high) in enumerate(pairs):
        pair_index[low, high], pair_index[high, low] = index, len(pairs) + index
    both = dml.join([pairwise, complement(pairwise)], 1)

    def matrix(places: np.ndarray) -> Tensor:
        where = node.constant(places.reshape(1, -1), DataType.INT32)
        gathered = directml.gather(both, where, axis=1, index_dimensions=1)
        return reshaped(gathered, (both.sizes[0], classes, classes))

    off_diagonal = node.constant(1 - np.eye(classes)[None], DataType.FLOAT32)
    of_others = multiply(matrix(pair_index.T), off_diagonal)
    squares = dml.reduce(of_others, ReduceFunction.SUM_SQUARE, axes=(2,))
    diagonal = multiply(broadcast_to(squares, of_others.sizes), node.constant(np.eye(classes)[None], DataType.FLOAT32))
    return dml.subtract(diagonal, dml.multiply(matrix(pair_index), of_others))


class _Body:
    """Nodes of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self._numbers = count()

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = f"{op_type} {next(self._numbers)}"
        node = helper.make_node(op_type, list(inputs), [name], name=name, **attributes)
        mark_version(node, _VERSION)
        self.nodes.append(node)
        return name

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        return self.add("Constant", value=numpy_helper.from_array(np.array(array, dtype)))

    def column(self, x: str, index: int) -> str:
        return self.add("Gather", x, self.constant([index], np.int64), axis=1)


def _iterations(classes: int) -> GraphProto:
    """Return the loop from ``start``, ``active`` and ``quadratic`` to the probabilities; ``label`` passes through."""
    outer = _Body()
    body = _step(classes)
    trips, always = outer.constant(_ITERATIONS, np.int64), outer.constant(True, np.bool_)
    loop = helper.make_node(
        "Loop", [trips, always, "start", "active"], ["probabilities", "still"], name="coupling", body=body
    )
    mark_version(loop, _VERSION)
    ends = [helper.make_empty_tensor_value_info(name) for name in ("label", "probabilities")]
    return helper.make_graph([*outer.nodes, loop], "coupling", [], ends)


def _step(classes: int) -> GraphProto:
    """Return the body of the loop: a change of each class's probability in turn, in rows that are active."""
    body = _Body()
    p, last, second = "p", body.constant([2], np.int64), body.constant([1], np.int64)
    product = body.add("Squeeze", body.add("MatMul", "quadratic", body.add("Unsqueeze", p, last)), last)
    total = body.add("ReduceSum", body.add("Mul", p, product), second)
    error = body.add("ReduceMax", body.add("Abs", body.add("Sub", product, total)), second)
    is_close = body.add("Less", error, body.constant(_TOLERANCE / classes))
    active = body.add("Where", is_close, body.constant(0), "active in")
    unity, two = body.constant(1), body.constant(2)
    for index in range(classes):
        row = body.add("Squeeze", body.column("quadratic", index), second)
        own, weight = body.column(product, index), body.column(row, index)
        change = body.add("Div", body.add("Sub", total, own), weight)
        factor = body.add("Add", change, unity)
        inner = body.add("Add", body.add("Mul", change, weight), body.add("Mul", two, own))
        total = body.add("Div", body.add("Add", total, body.add("Mul", change, inner)), factor)
        total = body.add("Div", total, factor)
        product = body.add("Div", body.add("Add", product, body.add("Mul", change, row)), factor)
        unit = body.constant(np.eye(classes)[index : index + 1])
        p = body.add("Div", body.add("Add", p, body.add("Mul", change, unit)), factor)
    p = body.add("Where", body.add("Greater", active, body.constant(0)), p, "p")
    inputs = [
        helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
        helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        helper.make_tensor_value_info("p", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("active in", TensorProto.FLOAT, None),
    ]
    ends = [helper.make_empty_tensor_value_info(name) for name in (body.add("Identity", "condition"), p, active)]
    return helper.make_graph(body.nodes, "step", inputs, ends)
