"""Arithmetic by element, with broadcasting: one and two operands, Clip, Where, sums of several."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from dmlgpu.catalog.enums import AxisDirection, DataType, IsInfinityMode
from dmlgpu.frontends.onnx.node import Node, broadcast_to
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

Unary = Callable[[Expression], Expression]
Binary = Callable[[Expression, Expression], Expression]

UNARY: dict[str, Unary] = {
    "Abs": dml.abs,
    "Acos": dml.acos,
    "Acosh": dml.acosh,
    "Asin": dml.asin,
    "Asinh": dml.asinh,
    "Atan": dml.atan,
    "Atanh": dml.atanh,
    "Ceil": dml.ceil,
    "Cos": dml.cos,
    "Cosh": dml.cosh,
    "Erf": dml.erf,
    "Exp": dml.exp,
    "Floor": dml.floor,
    "Identity": dml.identity,
    "Log": dml.log,
    "Neg": dml.negate,
    "Reciprocal": dml.recip,
    "Round": dml.round,
    "Sign": lambda x: dml.if_(dml.is_nan(x), x, dml.sign(x)) if x.data_type.is_float else dml.sign(x),
    "Sin": dml.sin,
    "Sinh": dml.sinh,
    "Sqrt": dml.sqrt,
    "Tan": dml.tan,
    "Tanh": dml.activation_tanh,
    "BitwiseNot": dml.bit_not,
    "IsNaN": dml.is_nan,
}

BINARY: dict[str, Binary] = {
    "Add": dml.add,
    "Sub": dml.subtract,
    "Mul": dml.multiply,
    "Div": dml.divide,
    "Equal": dml.equals,
    "Less": dml.less_than,
    "LessOrEqual": dml.less_than_or_equal,
    "Greater": dml.greater_than,
    "GreaterOrEqual": dml.greater_than_or_equal,
    "And": dml.logical_and,
    "Or": dml.logical_or,
    "Xor": dml.logical_xor,
    "BitwiseAnd": dml.bit_and,
    "BitwiseOr": dml.bit_or,
    "BitwiseXor": dml.bit_xor,
}

SEVERAL: dict[str, Binary] = {"Sum": dml.add, "Max": dml.max, "Min": dml.min, "Mean": dml.add}


@operator(*UNARY)
def unary(node: Node) -> Value:
    """Apply a function to each element."""
    if node.op_type == "Identity":
        return node.valued(node.tensor(0), node.shape(0), is_bool=node.value(0).is_bool)
    unsigned = node.data_type(0).name.startswith("U")
    made = node.tensor(0) if node.op_type == "Abs" and unsigned else UNARY[node.op_type](node.tensor(0))
    return node.valued(made, node.shape(0))


@operator("Not")
def logical_not(node: Node) -> Value:
    """Turn truth values round."""
    return node.valued(dml.logical_not(node.tensor(0)), node.shape(0), is_bool=True)


@operator("IsInf")
def is_infinite(node: Node) -> Value:
    """Find infinities, of both signs or one."""
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if not (positive or negative):
        return node.known(np.zeros(node.shape(0), np.bool_))
    modes = {
        (True, True): IsInfinityMode.EITHER,
        (True, False): IsInfinityMode.POSITIVE,
        (False, True): IsInfinityMode.NEGATIVE,
    }
    return node.valued(dml.is_infinity(node.tensor(0), modes[positive, negative]), node.shape(0), is_bool=True)


@operator(*BINARY)
def binary(node: Node) -> Value:
    """Apply a function to the elements of two tensors."""
    values = node.value(0), node.value(1)
    if node.version < 7 and node.flag("broadcast"):
        raise node.refusal("broadcasting along an axis, of operator sets before 7, is not supported")
    (a, b), shape = node.broadcast(*values)
    return node.valued(BINARY[node.op_type](a, b), shape)


@operator("PRelu")
def parametric_relu(node: Node) -> Value:
    """Multiply negative elements by a slope; DirectML's operator has no unsigned and no 64-bit integers."""
    (x, slope), shape = node.broadcast(node.value(0), node.value(1))
    if x.data_type.name.startswith("U"):
        return node.valued(x, shape)
    if x.data_type is DataType.INT64:
        zeros = broadcast_to(node.constant([0], DataType.INT64), x.sizes)
        return node.valued(dml.if_(dml.less_than(x, zeros), dml.multiply(x, slope), x), shape)
    return node.valued(functions.activation_parameterized_relu(x, slope), shape)


@operator("Mod")
def modulus(node: Node) -> Value:
    """Remainder with the divisor's sign, with ``fmod`` the dividend's."""
    (a, b), shape = node.broadcast(node.value(0), node.value(1))
    return node.valued((dml.modulus_truncate if node.flag("fmod") else dml.modulus_floor)(a, b), shape)


@operator(*SEVERAL)
def several(node: Node) -> Value:
    """Combine any number of tensors."""
    expressions, shape = node.broadcast(*(node.value(number) for number in range(len(node))))
    found = reduce(SEVERAL[node.op_type], expressions)
    if node.op_type == "Mean" and len(expressions) > 1:
        found = found * (1 / len(expressions))
    return node.valued(found, shape)


@operator("Where")
def where(node: Node) -> Value:
    """Take elements of one tensor or the other."""
    (condition, a, b), shape = node.broadcast(*(node.value(number) for number in range(3)))
    return node.valued(dml.if_(condition, a, b), shape)


@operator("Clip")
def clip(node: Node) -> Value:
    """Bound each element; bounds that only the device knows are read by MIN and MAX."""
    found, shape = node.tensor(0), node.shape(0)
    if node.version < 11:
        limits = np.finfo(found.data_type.numpy)
        low, high = node.number("min", float(limits.min)), node.number("max", float(limits.max))
        return node.valued(dml.clip(found, min(low, high), high), shape)
    bounds = [node.value(number) if node.has(number) else None for number in (1, 2)]
    for one in bounds:
        if one is not None and math.prod(one.shape) != 1:
            raise node.refusal(f"bounds must have one element, got shape {list(one.shape)}")
    if all(one is None or one.array is not None for one in bounds) and any(bounds):
        kind = found.data_type.numpy
        info = np.finfo(kind) if found.data_type.is_float else np.iinfo(kind)
        usual = (-np.inf, np.inf) if found.data_type.is_float else (info.min, info.max)
        low, high = (
            other if one is None or one.array is None else one.array.reshape(-1)[0].item()
            for one, other in zip(bounds, usual, strict=True)
        )
        return node.valued(dml.clip(found, min(low, high), high), shape)
    for one, bound in zip(bounds, (dml.max, dml.min), strict=True):
        if one is not None:
            found = bound(found, node.broadcast(Value(shape, found.data_type, expression=found), one)[0][1])
    return node.valued(found, shape)


@operator("CumSum")
def cumulative_sum(node: Node) -> Value:
    """Sum along an axis, up to each element."""
    axis = node.axis(node.host_integer(1), len(node.shape(0)))
    direction = AxisDirection.DECREASING if node.flag("reverse") else AxisDirection.INCREASING
    found = dml.cumulative_summation(
        node.tensor(0), axis=axis, axis_direction=direction, has_exclusive_sum=node.flag("exclusive")
    )
    return node.valued(found, node.shape(0))


@operator("Dropout")
def dropout(node: Node) -> tuple[Value, Value | None]:
    """Hand elements on, all of them, as versions before 12 of the operator do outside training."""
    x, shape = node.tensor(0), node.shape(0)
    if not node.wants(1):
        return node.valued(x, shape), None
    mask = dml.fill_value_constant(node.builder, x.sizes, DataType.UINT8 if node.version >= 10 else x.data_type, 1)
    return node.valued(x, shape), node.valued(mask, shape, is_bool=node.version >= 10)
