"""Reductions over axes, positions of extremes, TopK, and cumulative sums and products."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import reshaped, same
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

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

_LOGARITHMS = ("ReduceLogSum", "ReduceLogSumExp")


@operator(*FUNCTIONS, host=(1,))
def reduction(node: OnnxNode) -> OnnxValue:
    """Reduce axes to one element each."""
    axes = node.host_integers(1) if node.has(1) else node.integers("axes")
    shape, x = node.shape(0), node.tensor(0)
    rank = len(shape)
    if not axes and node.flag("noop_with_empty_axes"):
        x = reshaped(x, (1, math.prod(shape)))  # of single elements: squares and logarithms still apply
        reduced = _reduced(node, x, [0])
        return node.valued(reduced, shape)
    chosen = sorted({node.axis(axis, rank) for axis in axes}) if axes else list(range(rank))
    keeps = node.flag("keepdims", True)
    result = tuple(1 if axis in chosen else size for axis, size in enumerate(shape) if keeps or axis not in chosen)
    return node.valued(_reduced(node, x, chosen or [0]), result)


def _reduced(node: OnnxNode, x: Tensor, along: list[int]) -> Tensor:
    """Return a reduction over axes; integers are exact except for logarithms."""
    data_type = x.data_type
    if data_type.is_float:
        result = dml.reduce(x, FUNCTIONS[node.op_type], axes=along)
    elif node.op_type in _LOGARITHMS:
        result = dml.cast(dml.reduce(dml.cast(x, DataType.FLOAT32), FUNCTIONS[node.op_type], axes=along), data_type)
    elif node.op_type == "ReduceMean":
        total = dml.reduce(_widened(x), ReduceFunction.SUM, axes=along)
        count = math.prod(x.sizes[axis] for axis in along)
        result = dml.cast(dml.divide(total, same(total, count)), data_type)
    elif node.op_type == "ReduceL2":
        result = dml.cast(_root(dml.reduce(_widened(x), ReduceFunction.SUM_SQUARE, axes=along)), data_type)
    else:
        function = FUNCTIONS[node.op_type]
        narrow = data_type.bits < 32 and function not in (ReduceFunction.MAX, ReduceFunction.MIN)
        result = dml.reduce(_widened(x) if narrow else x, function, axes=along)
        result = result if result.data_type is data_type else dml.cast(result, data_type)
    return result


def _widened(x: Tensor) -> Tensor:
    """Return integers with 64 bits, so that sums do not overflow."""
    wide = DataType.INT64 if x.data_type.is_signed else DataType.UINT64
    return x if x.data_type is wide else dml.cast(x, wide)


def _root(square: Tensor) -> Tensor:
    """Return the integer parts of square roots: a float estimate, a Newton step, and a comparison."""
    kind = square.data_type
    guess = dml.max(dml.cast(dml.sqrt(dml.cast(square, DataType.FLOAT32)), kind), same(square, 1))
    guess = dml.divide(dml.add(guess, dml.divide(square, guess)), same(square, 2))
    guess = dml.subtract(guess, dml.cast(dml.greater_than(dml.multiply(guess, guess), square), kind))
    above = guess + 1
    return dml.add(guess, dml.cast(dml.less_than_or_equal(dml.multiply(above, above), square), kind))


@operator("ArgMax", "ArgMin")
def extreme(node: OnnxNode) -> OnnxValue:
    """Return the index of the largest or smallest element along an axis."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis"), max(len(shape), 1))
    direction = AxisDirection.DECREASING if node.flag("select_last_index") else AxisDirection.INCREASING
    function = directml.argmax if node.op_type == "ArgMax" else directml.argmin
    indices = function(node.tensor(0), axes=(axis,), axis_direction=direction, output_type=DataType.INT32)
    keeps = node.flag("keepdims", True)
    result = tuple(1 if index == axis else size for index, size in enumerate(shape) if keeps or index != axis)
    return node.valued(dml.cast(indices, DataType.INT64), result)


@operator("TopK", host=(1,))
def top_k(node: OnnxNode) -> tuple[OnnxValue, OnnxValue]:
    """Return the largest or smallest elements along an axis, and their indices."""
    count = node.host_integer(1) if node.version >= 10 else node.integer("k")
    shape = node.shape(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    if count == 0:
        nothing = (*shape[:axis], 0, *shape[axis + 1 :])
        return node.known(np.zeros(nothing, node.data_type(0).numpy)), node.known(np.zeros(nothing, np.int64))
    direction = AxisDirection.DECREASING if node.flag("largest", True) else AxisDirection.INCREASING
    values, indices = directml.top_k1(
        node.tensor(0), axis=axis, k=count, axis_direction=direction, output_type=DataType.UINT64
    )
    return node.valued(values), node.valued(indices.reinterpret(indices.sizes, None, DataType.INT64))


@operator("CumSum", host=(1,))
@operator("CumProd", since=26, host=(1,))
def cumulative(node: OnnxNode) -> OnnxValue:
    """Sum or multiply along an axis, up to each element."""
    x, exclusive = node.tensor(0), node.flag("exclusive")
    axis = node.axis(node.host_integer(1), len(node.shape(0)))
    direction = AxisDirection.DECREASING if node.flag("reverse") else AxisDirection.INCREASING
    if node.op_type == "CumSum":
        result = directml.cumulative_summation(x, axis=axis, axis_direction=direction, has_exclusive_sum=exclusive)
    else:
        result = directml.cumulative_product(x, axis=axis, axis_direction=direction, has_exclusive_product=exclusive)
    return node.valued(result, node.shape(0))
