"""Mixtures of experts: rows grouped by expert, and products of groups with the quantized matrices of their experts.

These operators are dmlgpu's own, for networks of GGUF files. A group has the rows of one expert, so that a product
reads each matrix once for many rows, and only the matrices of experts that some row selects.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, MatrixTransform, ReduceFunction
from dmlgpu.frontends.onnx.expressions import bits_as, broadcast_to, cast, reshaped, same, sequence, spread
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import DMLGPU
from dmlgpu.frontends.onnx.operators.elementwise import converted
from dmlgpu.frontends.onnx.operators.indexing import gathered
from dmlgpu.frontends.onnx.operators.quantization import Quantization, block_sizes, dequantized, difference
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

INT32 = DataType.INT32

GROUP_ROWS = 16
"""Maximum rows of a group: the most for which products read the words of quantized columns once."""


@operator("GroupByExpert", domain=DMLGPU)
def group_by_expert(node: OnnxNode) -> tuple[OnnxValue, ...]:
    """Group the rows that experts compute: indices of experts {rows.., k} become groups of rows of one expert.

    Outputs:
        tokens: Row of each place of a group, {groups, rows of a group}; 0 for unused places.
        experts: Expert of each group, {groups}.
        places: Place of each of the indices, {rows.., k}, counted over all groups.

    Few rows make groups of one row, of which no place is unused.
    """
    shape, experts = node.shape(0), node.integer("experts")
    selected, pairs = shape[-1], math.prod(shape)
    indices = reshaped(cast(node.tensor(0), INT32), (pairs, 1))
    most = pairs // GROUP_ROWS + experts
    owners = node.constant_of((pairs, 1), INT32, _owners, pairs, selected)
    if pairs <= most:
        return (
            node.valued(owners, (pairs, 1)),
            node.valued(reshaped(indices, (pairs,)), (pairs,)),
            node.valued(reshaped(node.constant_of((pairs, 1), INT32, _owners, pairs, 1), shape), shape),
        )
    numbers = sequence(indices, (1, experts), INT32)
    chosen = cast(spread(dml.equals, indices, numbers), INT32)
    earlier = directml.cumulative_summation(chosen, axis=0, axis_direction="increasing", has_exclusive_sum=True)
    counts = dml.reduce(chosen, ReduceFunction.SUM, axes=(0,))
    padded = counts + (GROUP_ROWS - 1)
    needed = directml.element_wise_divide(padded, same(padded, GROUP_ROWS))
    ends = directml.cumulative_summation(needed, axis=1, axis_direction="increasing", has_exclusive_sum=False)
    before = dml.add(earlier, broadcast_to(dml.subtract(ends, needed) * GROUP_ROWS, earlier.sizes))
    places = dml.reduce(dml.multiply(before, chosen), ReduceFunction.SUM, axes=(1,))
    groups = sequence(indices, (most, 1), INT32)
    finished = cast(spread(dml.greater_than_or_equal, groups, ends), INT32)
    expert = dml.clip(dml.reduce(finished, ReduceFunction.SUM, axes=(1,)), 0, experts - 1)
    empty = same(sequence(indices, (most * GROUP_ROWS, 1), INT32), 0)
    tokens = directml.scatter_elements(dml.identity(empty), places, owners, axis=0)
    return (
        node.valued(reshaped(tokens, (most, GROUP_ROWS)), (most, GROUP_ROWS)),
        node.valued(reshaped(expert, (most,)), (most,)),
        node.valued(reshaped(places, shape), shape),
    )


def _owners(pairs: int, selected: int) -> NDArray[np.int32]:
    """Return the row of each of the indices."""
    return np.arange(pairs, dtype=np.int32)[:, None] // selected


@operator("ExpertMatMulNBits", domain=DMLGPU)
def expert_matmul_bits(node: OnnxNode) -> OnnxValue:
    """Multiply groups of rows {groups, rows, K} by matrices of 4 or 8 bits: group g by that of expert experts[g].

    Inputs are rows, experts {groups}, codes in words {experts, words}, scales {experts, N, blocks} and float zero
    points like scales, which default to half the range of codes. Gathers of words, unlike those of bytes, are not
    fused into the dequantization, so that the product reads the words where they are.

    If the attribute ``values`` is "e2m1", codes of 4 bits less 8 are the positions of twice the floats of 4 bits (OCP
    Microscaling): 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
    """
    bits, block = block_sizes(node, 0)
    (groups, rows, inner), columns = node.shape(0), node.shape(3)[1]
    blocks, kind = inner // block, DataType.UINT4 if bits == 4 else DataType.UINT8
    codes = bits_as(_of_groups(node, 2), (1, groups, columns, inner), kind)
    scale = reshaped(_of_groups(node, 3), (1, groups, columns, blocks))
    if node.text("values") == "e2m1":
        by = Quantization(
            node.constant(np.ones((1,) * 4, scale.data_type.numpy)), _middle(node, codes, bits), codes.sizes
        )
        blocked = (1, groups, columns, blocks, block)
        positions = reshaped(dequantized(codes, by), blocked)
        # 5, 6 and 7 become 6, 8 and 12. Kernels recognize these operators, in this order.
        low, high = (directml.element_wise_clip1(positions, min=-limit, max=limit) for limit in (4.0, 6.0))
        doubled = dml.subtract(dml.subtract(positions * 4.0, low), high * 2.0)
        scales = reshaped(scale, (1, groups, columns, blocks, 1)).broadcast_to(blocked)
        weights = reshaped(dml.multiply(doubled, scales), codes.sizes)
    elif node.has(4):
        zero_point = reshaped(_of_groups(node, 4), (1, groups, columns, blocks, 1))
        by = Quantization(reshaped(scale, zero_point.sizes), zero_point, (1, 1, 1, 1, block))
        parts = difference(reshaped(codes, (1, groups, columns, blocks, block)), by)
        weights = reshaped(parts, codes.sizes)
    else:
        middle = _middle(node, codes, bits).broadcast_to(scale.sizes)
        weights = dequantized(codes, Quantization(scale, middle, (1, 1, 1, block)))
    x = reshaped(node.tensor(0), (1, groups, rows, inner))
    product = directml.gemm(x, converted(weights, x.data_type), trans_b=MatrixTransform.TRANSPOSE)
    return node.valued(reshaped(product, (groups, rows, columns)), (groups, rows, columns))


def _middle(node: OnnxNode, codes: Tensor, bits: int) -> Tensor:
    """Return half the range of codes as a tensor of one element."""
    return node.constant(np.full((1, 1, 1, 1), 1 << (bits - 1), np.uint8), codes.data_type)


def _of_groups(node: OnnxNode, index: int) -> Tensor:
    """Return entries of an input {experts, ..} for the expert of each group."""
    return node.expression(gathered(node, index, 0))
