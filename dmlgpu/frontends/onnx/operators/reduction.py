"""Reductions over axes, and the places of extremes."""

from __future__ import annotations

import numpy as np

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder import functions
from dmlgpu.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value

FUNCTIONS = {
    "ReduceL1": ReduceFunction.L1,
    "ReduceL2": ReduceFunction.L2,
    "ReduceLogSum": ReduceFunction.LOG_SUM,
    "ReduceLogSumExp": ReduceFunction.LOG_SUM_EXP,
    "ReduceMax": ReduceFunction.MAX,
    "ReduceMean": ReduceFunction.AVERAGE,
    "ReduceMin": ReduceFunction.MIN,
    "ReduceProd": ReduceFunction.MULTIPLY,
    "ReduceSum": ReduceFunction.SUM,
    "ReduceSumSquare": ReduceFunction.SUM_SQUARE,
}

_FLOATS_ONLY = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean")


@operator(*FUNCTIONS)
def reduction(node: Node) -> Value:
    """Reduce axes to one element each."""
    axes = node.host_integers(1) if node.has(1) else node.integers("axes")
    shape, x = node.shape(0), node.tensor(0)
    if not axes and node.flag("noop_with_empty_axes"):
        return node.valued(x, shape)
    rank = len(shape)
    chosen = sorted({node.axis(one, rank) for one in axes}) if axes else list(range(rank))
    keeps = node.flag("keepdims", True)
    result = tuple(1 if axis in chosen else size for axis, size in enumerate(shape) if keeps or axis not in chosen)
    kept = x.data_type
    if not kept.is_float and node.op_type in _FLOATS_ONLY:
        x = dml.cast(x, DataType.FLOAT32)
    found = dml.reduce(x, FUNCTIONS[node.op_type], axes=chosen or (0,))
    return node.valued(found if found.data_type is kept else dml.cast(found, kept), result)


@operator("ArgMax", "ArgMin")
def extreme(node: Node) -> Value:
    """Return where along an axis the largest or smallest element stands."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis"), max(len(shape), 1))
    direction = AxisDirection.DECREASING if node.flag("select_last_index") else AxisDirection.INCREASING
    function = functions.argmax if node.op_type == "ArgMax" else functions.argmin
    found = function(node.tensor(0), axes=(axis,), axis_direction=direction, output_type=DataType.INT64)
    keeps = node.flag("keepdims", True)
    result = tuple(1 if number == axis else size for number, size in enumerate(shape) if keeps or number != axis)
    return node.valued(found, result)


@operator("TopK")
def top_k(node: Node) -> tuple[Value, Value]:
    """Return the largest or smallest elements along an axis, and where they stand."""
    count = node.host_integers(1)[0] if node.version >= 10 else node.integer("k")
    shape = node.shape(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    if count == 0:
        nothing = (*shape[:axis], 0, *shape[axis + 1 :])
        return node.known(np.zeros(nothing, node.data_type(0).numpy)), node.known(np.zeros(nothing, np.int64))
    direction = AxisDirection.DECREASING if node.flag("largest", True) else AxisDirection.INCREASING
    found = functions.top_k1(node.tensor(0), axis=axis, k=count, axis_direction=direction, output_type=DataType.UINT64)
    values, indices = found
    return node.valued(values), node.valued(indices.reinterpret(indices.sizes, None, DataType.INT64))
