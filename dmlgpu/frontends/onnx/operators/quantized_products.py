"""Products of quantised matrices, exact in 32 bits before they are scaled."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType, MatrixTransform, ReduceFunction
from dmlgpu.frontends.onnx.constants import same
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.operators.casting import converted
from dmlgpu.frontends.onnx.operators.quantization import (
    Quantization,
    block_sizes,
    dequantized,
    difference,
    quantized,
)
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

FLOAT32, INT32, UINT8 = DataType.FLOAT32, DataType.INT32, DataType.UINT8


class Factors:
    """Two stacks of matrices of 8-bit integers as four-dimensional tensors of as many matrices, and the result's shape.

    Attributes:
        a, b: {batch, channel, M, K} and {batch, channel, K, N}.
        shape: of the product, as NumPy's matmul has it.
        stack: sizes of the stack, as many as the inputs have.
    """

    def __init__(self, node: Node, a: Expression, left: Shape, b: Expression, right: Shape):
        if not left or not right:
            raise node.refusal(f"factors must have at least 1 dimension, got {list(left)} and {list(right)}")
        rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
        first = left if len(left) > 1 else (1, *left)
        second = right if len(right) > 1 else (*right, 1)
        if first[-1] != second[-2]:
            raise node.refusal(f"inner sizes must be equal, got {list(first)} and {list(second)}")
        try:
            self.stack = np.broadcast_shapes(first[:-2], second[:-2])
        except ValueError:
            raise node.refusal(f"stacks must broadcast, got {list(first)} and {list(second)}") from None
        self.shape = (*self.stack, *rows, *columns)
        self.a = self._placed(reshaped(a, first))
        self.b = self._placed(reshaped(b, second))

    @classmethod
    def of(cls, node: Node, left: int, right: int) -> Factors:
        """Return the factors that two inputs of a node are."""
        return cls(node, node.tensor(left), node.shape(left), node.tensor(right), node.shape(right))

    def _placed(self, found: Expression) -> Expression:
        """Return a stack with two dimensions before those of the matrices."""
        found = broadcast_to(found, (*self.stack, *found.sizes[-2:]))
        if len(self.stack) <= 2:
            return broadcast_to(found, (*(1,) * (2 - len(self.stack)), *found.sizes))
        return reshaped(found, (1, math.prod(self.stack), *found.sizes[-2:]))

    def parameter(self, node: Node, number: int, *, of_rows: bool) -> Expression | None:
        """Return a scale or zero point: one, or one for each row of A or column of B; None for others or where absent.

        Those of a matrix of their own each are left to ``spread``.
        """
        if not node.has(number):
            return None
        given, count = node.shape(number), self.a.sizes[-2] if of_rows else self.b.sizes[-1]
        if math.prod(given) not in (1, count) or (len(given) > 1 and math.prod(given) != 1):
            return None
        size = math.prod(given)
        return reshaped(node.tensor(number), (1, 1, size, 1) if of_rows else (1, 1, 1, size))

    def spread(self, node: Node, number: int, *, of_rows: bool) -> Expression:
        """Return a scale or zero point that broadcasts with the product in four dimensions."""
        plain = self.parameter(node, number, of_rows=of_rows)
        if plain is not None:
            return plain
        given = node.shape(number)
        wanted = (*self.stack, self.a.sizes[-2], 1) if of_rows else (*self.stack, 1, self.b.sizes[-1])
        if len(given) > len(wanted) or any(
            has not in (1, want) for has, want in zip(reversed(given), reversed(wanted), strict=False)
        ):
            raise node.refusal(f"input {number} must broadcast to {list(wanted)}, got {list(given)}")
        return self._placed(broadcast_to(node.tensor(number), wanted))

    def is_plain(self, node: Node, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
        """Return whether all of these inputs that are there are one element, or one for each row or column."""
        return all(
            not node.has(number) or self.parameter(node, number, of_rows=of_rows) is not None
            for numbers, of_rows in ((rows, True), (columns, False))
            for number in numbers
        )

    def sums(self, node: Node, a_zero: int, b_zero: int) -> Expression:
        """Return (A - zero point) @ (B - zero point) in INT32, which wraps."""
        if self.is_plain(node, (a_zero,), (b_zero,)):
            return functions.matrix_multiply_integer(
                self.a,
                self.b,
                self.parameter(node, a_zero, of_rows=True),
                self.parameter(node, b_zero, of_rows=False),
            )
        found = functions.matrix_multiply_integer(self.a, self.b)
        inner, sizes = self.a.sizes[-1], found.sizes
        left = converted(self.spread(node, a_zero, of_rows=True), INT32) if node.has(a_zero) else None
        right = converted(self.spread(node, b_zero, of_rows=False), INT32) if node.has(b_zero) else None
        if right is not None:
            rows = dml.reduce(converted(self.a, INT32), ReduceFunction.SUM, axes=(3,))
            if left is not None:  # those of A less their zero points
                rows = dml.subtract(rows, broadcast_to(left, rows.sizes) * inner)
            found = dml.subtract(found, dml.multiply(broadcast_to(rows, sizes), broadcast_to(right, sizes)))
        if left is not None:
            columns = dml.reduce(converted(self.b, INT32), ReduceFunction.SUM, axes=(2,))
            found = dml.subtract(found, dml.multiply(broadcast_to(columns, sizes), broadcast_to(left, sizes)))
        return found


@operator("MatMulInteger", since=10)
def matmul_integer(node: Node) -> Value:
    """Product of 8-bit integers less their zero points, in INT32."""
    if node.data_type(0).bits != 8 or node.data_type(1).bits != 8:
        raise node.refusal(f"factors must be of 8 bits, got {node.data_type(0).name} and {node.data_type(1).name}")
    factors = Factors.of(node, 0, 1)
    return node.valued(factors.sums(node, 2, 3), factors.shape)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(node: Node) -> Value:
    """Product of quantised matrices, quantised."""
    factors = Factors.of(node, 0, 3)
    if factors.is_plain(node, (1, 2, 6, 7), (4, 5)):
        scales = [
            converted(one, FLOAT32)
            for one in (
                factors.parameter(node, 1, of_rows=True),
                factors.parameter(node, 4, of_rows=False),
                factors.parameter(node, 6, of_rows=True),
            )
            if one is not None
        ]
        found = functions.quantized_linear_matrix_multiply(
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
        return node.valued(found, factors.shape)
    found = converted(factors.sums(node, 2, 5), FLOAT32)
    rows, columns, whole = (
        broadcast_to(converted(factors.spread(node, number, of_rows=of_rows), FLOAT32), found.sizes)
        for number, of_rows in ((1, True), (4, False), (6, True))
    )
    found = dml.multiply(found, dml.multiply(rows, columns))
    zero = broadcast_to(factors.spread(node, 7, of_rows=True), found.sizes)
    by = Quantization(whole, zero, (1,) * len(found.sizes))
    return node.valued(quantized(found, by, zero.data_type), factors.shape)


@operator("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(node: Node) -> Value:
    """Product of 8-bit integers, scaled to floats; inputs are A, B, their scales, their zero points, and a bias."""
    node.check_rank(2, 0, 1)
    factors = Factors.of(node, 0, 1)
    found = _scaled(node, factors, factors.sums(node, 4, 5), 2, 3)
    return node.valued(_with_bias(node, found, factors.shape, 6), factors.shape)


def _scaled(node: Node, factors: Factors, sums: Expression, *scales: int) -> Expression:
    """Return sums times the scales of A and B, of the scales' type."""
    kind = node.data_type(scales[0])
    rows, columns = (
        broadcast_to(converted(factors.spread(node, number, of_rows=number == scales[0]), FLOAT32), sums.sizes)
        for number in scales
    )
    return converted(dml.multiply(converted(sums, FLOAT32), dml.multiply(rows, columns)), kind)


def _with_bias(node: Node, found: Expression, shape: Shape, number: int) -> Expression:
    if not node.has(number):
        return found
    found = reshaped(found, shape)
    return dml.add(found, broadcast_to(node.tensor(number), found.sizes))


@operator("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(node: Node) -> Value:
    """Quantise A by its range and multiply it with B: inputs are A, B, B's scale and zero point, and a bias."""
    factors = Factors.of(node, 0, 1)
    a = functions.dynamic_quantize_linear(factors.a)
    factors.a = a.output
    zero = node.valued(reshaped(a.output_zero_point, (1,)), ())
    sums = factors.sums(node.replaced([node.inputs[3] if node.has(3) else None, zero]), 1, 0)
    scale = reshaped(a.output_scale, (1,) * len(factors.a.sizes))
    columns = broadcast_to(factors.spread(node, 2, of_rows=False), sums.sizes)
    found = dml.multiply(dml.cast(sums, FLOAT32), dml.multiply(broadcast_to(scale, sums.sizes), columns))
    return node.valued(_with_bias(node, found, factors.shape, 4), factors.shape)


@operator("QGemm", domain="com.microsoft")
def qgemm(node: Node) -> Value:
    """alpha * A' * B' + C of quantised matrices, C of INT32 in units of the product.

    Floats without a scale and zero point of the output, either of which alone is refused.
    """
    if node.has(7) != node.has(8):
        raise node.refusal("y_scale and y_zero_point must be given together")
    for number in (0, 3):
        node.check_rank(number, 2)
    a, b = (
        transposed(node.tensor(number), (1, 0)) if node.flag(name) else node.tensor(number)
        for number, name in ((0, "transA"), (3, "transB"))
    )
    factors = Factors(node, a, a.sizes, b, b.sizes)
    alpha = node.number("alpha", 1.0)
    sums = factors.sums(node, 2, 5)
    if node.has(6):
        sums = dml.add(sums, broadcast_to(node.tensor(6), sums.sizes))
    found = _scaled(node, factors, sums, 1, 4)
    found = found if alpha == 1 else found * alpha
    if node.has(7):
        by = Quantization(
            broadcast_to(reshaped(node.tensor(7), (1,) * 4), found.sizes),
            broadcast_to(reshaped(node.tensor(8), (1,) * 4), found.sizes),
            (1,) * 4,
        )
        found = quantized(found, by, node.data_type(8))
    return node.valued(found, factors.shape)


@operator("MatMulNBits", domain="com.microsoft")
def matmul_bits(node: Node) -> Value:
    """Product with a matrix of {N, K} of 4 or 8 bits, whose scales and zero points are those of blocks along K."""
    if node.has(4):
        raise node.refusal("an order of groups (g_idx) is not supported")
    bits, block = block_sizes(node, 0)
    inner, columns = node.integer("K"), node.integer("N")
    blocks = -(-inner // block)
    shape, scale = node.shape(0), reshaped(node.tensor(2), (columns, blocks))
    if not shape or shape[-1] != inner or math.prod(node.shape(1)) * 8 != columns * blocks * block * bits:
        raise node.refusal(f"inputs must be of {columns} columns of {inner}, got {list(shape)}, {list(node.shape(1))}")
    b = node.tensor(1)
    b = (b if b.desc.is_packed else dml.identity(b)).reinterpret(
        (columns, blocks * block), None, DataType.UINT4 if bits == 4 else UINT8
    )
    by = Quantization(scale, _zero_points(node, b.data_type, (columns, blocks)), (1, block))
    exact = by.zero_point is not None and by.zero_point.data_type is b.data_type
    weights = dequantized(b, by) if exact else difference(b, by)
    if blocks * block != inner:
        weights = dml.slice(weights, (0, 0), (columns, inner))
    rows = reshaped(node.tensor(0), (math.prod(shape[:-1]), inner))
    weights = converted(weights, rows.data_type)
    found = functions.gemm(rows, weights, trans_b=MatrixTransform.TRANSPOSE)
    return node.valued(_with_bias(node, found, (*shape[:-1], columns), 5), (*shape[:-1], columns))


def _zero_points(node: Node, wanted: DataType, blocks: Shape) -> Expression:
    """Return zero points of blocks, of the wanted type or of another that holds the numbers."""
    if not node.has(3):
        middle = np.full((1, 1), 1 << (wanted.bits - 1), np.uint8)
        return node.constant(middle, wanted).broadcast_to(blocks)
    given = node.tensor(3)
    if given.data_type.is_float or wanted.bits == 8:
        return reshaped(given, blocks)
    columns, count = blocks
    packed = reshaped(given, (columns, -(-count // 2), 1))
    if count % 2 == 0:
        return (packed if packed.desc.is_packed else dml.identity(packed)).reinterpret(blocks, None, wanted)
    pairs = dml.join([dml.bit_and(packed, same(packed, 15)), dml.bit_shift_right(packed, same(packed, 4))], 2)
    return dml.slice(reshaped(pairs, (columns, count + 1)), (0, 0), blocks)
