"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, and com.microsoft's operators of quantized elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from dmlgpu.catalog.enums import DataType, QuantizationType, ReduceFunction
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable
from dmlgpu.frontends.onnx.codes import encoded, floats_of
from dmlgpu.frontends.onnx.expressions import bits_as, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.operators.activation import apply_activation
from dmlgpu.frontends.onnx.operators.convolution import sliding
from dmlgpu.frontends.onnx.operators.elementwise import converted
from dmlgpu.frontends.onnx.operators.indexing import gathered
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.spatial import window_of, with_dimensions
from dmlgpu.frontends.onnx.tensor_proto import data_type_of, is_float_code, stored_type
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

FLOAT32 = DataType.FLOAT32


@dataclass(frozen=True)
class Quantization:
    """A scale and a zero point for all elements of a tensor, for those of one place along an axis, or by blocks.

    Attributes:
        scale, zero_point: Tensors of the tensor's rank; None for a zero point of 0.
        blocks: Number of elements along each dimension that share an entry.
    """

    scale: Tensor
    zero_point: Tensor | None
    blocks: Shape

    def fits(self, sizes: Sequence[int]) -> bool:
        """Return whether blocks cover the sizes exactly, as QUANTIZE and DEQUANTIZE require."""
        return all(
            count * block == size for count, block, size in zip(self.scale.sizes, self.blocks, sizes, strict=True)
        )

    def is_even(self, sizes: Sequence[int]) -> bool:
        """Return whether strides suffice to give each element its entry."""
        return all(map(is_broadcastable, self.scale.sizes, sizes))

    def repeated(self, entries: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return scales or zero points, one for each element."""
        for axis, (count, block, size) in enumerate(zip(entries.sizes, self.blocks, sizes, strict=True)):
            if is_broadcastable(count, size):
                continue
            before, behind = entries.sizes[:axis], entries.sizes[axis + 1 :]
            split = reshaped(entries, (*before, count, 1, *behind)).broadcast_to((*before, count, block, *behind))
            padded = reshaped(split, (*before, count * block, *behind))
            entries = dml.slice(padded, [0] * len(sizes), (*before, size, *behind))
        return broadcast_to(entries, sizes)


def block_sizes(node: OnnxNode, default: int) -> tuple[int, int]:
    """Return the bits per element and the elements per block from com.microsoft's attributes."""
    bits, block = node.integer("bits", 4), node.integer("block_size", default)
    if bits not in (4, 8) or block < 16 or block & (block - 1):
        raise node.rejection(f"bits must be 4 or 8 and block_size a power of 2 from 16 on, got {bits} and {block}")
    return bits, block


def quantization(node: OnnxNode, scale: int, zero_point: int, sizes: Shape, axis: int = 1) -> Quantization:
    """Return the quantization that two inputs of a node describe for a tensor.

    Args:
        node: The node.
        scale, zero_point: Indices of the inputs.
        sizes: Sizes of the tensor.
        axis: Axis of a scale with one dimension.
    """
    shape = node.shape(scale)
    if math.prod(shape) == 1 and len(shape) <= 1:
        entries = (1,) * len(sizes)
    elif len(shape) == 1:
        axis = node.axis(axis, len(sizes))
        entries = (*(1,) * axis, shape[0], *(1,) * (len(sizes) - axis - 1))
    else:
        entries = shape
    if node.integer("block_size") and len(shape) == len(sizes):
        axis = node.axis(axis, len(sizes))
        blocks = tuple(node.integer("block_size") if index == axis else 1 for index in range(len(sizes)))
    else:
        blocks = tuple(size if count == 1 else 1 for count, size in zip(entries, sizes, strict=False))
    if len(entries) != len(sizes) or any(
        -(-size // block) != count for count, block, size in zip(entries, blocks, sizes, strict=True)
    ):
        raise node.rejection(f"a scale of shape {list(shape)} does not fit a tensor of shape {list(sizes)}")
    zero = node.optional_tensor(zero_point)
    if zero is not None and math.prod(node.shape(zero_point)) != math.prod(shape):
        raise node.rejection(f"the zero point must have the scale's shape {list(shape)}, got {list(zero.sizes)}")
    return Quantization(
        reshaped(node.tensor(scale), entries), None if zero is None else reshaped(zero, entries), blocks
    )


def dequantized(x: Tensor, by: Quantization) -> Tensor:
    """Return (x - zero point) * scale, of the scale's type."""
    if x.data_type.bits < 8 or (x.data_type.bits == 8 and not by.is_even(x.sizes)):
        if by.fits(x.sizes):
            return directml.dequantize(x, _tensors(by), quantization_type=_kind(by))
        if x.data_type.bits < 8:
            return difference(x, by)
    zero = None if by.zero_point is None else by.repeated(by.zero_point, x.sizes)
    return directml.element_wise_dequantize_linear(x, by.repeated(by.scale, x.sizes), zero)


def difference(x: Tensor, by: Quantization) -> Tensor:
    """Dequantize by float arithmetic, for partial blocks and zero points of another type.

    Integers of 4 and 8 bits are exact as floats.
    """
    scale = by.repeated(by.scale, x.sizes)
    floats = converted(x, scale.data_type)
    if by.zero_point is not None:
        floats = dml.subtract(floats, by.repeated(converted(by.zero_point, scale.data_type), x.sizes))
    return dml.multiply(floats, scale)


def quantized(x: Tensor, by: Quantization, data_type: DataType) -> Tensor:
    """Return round(x / scale) + zero point, rounded half to even, saturated."""
    if data_type.bits == 8 and (by.is_even(x.sizes) or not by.fits(x.sizes)):
        zero = None if by.zero_point is None else by.repeated(by.zero_point, x.sizes)
        return directml.element_wise_quantize_linear(x, by.repeated(by.scale, x.sizes), zero, output_type=data_type)
    if data_type.bits <= 8 and by.fits(x.sizes):
        x = converted(x, by.scale.data_type)
        return directml.quantize(x, _tensors(by), quantization_type=_kind(by), output_type=data_type)
    rounded = dml.round(dml.divide(converted(x, FLOAT32), by.repeated(converted(by.scale, FLOAT32), x.sizes)))
    if by.zero_point is not None:
        rounded = dml.add(rounded, by.repeated(converted(by.zero_point, FLOAT32), x.sizes))
    low = -(1 << (data_type.bits - 1)) if data_type.is_signed else 0
    return converted(dml.clip(rounded, low, low + (1 << data_type.bits) - 1), data_type)


_LARGEST = 127
_MIN_SCALE = 1e-30
"""Scale of rows of zeros, whose quotients are 0 then."""


def quantized_rows(node: OnnxNode, x: Tensor) -> tuple[Tensor, Quantization]:
    """Quantize a tensor to INT8 by rows of the last dimension; return also the float32 scales, max|x| / 127."""
    wide, last = converted(x, FLOAT32), len(x.sizes) - 1
    scale = symmetric_scale(node, dml.reduce(dml.abs(wide), ReduceFunction.MAX, axes=(last,)))
    by = Quantization(scale, None, (*(1,) * last, x.sizes[last]))
    return quantized(wide, by, DataType.INT8), by


def symmetric_scale(node: OnnxNode, largest: Tensor) -> Tensor:
    """Return the scale of INT8 by the largest magnitude."""
    return dml.max(largest * (1 / _LARGEST), node.constant([_MIN_SCALE], FLOAT32).broadcast_to(largest.sizes))


def _tensors(by: Quantization) -> tuple[Tensor, ...]:
    return (by.scale,) if by.zero_point is None else (by.scale, by.zero_point)


def _kind(by: Quantization) -> QuantizationType:
    return QuantizationType.SCALE if by.zero_point is None else QuantizationType.SCALE_ZERO_POINT


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(node: OnnxNode) -> OnnxValue:
    """Integers become floats: (x - zero point) * scale."""
    scale = node.value(1)
    has_codes = node.value(0).has_codes
    node = node.replaced([None if value is None else floats_of(value) for value in node.inputs])
    x = node.tensor(0)
    by = quantization(node, 1, 2, x.sizes, node.integer("axis", 1))
    result = difference(x, by) if has_codes else dequantized(x, by)
    data_type, coded = stored_type(node.integer("output_dtype") or scale.element, str(node))
    if coded:
        return node.valued(encoded(node.expression, converted(result, FLOAT32), coded), node.shape(0), coded=coded)
    return node.valued(converted(result, data_type), node.shape(0))


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(node: OnnxNode) -> OnnxValue:
    """Floats become integers: round(x / scale) + zero point, saturated."""
    element, precision = node.integer("output_dtype") or TensorProto.UINT8, node.integer("precision")
    data_type, coded = stored_type(node.value(2).element if node.has(2) else element, str(node))
    node = node.replaced([None if value is None else floats_of(value) for value in node.inputs])
    x = node.tensor(0)
    by = quantization(node, 1, 2, x.sizes, node.integer("axis", 1))
    if coded:
        return node.valued(_coded(node, x, by, coded), node.shape(0), coded=coded)
    if data_type.is_float or data_type.bits > 16:
        raise node.rejection(f"the output must be of integers of 4, 8 or 16 bits, got {data_type.name}")
    if precision:
        kind = data_type_of(precision, str(node))
    else:
        shared = by.scale.data_type.is_float and x.data_type in (by.scale.data_type, DataType.INT32)
        kind = by.scale.data_type if shared else FLOAT32
    if not kind.is_float:
        raise node.rejection(f"precision must be a type of floats, got {kind.name}")
    if x.data_type is not DataType.INT32 or kind is not FLOAT32:
        x = converted(x, kind)
    by = Quantization(converted(by.scale, kind), by.zero_point, by.blocks)
    return node.valued(quantized(x, by, data_type), node.shape(0))


def _coded(node: OnnxNode, x: Tensor, by: Quantization, coded: int) -> Tensor:
    """Return x / scale as floats of 8 or 4 bits, or with the zero point added as integers of 2 bits; saturated."""
    quotient = dml.divide(converted(x, FLOAT32), by.repeated(converted(by.scale, FLOAT32), x.sizes))
    if not is_float_code(coded):
        quotient = dml.round(quotient)
    if by.zero_point is not None:
        quotient = dml.add(quotient, by.repeated(converted(by.zero_point, FLOAT32), x.sizes))
    if not is_float_code(coded):
        low = -2 if coded == TensorProto.INT2 else 0
        quotient = dml.clip(quotient, low, low + 3)
    return encoded(node.expression, quotient, coded, saturates=node.flag("saturate", True))


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: OnnxNode) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Quantize by the range of the elements; the scale and the zero point are results, too."""
    result = directml.dynamic_quantize_linear(node.tensor(0))
    return (
        node.valued(result.output, node.shape(0)),
        node.valued(result.output_scale, ()),
        node.valued(result.output_zero_point, ()),
    )


def real(node: OnnxNode, index: int) -> Tensor:
    """Return an input, dequantized by the two inputs after it."""
    x = node.tensor(index)
    return dequantized(x, quantization(node, index + 1, index + 2, x.sizes))


def stored(node: OnnxNode, x: Tensor, scale: int, shape: Sequence[int], like: int = 0) -> OnnxValue:
    """Return floats quantized by an input and the zero point after it; without zero point, in the type of an input."""
    by = quantization(node, scale, scale + 1, x.sizes)
    data_type = node.data_type(like) if by.zero_point is None else by.zero_point.data_type
    return node.valued(quantized(x, by, data_type), shape)


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(node: OnnxNode) -> OnnxValue:
    """Add."""
    (a, b), shape = node.broadcast(node.value(0), node.value(3))
    scalar = (1,) * len(a.sizes)
    numbers = [None if not node.has(index) else reshaped(node.tensor(index), scalar) for index in (1, 4, 6, 2, 5, 7)]
    a_scale, b_scale, scale, *zeros = numbers
    if a_scale is None or b_scale is None or scale is None:
        raise node.rejection("scales must be given")
    data_type = node.data_type(7) if node.has(7) else node.data_type(0)
    result = directml.element_wise_quantized_linear_add(a, a_scale, b, b_scale, scale, *zeros, output_type=data_type)
    return node.valued(result, shape)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_multiply(node: OnnxNode) -> OnnxValue:
    """Multiply."""
    values = [node.valued(real(node, index), node.shape(index)) for index in (0, 3)]
    (a, b), shape = node.broadcast(*values)
    return stored(node, dml.multiply(a, b), 6, shape)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: OnnxNode) -> OnnxValue:
    """Select elements of one tensor or the other."""
    values = [node.value(0), *(node.valued(real(node, index), node.shape(index)) for index in (1, 4))]
    (condition, a, b), shape = node.broadcast(*values)
    return stored(node, dml.if_(condition, a, b), 7, shape, like=1)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_activation(node: OnnxNode) -> OnnxValue:
    """Apply an activation to each element."""
    return stored(node, apply_activation(node, node.op_type.removeprefix("QLinear"), real(node, 0)), 3, node.shape(0))


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: OnnxNode) -> OnnxValue:
    """Normalize along an axis, or, as before operator set 13, over all dimensions from it on."""
    shape, x = node.shape(0), real(node, 0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    if node.integer("opset") < 13:
        rows = reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        result = reshaped(directml.activation_softmax1(rows, axes=(1,)), x.sizes)
    else:
        result = directml.activation_softmax1(x, axes=(axis,))
    return stored(node, result, 3, shape)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: OnnxNode) -> OnnxValue:
    """Join tensors along an axis: inputs are the output's scale and zero point, then each tensor with its own."""
    indices = range(2, len(node), 3)
    axis = node.axis(node.integer("axis"), len(node.shape(2)))
    parts = [real(node, index) for index in indices if not node.value(index).is_empty]
    if not parts:
        shapes = [node.shape(index) for index in indices]
        total = sum(shape[axis] for shape in shapes)
        return node.known(np.zeros((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), node.data_type(2).numpy))
    joined = parts[0] if len(parts) == 1 else dml.join(parts, axis)
    return stored(node, joined, 0, joined.sizes, like=2)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(node: OnnxNode) -> OnnxValue:
    """Take the mean of each channel."""
    x = real(node, 0)
    first = 1 if node.flag("channels_last") else 2
    axes = tuple(range(first, len(x.sizes) - 2 + first))
    mean = dml.reduce(x, ReduceFunction.AVERAGE, axes=axes)
    return stored(node, mean, 3, mean.sizes)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(node: OnnxNode) -> OnnxValue:
    """Take the mean of each window."""
    x, rank = node.tensor(0), len(node.shape(0))
    if not 3 <= rank <= 5:
        raise node.rejection(f"1 to 3 spatial dimensions are supported, got shape {list(x.sizes)}")
    last = node.flag("channels_last")
    if last:
        x = transposed(x, (0, rank - 1, *range(1, rank - 1)))
    window = window_of(node, node.integers("kernel_shape") or (), x.sizes[2:])
    counts = window.outputs(x.sizes[2:], ceil=node.flag("ceil_mode"))
    wide = window.reaching(x.sizes[2:], counts).with_leading(max(4 - rank, 0))
    expanded = with_dimensions(x, max(rank, 4))
    scalar = (1,) * len(expanded.sizes)
    scale, zero, output_scale, output_zero = (
        reshaped(node.tensor(index), scalar) if node.has(index) else None for index in range(1, 5)
    )
    if scale is None or output_scale is None:
        raise node.rejection("scales must be given")
    result = directml.quantized_linear_average_pooling(
        expanded,
        scale,
        output_scale,
        zero,
        output_zero,
        window_size=wide.sizes,
        **sliding(wide),
        include_padding=node.flag("count_include_pad"),
        output_type=x.data_type,
    )
    result = reshaped(result, (*x.sizes[:2], *counts))
    return node.valued(transposed(result, (0, *range(2, rank), 1)) if last else result)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: OnnxNode) -> OnnxValue:
    """Take parts along an axis of a quantized tensor, whose scales are those of blocks along another, as floats."""
    bits, block = block_sizes(node, 128)
    rank = len(node.shape(0))
    axis, along = node.axis(node.integer("gather_axis"), rank), node.axis(node.integer("quantize_axis", 1), rank)
    if node.data_type(0) is DataType.UINT8 and axis not in (along, rank - 1):
        return _dequantized_slices(node, axis, along, bits, block)
    data, shape = node.tensor(0), node.shape(0)
    if data.data_type is DataType.UINT8 and bits == 4:  # two per byte along the last axis
        shape = (*shape[:-1], 2 * shape[-1])
        data = bits_as(data, shape, DataType.UINT4)
    node.check_indices(1, shape[axis])
    blocks = tuple(block if index == along else 1 for index in range(rank))
    scale = node.tensor(2)
    if scale.sizes != tuple(-(-size // count) for size, count in zip(shape, blocks, strict=True)):
        raise node.rejection(f"scales of shape {list(scale.sizes)} do not fit {list(shape)} in blocks of {block}")
    zero = node.optional_tensor(3)
    if zero is not None and zero.data_type is not data.data_type:
        zero = bits_as(zero, scale.sizes, data.data_type)
    if zero is None and node.data_type(0) is DataType.UINT8:
        middle = node.constant([[1 << (bits - 1)]], data.data_type)
        zero = reshaped(middle, (1,) * rank).broadcast_to(scale.sizes)
    floats = dequantized(data, Quantization(scale, zero, blocks))
    indices = node.shape(1)
    result = (*shape[:axis], *indices, *shape[axis + 1 :])
    wide = max(rank, len(indices), len(result))
    x = reshaped(floats, (*(1,) * (wide - rank), *shape))
    where = reshaped(node.tensor(1), (*(1,) * (wide - len(indices)), *indices))
    taken = directml.gather(x, where, axis=axis + wide - rank, index_dimensions=max(len(indices), 1))
    return node.valued(taken, result)


def _dequantized_slices(node: OnnxNode, axis: int, along: int, bits: int, block: int) -> OnnxValue:
    """Gather packed slices, their scales and their zero points, and dequantize only these.

    Gathers of words, unlike those of bytes, are not fused into the dequantization, so that CPU adapters gather rows
    from the panels of a product with the same matrix.
    """
    shape, scales = node.shape(0), node.shape(2)
    elements = (*shape[:-1], shape[-1] * 8 // bits)
    fits = tuple(-(-size // block) if index == along else size for index, size in enumerate(elements))
    if scales != fits:
        raise node.rejection(f"scales of shape {list(scales)} do not fit {list(elements)} in blocks of {block}")
    node.check_indices(1, shape[axis])
    data_type = DataType.UINT4 if bits == 4 else DataType.UINT8
    in_words = not shape[-1] * DataType.UINT8.bits % WORD_BITS
    kinds = {0: DataType.UINT32} if in_words else {}
    parts = [gathered(node, index, axis, kinds.get(index)) for index in (0, 2, 3) if node.has(index)]
    data, scale, *zero_points = (node.expression(part) for part in parts)
    along += len(node.shape(1)) - 1 if along > axis else 0
    sizes = (*data.sizes[:-1], elements[-1])
    if zero_points:
        zero = bits_as(zero_points[0], scale.sizes, data_type)
    else:
        middle = node.constant([[1 << (bits - 1)]], data_type)
        zero = reshaped(middle, (1,) * len(sizes)).broadcast_to(scale.sizes)
    blocks = tuple(block if index == along else 1 for index in range(len(sizes)))
    return node.valued(dequantized(bits_as(data, sizes, data_type), Quantization(scale, zero, blocks)), sizes)
