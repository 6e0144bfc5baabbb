"""Elementwise arithmetic with broadcasting, bits, powers, conversions between types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
from onnx import TensorProto

from dmlgpu.catalog.enums import DataType, IsInfinityMode, QuantizationType, float_limits
from dmlgpu.frontends.onnx.codes import encoded, floats_of
from dmlgpu.frontends.onnx.expressions import broadcast_shapes, broadcast_to, same
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.symbolic import has_symbols
from dmlgpu.frontends.onnx.tensor_proto import data_type_of, stored_type
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.tensor import Tensor

Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Tensor, Tensor], Tensor]

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
def unary(node: OnnxNode) -> OnnxValue:
    """Apply a function to each element."""
    if node.value(0).is_container:  # of Identity
        return node.value(0)
    if node.op_type == "Identity":
        return node.valued(node.tensor(0), node.shape(0), coded=node.value(0).coded)
    unsigned = node.data_type(0).name.startswith("U")
    result = node.tensor(0) if node.op_type == "Abs" and unsigned else UNARY[node.op_type](node.tensor(0))
    return node.valued(result, node.shape(0))


@operator("Not")
def logical_not(node: OnnxNode) -> OnnxValue:
    """Negate booleans."""
    return node.valued(dml.logical_not(node.tensor(0)), node.shape(0), coded=TensorProto.BOOL)


@operator("IsInf")
def is_infinite(node: OnnxNode) -> OnnxValue:
    """Find infinities, of both signs or one."""
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if not (positive or negative):
        return node.known(np.zeros(node.shape(0), np.bool_))
    modes = {
        (True, True): IsInfinityMode.EITHER,
        (True, False): IsInfinityMode.POSITIVE,
        (False, True): IsInfinityMode.NEGATIVE,
    }
    return node.valued(
        dml.is_infinity(node.tensor(0), modes[positive, negative]), node.shape(0), coded=TensorProto.BOOL
    )


@operator(*BINARY)
def binary(node: OnnxNode) -> OnnxValue:
    """Apply a function to the elements of two tensors."""
    if node.version < 7 and node.flag("broadcast"):
        raise node.rejection("broadcasting along an axis, of operator sets before 7, is not supported")
    if node.op_type == "Mul":  # by 1: exporters scale queries and keys
        for factor, other in (0, 1), (1, 0):
            if _is_one(node.value(factor)) and len(node.shape(factor)) <= len(node.shape(other)):
                return node.valued(node.tensor(other), node.shape(other))
    (a, b), shape = node.broadcast(node.value(0), node.value(1))
    return node.valued(BINARY[node.op_type](a, b), shape)


def _is_one(value: OnnxValue) -> bool:
    """Return whether a value is known to be 1, of one element, for sizes of all inputs."""
    array = value.array
    if array is None or has_symbols(array) or array.size != 1 or not value.data_type.is_float:
        return False
    return bool(array.item() == 1)


@operator("PRelu")
def parametric_relu(node: OnnxNode) -> OnnxValue:
    """Multiply negative elements by a slope; DirectML's operator has no unsigned and no 64-bit integers."""
    (x, slope), shape = node.broadcast(node.value(0), node.value(1))
    if x.data_type.name.startswith("U"):
        return node.valued(x, shape)
    if x.data_type is DataType.INT64:
        zeros = broadcast_to(node.constant([0], DataType.INT64), x.sizes)
        return node.valued(dml.if_(dml.less_than(x, zeros), dml.multiply(x, slope), x), shape)
    return node.valued(directml.activation_parameterized_relu(x, slope), shape)


@operator("Mod")
def modulus(node: OnnxNode) -> OnnxValue:
    """Remainder with the divisor's sign, with ``fmod`` the dividend's."""
    (a, b), shape = node.broadcast(node.value(0), node.value(1))
    return node.valued((dml.modulus_truncate if node.flag("fmod") else dml.modulus_floor)(a, b), shape)


@operator(*SEVERAL)
def several(node: OnnxNode) -> OnnxValue:
    """Combine any number of tensors."""
    expressions, shape = node.broadcast(*(node.value(index) for index in range(len(node))))
    summands = len(expressions) + (node.op_type == "Mean") if node.op_type in ("Sum", "Mean") else 0
    data_type = expressions[0].data_type
    if summands > 2:  # partial sums of float16 are not rounded
        expressions = [widened(x) for x in expressions]
    result = reduce(SEVERAL[node.op_type], expressions)
    if node.op_type == "Mean" and len(expressions) > 1:
        result = result * (1 / len(expressions))
    return node.valued(result.astype(data_type), shape)


@operator("Where")
def where(node: OnnxNode) -> OnnxValue:
    """Select elements of one tensor or the other."""
    (condition, a, b), shape = node.broadcast(*(node.value(index) for index in range(3)))
    return node.valued(dml.if_(condition, a, b), shape)


@operator("Clip")
def clip(node: OnnxNode) -> OnnxValue:
    """Clamp each element; MIN and MAX read bounds that are only on the device."""
    x, shape = node.tensor(0), node.shape(0)
    if node.version < 11:
        limits = float_limits(x.data_type)
        low, high = node.number("min", float(limits.min)), node.number("max", float(limits.max))
        return node.valued(dml.clip(x, min(low, high), high), shape)
    bounds = [node.value(index) if node.has(index) else None for index in (1, 2)]
    for bound in bounds:
        if bound is not None and math.prod(bound.shape) != 1:
            raise node.rejection(f"bounds must have one element, got shape {list(bound.shape)}")
    if all(bound is None or bound.array is not None for bound in bounds) and any(bounds):
        dtype = x.data_type.numpy
        defaults = (-np.inf, np.inf) if x.data_type.is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        low, high = (
            default if bound is None or bound.array is None else bound.array.reshape(-1)[0].item()
            for bound, default in zip(bounds, defaults, strict=True)
        )
        return node.valued(dml.clip(x, min(low, high), high), shape)
    for bound, limit in zip(bounds, (dml.max, dml.min), strict=True):
        if bound is not None:
            x = limit(x, node.broadcast(OnnxValue(shape, x.data_type, expression=x), bound)[0][1])
    return node.valued(x, shape)


_MAX_EXPONENT = 63
"""Maximum exponent of 64-bit integers: larger powers overflow, except those of -1, 0 and 1, which depend on parity."""


@operator("Pow")
def power(node: OnnxNode) -> OnnxValue:
    """Raise to a power of any type; the result has the type of the base, truncated if that is an integer type."""
    exponent = node.value(1)
    constant = exponent.array
    if constant is not None and constant.size == 1 and node.data_type(0).is_float:
        shape = broadcast_shapes(node.shape(0), exponent.shape)
        base = broadcast_to(node.tensor(0), shape or (1,))
        return node.valued(dml.pow(base, float(constant.reshape(-1)[0])), shape)
    (a, b), shape = node.broadcast(node.value(0), exponent)
    if a.data_type.is_float:
        return node.valued(dml.pow(a, _narrow(b)), shape)
    if not b.data_type.is_float:
        return node.valued(_of_integers(a, b, constant), shape)
    if constant is not None and bool((constant == np.trunc(constant)).all() and (np.abs(constant) < 1 << 24).all()):
        return node.valued(_of_integers(a, dml.cast(b, DataType.INT32), constant), shape)
    integers = dml.cast(b, DataType.INT32)
    rounded = dml.cast(dml.pow(dml.cast(a, DataType.FLOAT32), dml.cast(b, DataType.FLOAT32)), a.data_type)
    is_integer = dml.equals(dml.cast(integers, b.data_type), b)
    return node.valued(dml.if_(is_integer, _of_integers(a, integers, None), rounded), shape)


def _narrow(exponent: Tensor) -> Tensor:
    """Return an exponent of a type that POW takes; 64-bit integers saturate."""
    if exponent.data_type.bits < 64:
        return exponent
    low = 0 if exponent.data_type is DataType.UINT64 else -(1 << 31)
    return dml.cast(dml.clip(exponent, low, (1 << 31) - 1), DataType.INT32)


def _of_integers(base: Tensor, exponent: Tensor, known: np.ndarray | None) -> Tensor:
    """Return powers that wrap as products do; POW computes them up to 32 bits."""
    exponent = _narrow(exponent)
    if base.data_type.bits < 64:
        return dml.pow(base, exponent)
    exponent = dml.cast(exponent, DataType.INT32)
    unit = same(base, 1)
    odd = dml.cast(exponent & 1, base.data_type)
    max_exponent = int(min(known.max(), _MAX_EXPONENT)) if known is not None and known.min() >= 0 else _MAX_EXPONENT
    product, square = None, base
    for bit in range(max(max_exponent.bit_length(), 1)):
        is_set = dml.equals(exponent & (1 << bit), same(exponent, 1 << bit))
        factor = dml.if_(is_set, square, unit)
        product = factor if product is None else dml.multiply(product, factor)
        square = dml.multiply(square, square) if 2 << bit <= max_exponent else square
    assert product is not None
    if known is not None and known.min() >= 0:
        return product
    is_unit = dml.equals(dml.multiply(base, base), unit)  # the reciprocals of 1 and -1 are integers
    sign = dml.if_(dml.equals(odd, unit), base, unit)
    below = dml.if_(is_unit, sign, same(base, 0))
    return dml.if_(dml.less_than(exponent, same(exponent, 0)), below, product)


@operator("BitShift")
def bit_shift(node: OnnxNode) -> OnnxValue:
    """Shift bits; right shifts of signed elements keep the sign, and a count outside the width shifts all bits out."""
    (a, b), shape = node.broadcast(node.value(0), node.value(1))
    signed = a.data_type
    unsigned = signed if signed.name.startswith("U") else DataType[f"U{signed.name}"]
    x, count = (operand.reinterpret(operand.sizes, operand.desc.strides, unsigned) for operand in (a, b))
    constant = node.value(1).array
    in_range = constant is not None and bool(((constant >= 0) & (constant < signed.bits)).all())

    def shifted(bits: Tensor) -> Tensor:
        shift = dml.bit_shift_left if node.text("direction") == "LEFT" else dml.bit_shift_right
        result = shift(bits, count)
        return result if in_range else dml.if_(count < signed.bits, result, same(bits, 0))

    if signed is unsigned or node.text("direction") == "LEFT":
        result = shifted(x)
    else:  # the complement of a negative number is shifted and complemented again
        zero = same(a, 0)
        every = dml.if_(a < zero, same(a, -1), zero)
        every = every.reinterpret(every.sizes, every.desc.strides, unsigned)
        result = shifted(x ^ every) ^ every
    return node.valued(result.reinterpret(result.sizes, result.desc.strides, signed), shape)


@operator("Cast", "CastLike")
def cast(node: OnnxNode) -> OnnxValue:
    """Convert elements, to the type of another tensor for CastLike."""
    if node.op_type == "CastLike":
        data_type, coded = node.data_type(1), node.value(1).coded
    else:
        data_type, coded = stored_type(node.integer("to"), str(node))
    value = node.value(0)
    if value.coded == coded and (coded or value.data_type is data_type):
        return node.valued(node.tensor(0), node.shape(0), coded=coded)
    x = node.expression(floats_of(value))
    if coded == TensorProto.BOOL:
        x = as_truth(x)
    elif coded:
        rounding = node.text("round_mode", "up")
        x = encoded(
            node.expression,
            converted(x, DataType.FLOAT32),
            coded,
            saturates=node.flag("saturate", True),
            rounding=rounding,
        )
    else:
        x = converted(x, data_type)
    return node.valued(x, node.shape(0), coded=coded)


def converted(x: Tensor, data_type: DataType) -> Tensor:
    """Return elements in another type as CAST converts them: floats are truncated and saturate, integers wrap.

    4-bit elements, which CAST lacks, are dequantized and quantized by a scale of 1; conversions to 4 bits wrap.
    """
    if x.data_type is data_type:
        return x
    if x.data_type.bits < 8:
        x = directml.dequantize(x, (_scale_of_one(x),), quantization_type=QuantizationType.SCALE)
    if data_type.bits >= 8:
        return dml.cast(x, data_type)
    integers = dml.cast(x, DataType.INT32)
    low = -8 if data_type is DataType.INT4 else 0
    wrapped = dml.cast(dml.modulus_floor(integers + -low, same(integers, 16)) + low, DataType.FLOAT32)
    return directml.quantize(
        wrapped, (_scale_of_one(wrapped),), quantization_type=QuantizationType.SCALE, output_type=data_type
    )


def _scale_of_one(x: Tensor) -> Tensor:
    """Return a scale of 1 for all elements."""
    return x.graph.constant([1.0], DataType.FLOAT32).reinterpret((1,) * len(x.sizes))


def as_truth(x: Tensor) -> Tensor:
    """Return a mask of UINT8: 1 for elements that are not 0, NaN included."""
    x = converted(x, DataType.FLOAT32) if x.data_type.bits < 8 else x
    if x.data_type is DataType.FLOAT64:  # no operator compares these: test all bits except the sign
        bits = dml.identity(x).reinterpret(x.sizes, None, DataType.UINT64)
        x = dml.bit_and(bits, same(bits, 2**63 - 1))
    return dml.logical_not(dml.equals(x, same(x, 0)))


@operator("BitCast")
def bit_cast(node: OnnxNode) -> OnnxValue:
    """Reinterpret the bits as elements of another type of the same width."""
    element = node.integer("to")
    data_type = data_type_of(element, str(node))
    value = node.value(0)
    if data_type.bits != value.data_type.bits:
        raise node.rejection(f"a type of {value.data_type.bits} bits is needed, got {data_type.name}")
    x = node.tensor(0)
    if data_type.bits < 8:
        x = converted(x, data_type)  # casting wraps: the bits stay
    elif data_type is not value.data_type:
        x = dml.identity(x).reinterpret(x.sizes, None, data_type)
    return node.valued(x, value.shape, coded=element if element == TensorProto.BOOL else 0)
