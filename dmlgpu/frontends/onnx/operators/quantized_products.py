"""Products of quantized matrices, exact in 32 bits before they are scaled, and quantized convolutions."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType, MatrixTransform, ReduceFunction
from dmlgpu.common.errors import shown
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable
from dmlgpu.frontends.onnx.expressions import bits_as, broadcast_to, reshaped, same, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ACTIVATIONS, MICROSOFT
from dmlgpu.frontends.onnx.operators.convolution import sliding
from dmlgpu.frontends.onnx.operators.elementwise import converted
from dmlgpu.frontends.onnx.operators.matrix import stacks_of_matrices
from dmlgpu.frontends.onnx.operators.quantization import (
    Quantization,
    block_sizes,
    dequantized,
    difference,
    quantized,
    quantized_rows,
)
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.spatial import SlidingWindow, window_of, with_dimensions
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

FLOAT32, INT32, UINT8 = DataType.FLOAT32, DataType.INT32, DataType.UINT8


class Factors:
    """Two stacks of 8-bit integer matrices, broadcast to equal 4-D stacks, and the shape of the result.

    Attributes:
        a, b: {batch, channel, M, K} and {batch, channel, K, N}.
        shape: Shape of the product, as by NumPy's matmul.
        stack: Sizes of the stack, of the inputs' rank.
    """

    def __init__(self, node: OnnxNode, a: Tensor, left: Shape, b: Tensor, right: Shape):
        left, right, self.stack, self.shape = stacks_of_matrices(node, left, right)
        self.a = self._placed(reshaped(a, left))
        self.b = self._placed(reshaped(b, right))

    @classmethod
    def of(cls, node: OnnxNode, left: int, right: int) -> Factors:
        """Return two inputs of a node as factors."""
        return cls(node, node.tensor(left), node.shape(left), node.tensor(right), node.shape(right))

    def _placed(self, matrices: Tensor) -> Tensor:
        """Return a stack with two dimensions before those of the matrices."""
        matrices = broadcast_to(matrices, (*self.stack, *matrices.sizes[-2:]))
        if len(self.stack) <= 2:
            return broadcast_to(matrices, (*(1,) * (2 - len(self.stack)), *matrices.sizes))
        return reshaped(matrices, (1, math.prod(self.stack), *matrices.sizes[-2:]))

    def parameter(self, node: OnnxNode, index: int, *, of_rows: bool) -> Tensor | None:
        """Return a scale or zero point that is one element, or has one per row of A or column of B; else None.

        ``spread`` takes those that differ between matrices.
        """
        if not node.has(index):
            return None
        shape, count = node.shape(index), self.a.sizes[-2] if of_rows else self.b.sizes[-1]
        if math.prod(shape) not in (1, count) or (len(shape) > 1 and math.prod(shape) != 1):
            return None
        size = math.prod(shape)
        return reshaped(node.tensor(index), (1, 1, size, 1) if of_rows else (1, 1, 1, size))

    def spread(self, node: OnnxNode, index: int, *, of_rows: bool) -> Tensor:
        """Return a scale or zero point that broadcasts with the product in four dimensions."""
        plain = self.parameter(node, index, of_rows=of_rows)
        if plain is not None:
            return plain
        shape = node.shape(index)
        sizes = (*self.stack, self.a.sizes[-2], 1) if of_rows else (*self.stack, 1, self.b.sizes[-1])
        if len(shape) > len(sizes) or any(
            not is_broadcastable(has, want) for has, want in zip(reversed(shape), reversed(sizes), strict=False)
        ):
            raise node.rejection(f"input {index} must broadcast to {list(sizes)}, got {list(shape)}")
        return self._placed(broadcast_to(node.tensor(index), sizes))

    def is_plain(self, node: OnnxNode, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
        """Return whether all of these inputs that are present have one element, or one per row or column."""
        return all(
            not node.has(index) or self.parameter(node, index, of_rows=of_rows) is not None
            for indices, of_rows in ((rows, True), (columns, False))
            for index in indices
        )

    def sums(self, node: OnnxNode, a_zero: int, b_zero: int) -> Tensor:
        """Return (A - zero point) @ (B - zero point) in INT32, which wraps."""
        if self.is_plain(node, (a_zero,), (b_zero,)):
            return directml.matrix_multiply_integer(
                self.a,
                self.b,
                self.parameter(node, a_zero, of_rows=True),
                self.parameter(node, b_zero, of_rows=False),
            )
        result = directml.matrix_multiply_integer(self.a, self.b)
        inner, sizes = self.a.sizes[-1], result.sizes
        left = converted(self.spread(node, a_zero, of_rows=True), INT32) if node.has(a_zero) else None
        right = converted(self.spread(node, b_zero, of_rows=False), INT32) if node.has(b_zero) else None
        if right is not None:
            rows = dml.reduce(converted(self.a, INT32), ReduceFunction.SUM, axes=(3,))
            if left is not None:  # rows of A less their zero points
                rows = dml.subtract(rows, broadcast_to(left, rows.sizes) * inner)
            result = dml.subtract(result, dml.multiply(broadcast_to(rows, sizes), broadcast_to(right, sizes)))
        if left is not None:
            columns = dml.reduce(converted(self.b, INT32), ReduceFunction.SUM, axes=(2,))
            result = dml.subtract(result, dml.multiply(broadcast_to(columns, sizes), broadcast_to(left, sizes)))
        return result


@operator("MatMulInteger", since=10)
def matmul_integer(node: OnnxNode) -> OnnxValue:
    """Product of 8-bit integers less their zero points, in INT32."""
    if node.data_type(0).bits != 8 or node.data_type(1).bits != 8:
        raise node.rejection(f"factors must be of 8 bits, got {node.data_type(0).name} and {node.data_type(1).name}")
    factors = Factors.of(node, 0, 1)
    return node.valued(factors.sums(node, 2, 3), factors.shape)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(node: OnnxNode) -> OnnxValue:
    """Product of quantized matrices, quantized."""
    factors = Factors.of(node, 0, 3)
    if factors.is_plain(node, (1, 2, 6, 7), (4, 5)):
        scales = [
            converted(scale, FLOAT32)
            for scale in (
                factors.parameter(node, 1, of_rows=True),
                factors.parameter(node, 4, of_rows=False),
                factors.parameter(node, 6, of_rows=True),
            )
            if scale is not None
        ]
        result = directml.quantized_linear_matrix_multiply(
            factors.a,
            scales[0],
            factors.b,
            scales[1],
            scales[2],
            factors.parameter(node, 2, of_rows=True),
            factors.parameter(node, 5, of_rows=False),
            factors.parameter(node, 7, of_rows=True),
            output_type=node.data_type(7),
        )
        return node.valued(result, factors.shape)
    result = converted(factors.sums(node, 2, 5), FLOAT32)
    rows, columns, output = (
        broadcast_to(converted(factors.spread(node, index, of_rows=of_rows), FLOAT32), result.sizes)
        for index, of_rows in ((1, True), (4, False), (6, True))
    )
    result = dml.multiply(result, dml.multiply(rows, columns))
    zero = broadcast_to(factors.spread(node, 7, of_rows=True), result.sizes)
    by = Quantization(output, zero, (1,) * len(result.sizes))
    return node.valued(quantized(result, by, zero.data_type), factors.shape)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: OnnxNode) -> OnnxValue:
    """Product of 8-bit integers, scaled to floats; inputs are A, B, their scales, their zero points, and a bias."""
    node.check_rank(2, 0, 1)
    factors = Factors.of(node, 0, 1)
    result = _scaled(node, factors, factors.sums(node, 4, 5), 2, 3)
    return node.valued(_with_bias(node, result, factors.shape, 6), factors.shape)


def _scaled(node: OnnxNode, factors: Factors, sums: Tensor, *scales: int) -> Tensor:
    """Return sums times the scales of A and B, of the scales' type."""
    kind = node.data_type(scales[0])
    rows, columns = (
        broadcast_to(converted(factors.spread(node, index, of_rows=index == scales[0]), FLOAT32), sums.sizes)
        for index in scales
    )
    return converted(dml.multiply(converted(sums, FLOAT32), dml.multiply(rows, columns)), kind)


def _with_bias(node: OnnxNode, product: Tensor, shape: Shape, index: int) -> Tensor:
    if not node.has(index):
        return product
    product = reshaped(product, shape)
    return dml.add(product, broadcast_to(node.tensor(index), product.sizes))


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: OnnxNode) -> OnnxValue:
    """Quantize A by its range and multiply it with B: inputs are A, B, B's scale and zero point, and a bias."""
    factors = Factors.of(node, 0, 1)
    a = directml.dynamic_quantize_linear(factors.a)
    factors.a = a.output
    zero = node.valued(reshaped(a.output_zero_point, (1,)), ())
    sums = factors.sums(node.replaced([node.inputs[3] if node.has(3) else None, zero]), 1, 0)
    scale = reshaped(a.output_scale, (1,) * len(factors.a.sizes))
    columns = broadcast_to(factors.spread(node, 2, of_rows=False), sums.sizes)
    result = dml.multiply(dml.cast(sums, FLOAT32), dml.multiply(broadcast_to(scale, sums.sizes), columns))
    return node.valued(_with_bias(node, result, factors.shape, 4), factors.shape)


@operator("QGemm", domain=MICROSOFT)
def qgemm(node: OnnxNode) -> OnnxValue:
    """alpha * A' * B' + C of quantized matrices, C of INT32 in units of the product.

    The result is float without a scale and zero point of the output; one without the other is rejected.
    """
    if node.has(7) != node.has(8):
        raise node.rejection("y_scale and y_zero_point must be given together")
    for index in (0, 3):
        node.check_rank(index, 2)
    a, b = (
        transposed(node.tensor(index), (1, 0)) if node.flag(name) else node.tensor(index)
        for index, name in ((0, "transA"), (3, "transB"))
    )
    factors = Factors(node, a, a.sizes, b, b.sizes)
    alpha = node.number("alpha", 1.0)
    sums = factors.sums(node, 2, 5)
    if node.has(6):
        sums = dml.add(sums, broadcast_to(node.tensor(6), sums.sizes))
    result = _scaled(node, factors, sums, 1, 4)
    result = result if alpha == 1 else result * alpha
    if node.has(7):
        by = Quantization(
            broadcast_to(reshaped(node.tensor(7), (1,) * 4), result.sizes),
            broadcast_to(reshaped(node.tensor(8), (1,) * 4), result.sizes),
            (1,) * 4,
        )
        result = quantized(result, by, node.data_type(8))
    return node.valued(result, factors.shape)


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_bits(node: OnnxNode) -> OnnxValue:
    """Product with a matrix of {N, K} of 4 or 8 bits, whose scales and zero points are those of blocks along K.

    Rows are floats at every ``accuracy_level``, unless the attribute ``activations``, which ONNX Runtime does not
    have, is "int8": then they are rounded to integers, with a scale per row and block, as by ONNX Runtime's CPU
    provider at level 4.
    """
    if node.has(4):
        raise node.rejection("an order of groups (g_idx) is not supported")
    bits, block = block_sizes(node, 0)
    if node.text(ACTIVATIONS) not in ("", "int8"):
        raise node.rejection(f'{ACTIVATIONS} must be "int8" or absent, got {shown(node.text(ACTIVATIONS))}')
    inner, columns = node.integer("K"), node.integer("N")
    blocks = -(-inner // block)
    shape = node.shape(0)
    if not shape or shape[-1] != inner or math.prod(node.shape(1)) * 8 != columns * blocks * block * bits:
        raise node.rejection(
            f"inputs must be of {columns} columns of {inner}, got {list(shape)}, {list(node.shape(1))}"
        )
    rows = reshaped(node.tensor(0), (math.prod(shape[:-1]), inner))
    parts = [_columns_product(part, rows, count) for part, count in _column_pieces(node, columns)]
    result = parts[0] if len(parts) == 1 else dml.join(parts, 1)
    return node.valued(_with_bias(node, result, (*shape[:-1], columns), 5), (*shape[:-1], columns))


def _column_pieces(node: OnnxNode, columns: int) -> list[tuple[OnnxNode, int]]:
    """Split the columns of MatMulNBits into nodes that fit bindings; return them with their column counts."""
    indices = [index for index in (1, 2, 3) if node.has(index)]
    count = max(node.piece_count(index) for index in indices)
    weights = [node.value(index) for index in indices]
    if count == 1 or count > columns or any(not w.is_weight or w.shape[:1] != (columns,) for w in weights):
        return [(node, columns)]
    cut = [weight.cut(0, count) for weight in weights]
    pieces = []
    for parts in zip(*cut, strict=True):
        inputs = list(node.inputs)
        for index, part in zip(indices, parts, strict=True):
            inputs[index] = part
        pieces.append((node.replaced(inputs), parts[0].shape[0]))
    return pieces


def _columns_product(node: OnnxNode, rows: Tensor, columns: int) -> Tensor:
    """Return the product {rows, columns} of rows with the columns of a node."""
    bits, block = block_sizes(node, 0)
    inner = rows.sizes[1]
    blocks = -(-inner // block)
    scale = reshaped(node.tensor(2), (columns, blocks))
    b = bits_as(node.tensor(1), (columns, blocks * block), DataType.UINT4 if bits == 4 else UINT8)
    zero_points = _zero_points(node, b.data_type, (columns, blocks))
    if zero_points.data_type is b.data_type:
        weights = dequantized(b, Quantization(scale, zero_points, (1, block)))
    else:
        entries = [reshaped(tensor, (columns, blocks, 1)) for tensor in (scale, zero_points)]
        by = Quantization(entries[0], entries[1], (1, 1, block))
        weights = reshaped(difference(reshaped(b, (columns, blocks, block)), by), (columns, blocks * block))
    if missing := blocks * block - inner:  # padding of the last block is multiplied by 0
        rows = directml.padding1(rows, start_padding=(0, 0), end_padding=(0, missing))
    kind = rows.data_type
    if node.text(ACTIVATIONS):
        codes, by = quantized_rows(node, reshaped(rows, (rows.sizes[0], blocks, block)))
        rows = reshaped(dequantized(codes, by), rows.sizes)
    weights = converted(weights, rows.data_type)
    return converted(directml.gemm(rows, weights, trans_b=MatrixTransform.TRANSPOSE), kind)


def _zero_points(node: OnnxNode, data_type: DataType, blocks: Shape) -> Tensor:
    """Return zero points of blocks, in a type or a wider one."""
    if not node.has(3):
        middle = np.full((1, 1), 1 << (data_type.bits - 1), np.uint8)
        return node.constant(middle, data_type).broadcast_to(blocks)
    zero_points = node.tensor(3)
    if zero_points.data_type.is_float or data_type.bits == 8:
        return reshaped(zero_points, blocks)
    columns, count = blocks
    packed = reshaped(zero_points, (columns, -(-count // 2), 1))
    if count % 2 == 0:
        return bits_as(packed, blocks, data_type)
    pairs = dml.join([dml.bit_and(packed, same(packed, 15)), dml.bit_shift_right(packed, same(packed, 4))], 2)
    return dml.slice(reshaped(pairs, (columns, count + 1)), (0, 0), blocks)


def _parts(node: OnnxNode, x: Tensor, filters: int) -> tuple[Tensor, Tensor, SlidingWindow, Shape]:
    """Return input and filters with two spatial dimensions, windows over them, and the output's shape."""
    weights = node.tensor(filters)
    if not 3 <= len(x.sizes) <= 4:
        raise node.rejection(f"1 or 2 spatial dimensions are supported, got shape {list(x.sizes)}")
    window = window_of(node, node.integers("kernel_shape") or weights.sizes[2:], x.sizes[2:])
    shape = (x.sizes[0], weights.sizes[0], *window.outputs(x.sizes[2:]))
    return with_dimensions(x, 4), with_dimensions(weights, 4), window.with_leading(4 - len(x.sizes)), shape


def _parameter(node: OnnxNode, index: int) -> Tensor | None:
    """Return a scale, zero point or bias as {1, 1, 1, 1} or, one for each channel of the output, {1, C, 1, 1}."""
    if not node.has(index):
        return None
    return reshaped(node.tensor(index), (1, math.prod(node.shape(index)), 1, 1))


def _float_scale(node: OnnxNode, index: int) -> Tensor:
    return converted(reshaped(node.tensor(index), (1, math.prod(node.shape(index)), 1, 1)), DataType.FLOAT32)


@operator("ConvInteger", since=10)
def convolution_integer(node: OnnxNode) -> OnnxValue:
    """Convolution of 8-bit integers less their zero points, in INT32."""
    x, filters, window, shape = _parts(node, node.tensor(0), 1)
    result = directml.convolution_integer(
        x,
        filters,
        _parameter(node, 2),
        _parameter(node, 3),
        **sliding(window),
        group_count=node.integer("group", 1),
    )
    return node.valued(result, shape)


@operator("QLinearConv", since=10)
@operator("QLinearConv", domain=MICROSOFT)
def qlinear_convolution(node: OnnxNode) -> OnnxValue:
    """Convolve quantized images to quantized ones; the bias is INT32, in units of the product."""
    pictures, last = node.tensor(0), node.flag("channels_last")
    rank = len(pictures.sizes)
    if last and rank > 2:
        pictures = transposed(pictures, (0, rank - 1, *range(1, rank - 1)))
    x, filters, window, shape = _parts(node, pictures, 3)
    result = directml.quantized_linear_convolution(
        x,
        _float_scale(node, 1),
        filters,
        _float_scale(node, 4),
        _float_scale(node, 6),
        _parameter(node, 2),
        _parameter(node, 5),
        _parameter(node, 8),
        _parameter(node, 7),
        **sliding(window),
        group_count=node.integer("group", 1),
        output_type=node.data_type(7),
    )
    result = reshaped(result, shape)
    return node.valued(transposed(result, (0, *range(2, rank), 1)) if last else result)
