"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, and what quantised operators share: scales as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.frontends.onnx.elements import data_type_of
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped
from dmlgpu.frontends.onnx.operators.casting import converted
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

FLOAT32 = DataType.FLOAT32


@dataclass(frozen=True)
class Quantization:
    """A scale and a zero point for all elements of a tensor, for those of one place along an axis, or by blocks.

    Attributes:
        scale, zero_point: of as many dimensions as the tensor; None for a zero point of 0.
        blocks: how many elements along each dimension share an entry.
    """

    scale: Expression
    zero_point: Expression | None
    blocks: Shape

    def fits(self, sizes: Sequence[int]) -> bool:
        """Return whether no last block is cut, so that QUANTIZE and DEQUANTIZE read the blocks as they are."""
        return all(one * count == size for one, count, size in zip(self.scale.sizes, self.blocks, sizes, strict=True))

    def is_even(self, sizes: Sequence[int]) -> bool:
        """Return whether strides alone give each element its entry."""
        return all(one in (1, size) for one, size in zip(self.scale.sizes, sizes, strict=True))

    def repeated(self, entries: Expression, sizes: Sequence[int]) -> Expression:
        """Return scales or zero points, one for each element."""
        for axis, (count, block, size) in enumerate(zip(entries.sizes, self.blocks, sizes, strict=True)):
            if count in (1, size):
                continue
            before, behind = entries.sizes[:axis], entries.sizes[axis + 1 :]
            split = reshaped(entries, (*before, count, 1, *behind)).broadcast_to((*before, count, block, *behind))
            whole = reshaped(split, (*before, count * block, *behind))
            entries = dml.slice(whole, [0] * len(sizes), (*before, size, *behind))
        return broadcast_to(entries, sizes)


def block_sizes(node: Node, default: int) -> tuple[int, int]:
    """Return the bits of an element and how many elements make a block, as com.microsoft has these attributes."""
    bits, block = node.integer("bits", 4), node.integer("block_size", default)
    if bits not in (4, 8) or block < 16 or block & (block - 1):
        raise node.refusal(f"bits must be 4 or 8 and block_size a power of 2 from 16 on, got {bits} and {block}")
    return bits, block


def quantization(node: Node, scale: int, zero_point: int, sizes: Shape, axis: int = 1) -> Quantization:
    """Return the quantization that two inputs of a node describe for a tensor.

    Args:
        node: whose inputs.
        scale, zero_point: their numbers.
        sizes: the tensor's.
        axis: of a scale with one dimension.
    """
    given = node.shape(scale)
    if math.prod(given) == 1 and len(given) <= 1:
        entries = (1,) * len(sizes)
    elif len(given) == 1:
        axis = node.axis(axis, len(sizes))
        entries = (*(1,) * axis, given[0], *(1,) * (len(sizes) - axis - 1))
    else:
        entries = given
    if node.integer("block_size") and len(given) == len(sizes):
        axis = node.axis(axis, len(sizes))
        blocks = tuple(node.integer("block_size") if number == axis else 1 for number in range(len(sizes)))
    else:
        blocks = tuple(size if one == 1 else 1 for one, size in zip(entries, sizes, strict=False))
    if len(entries) != len(sizes) or any(
        -(-size // block) != one for one, block, size in zip(entries, blocks, sizes, strict=True)
    ):
        raise node.refusal(f"a scale of shape {list(given)} does not fit a tensor of shape {list(sizes)}")
    zero = node.optional_tensor(zero_point)
    if zero is not None and math.prod(node.shape(zero_point)) != math.prod(given):
        raise node.refusal(f"the zero point must have the scale's shape {list(given)}, got {list(zero.sizes)}")
    return Quantization(
        reshaped(node.tensor(scale), entries), None if zero is None else reshaped(zero, entries), blocks
    )


def dequantized(x: Expression, by: Quantization) -> Expression:
    """Return (x - zero point) * scale, of the scale's type."""
    if x.data_type.bits < 8 or (x.data_type.bits == 8 and not by.is_even(x.sizes)):
        if by.fits(x.sizes):
            return functions.dequantize(x, _tensors(by), quantization_type=_kind(by))
        if x.data_type.bits < 8:
            return difference(x, by)
    zero = None if by.zero_point is None else by.repeated(by.zero_point, x.sizes)
    return functions.element_wise_dequantize_linear(x, by.repeated(by.scale, x.sizes), zero)


def difference(x: Expression, by: Quantization) -> Expression:
    """Return what DEQUANTIZE computes by floats, where blocks are cut or zero points are of another type.

    Integers of 4 and 8 bits are exact as floats.
    """
    scale = by.repeated(by.scale, x.sizes)
    found = converted(x, scale.data_type)
    if by.zero_point is not None:
        found = dml.subtract(found, by.repeated(converted(by.zero_point, scale.data_type), x.sizes))
    return dml.multiply(found, scale)


def quantized(x: Expression, by: Quantization, wanted: DataType) -> Expression:
    """Return round(x / scale) + zero point, halves rounded to even, saturated."""
    if wanted.bits == 8 and (by.is_even(x.sizes) or not by.fits(x.sizes)):
        zero = None if by.zero_point is None else by.repeated(by.zero_point, x.sizes)
        return functions.element_wise_quantize_linear(x, by.repeated(by.scale, x.sizes), zero, output_type=wanted)
    if wanted.bits <= 8 and by.fits(x.sizes):
        x = converted(x, by.scale.data_type)
        return functions.quantize(x, _tensors(by), quantization_type=_kind(by), output_type=wanted)
    found = dml.round(dml.divide(converted(x, FLOAT32), by.repeated(converted(by.scale, FLOAT32), x.sizes)))
    if by.zero_point is not None:
        found = dml.add(found, by.repeated(converted(by.zero_point, FLOAT32), x.sizes))
    low = -(1 << (wanted.bits - 1)) if wanted.is_signed else 0
    return converted(dml.clip(found, low, low + (1 << wanted.bits) - 1), wanted)


def _tensors(by: Quantization) -> tuple[Expression, ...]:
    return (by.scale,) if by.zero_point is None else (by.scale, by.zero_point)


def _kind(by: Quantization) -> QuantizationType:
    return QuantizationType.SCALE if by.zero_point is None else QuantizationType.SCALE_ZERO_POINT


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(node: Node) -> Value:
    """Integers become floats: (x - zero point) * scale."""
    x = node.tensor(0)
    found = dequantized(x, quantization(node, 1, 2, x.sizes, node.integer("axis", 1)))
    element = node.integer("output_dtype")
    return node.valued(converted(found, data_type_of(element, str(node))) if element else found, node.shape(0))


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain="com.microsoft")
def quantize_linear(node: Node) -> Value:
    """Floats become integers: round(x / scale) + zero point, saturated."""
    x = node.tensor(0)
    by = quantization(node, 1, 2, x.sizes, node.integer("axis", 1))
    element, precision = node.integer("output_dtype"), node.integer("precision")
    if by.zero_point is not None:
        wanted = by.zero_point.data_type
    else:
        wanted = data_type_of(element, str(node)) if element else DataType.UINT8
    if wanted.is_float or wanted.bits > 16:
        raise node.refusal(f"the output must be of integers of 4, 8 or 16 bits, got {wanted.name}")
    if precision:
        kind = data_type_of(precision, str(node))
    else:
        shared = by.scale.data_type.is_float and x.data_type in (by.scale.data_type, DataType.INT32)
        kind = by.scale.data_type if shared else FLOAT32
    if not kind.is_float:
        raise node.refusal(f"precision must be a type of floats, got {kind.name}")
    if x.data_type is not DataType.INT32 or kind is not FLOAT32:
        x = converted(x, kind)
    by = Quantization(converted(by.scale, kind), by.zero_point, by.blocks)
    return node.valued(quantized(x, by, wanted), node.shape(0))


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node) -> tuple[Value, Value, Value]:
    """Quantise by the range of the elements; the scale and the zero point are results, too."""
    found = functions.dynamic_quantize_linear(node.tensor(0))
    return (
        node.valued(found.output, node.shape(0)),
        node.valued(found.output_scale, ()),
        node.valued(found.output_zero_point, ()),
    )
