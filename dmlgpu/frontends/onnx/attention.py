"""Multi-head attention: by MULTIHEAD_ATTENTION1, or as products around a softmax if that operator lacks something."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType, IsInfinityMode, MatrixTransform, ReduceFunction, float_limits
from dmlgpu.frontends.onnx.expressions import broadcast_shapes, broadcast_to, reshaped, transposed, unowned
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


@dataclass(frozen=True)
class Results:
    """Results of attention.

    Attributes:
        output: {batch, rows, heads * size}.
        key, value: All keys and values, {batch, heads, rows, size}; None if they are not requested.
        scores: The requested stage of the scores, {batch, heads, rows, keys}; None for none.
    """

    output: Tensor
    key: Tensor | None = None
    value: Tensor | None = None
    scores: Tensor | None = None


def by_head(x: Tensor, heads: int) -> Tensor:
    """Return {batch, rows, heads * size} as {batch, heads, rows, size}, by strides."""
    batch, rows, hidden = x.sizes
    return transposed(reshaped(x, (batch, rows, heads, hidden // heads)), (0, 2, 1, 3))


def side_by_side(x: Tensor) -> Tensor:
    """Return {batch, heads, rows, size} as {batch, rows, heads * size}."""
    batch, heads, rows, size = x.sizes
    return reshaped(transposed(x, (0, 2, 1, 3)), (batch, rows, heads * size))


@dataclass(frozen=True)
class AttentionInputs:
    """Inputs of attention: softmax(query x key^T * scale + bias) x value per head.

    Attributes:
        query: {batch, rows, heads * size}.
        key, value: {batch, rows, shared * size}; None if the past has all of them.
        heads, shared: Number of heads of queries, and of keys and values.
        scale: Scale of the products.
        bias: Added to them, {batch or 1, heads or 1, rows or 1, all keys}, of the type of queries.
        past: Earlier keys and values, {batch, shared, rows, size}.
    """

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    heads: int
    shared: int
    scale: float
    bias: Tensor | None = None
    past: tuple[Tensor, Tensor] | None = None


def attend(inputs: AttentionInputs, *, lengths: Tensor | None = None, present: bool = False) -> Results:
    """Compute attention by MULTIHEAD_ATTENTION1.

    Args:
        inputs: The tensors.
        lengths: Number of valid rows of the past, INT32 {batch}: the present is then a cache of the size of the past,
            new rows follow the valid ones, and a query sees the keys up to its own.
        present: Whether to return all keys and values; required with ``lengths``.
    """
    query, key, value, past = inputs.query, inputs.key, inputs.value, inputs.past
    batch, rows, _ = query.sizes
    keys = (past[0].sizes[2] if past else 0) + (key.sizes[1] if key is not None and lengths is None else 0)
    bias = None if inputs.bias is None else broadcast_to(unowned(inputs.bias), (batch, inputs.heads, rows, keys))
    result = directml.multihead_attention1(
        unowned(query),
        None if key is None else unowned(key),
        None if value is None else unowned(value),
        relative_position_bias=bias,
        past_key=unowned(past[0]) if past else None,
        past_value=unowned(past[1]) if past else None,
        past_sequence_lengths=lengths,
        scale=inputs.scale,
        mask_filter_value=-10000.0,
        query_head_count=inputs.heads,
        key_value_head_count=inputs.shared,
        output_present_key=present,
        output_present_value=present,
    )
    if not present:
        return Results(result.output)
    return Results(result.output, result.output_present_key, result.output_present_value)


def composed(
    inputs: AttentionInputs,
    *,
    present: bool = False,
    softcap: float = 0.0,
    sink: Tensor | None = None,
    stage: int | None = None,
) -> Results:
    """Compute attention with features that MULTIHEAD_ATTENTION1 lacks, from products and a softmax; scores are stored.

    Args:
        inputs: The tensors.
        present: Whether to return all keys and values.
        softcap: Scores become softcap * tanh(score / softcap) before the bias; 0 disables it.
        sink: One number per head, {1, heads, 1, 1}, that takes part in the softmax and has no value.
        stage: Scores to return: 0 the scaled products, 1 after the softcap, 2 after the bias, 3 after the softmax; None
            for none.
    """
    heads = inputs.heads
    key, value = _all_rows(inputs, inputs.key, 0), _all_rows(inputs, inputs.value, 1)
    scores = directml.gemm(
        by_head(inputs.query, heads), repeated(key, heads), trans_b=MatrixTransform.TRANSPOSE, alpha=inputs.scale
    )
    stages = [scores]
    if softcap:
        scores = dml.activation_tanh(scores * (1 / softcap)) * softcap
    stages.append(scores)
    if inputs.bias is not None:
        scores = dml.add(scores, broadcast_to(inputs.bias, scores.sizes))
    stages.append(scores)
    sizes = scores.sizes
    if sink is not None:
        scores = dml.join([scores, dml.identity(broadcast_to(sink, (*sizes[:3], 1)))], 3)
    weights = dml.activation_softmax(scores, axes=(3,))
    if sink is not None:
        weights = dml.slice(weights, (0, 0, 0, 0), sizes)
    stages.append(weights)
    output = side_by_side(directml.gemm(weights, repeated(value, heads)))
    scores_of_stage = None if stage is None else stages[stage]
    return Results(output, key if present else None, value if present else None, scores_of_stage)


def _all_rows(inputs: AttentionInputs, new: Tensor | None, which: int) -> Tensor:
    """Return keys or values, past and new, {batch, shared, rows, size}."""
    parts = [] if inputs.past is None else [inputs.past[which]]
    parts += [] if new is None else [by_head(new, inputs.shared)]
    return parts[0] if len(parts) == 1 else dml.join(parts, 2)


def repeated(x: Tensor, heads: int) -> Tensor:
    """Return {batch, shared, rows, size} with each head as often as heads of queries share it."""
    batch, shared, rows, size = x.sizes
    if shared == heads:
        return x
    first, second, *rest = x.desc.element_strides
    group = heads // shared
    wide = x.reinterpret((batch, shared, group, rows, size), (first, second, 0, *rest))
    return reshaped(wide, (batch, heads, rows, size))


def lowest(data_type: DataType) -> float:
    """Return the most negative finite number of a type, which masks a key."""
    return float(float_limits(data_type).min)


def numbered(node: OnnxNode, count: int, axis: int) -> Tensor:
    """Return 0, 1, 2 ... along one of 4 axes, INT32."""
    sizes = [1, 1, 1, 1]
    sizes[axis] = count
    return dml.fill_value_sequence(node.builder, sizes, DataType.INT32, 0, 1)


def hidden_where(condition: Tensor, value: float, data_type: DataType) -> Tensor:
    """Return a bias: a value under a 4-D mask, 0 elsewhere."""
    graph = condition.graph
    numbers = [graph.constant([number], data_type).broadcast_to(condition.sizes) for number in (value, 0)]
    return dml.if_(condition, *numbers)


def bias_of(seen: Tensor | None, added: Tensor | None, data_type: DataType) -> Tensor | None:
    """Return a bias that is -inf for masked keys, below any finite score.

    Args:
        seen: 1 where a query sees a key, 4-D; None if it sees all.
        added: Added to the scores of visible keys, 4-D; None for nothing.
        data_type: Type of the bias.
    """
    if seen is None or added is None:
        return added if seen is None else hidden_where(dml.logical_not(seen), -math.inf, data_type)
    sizes = broadcast_shapes(seen.sizes, added.sizes)
    hidden = seen.graph.constant([-math.inf], data_type).broadcast_to(sizes)
    return dml.if_(broadcast_to(seen, sizes), broadcast_to(added, sizes), hidden)


def without_blind(x: Tensor, bias: Tensor) -> Tensor:
    """Return {batch, heads, rows, size} with 0 in the rows of fully masked queries."""
    blind = dml.is_infinity(dml.reduce(bias, ReduceFunction.MAX, axes=(3,)), IsInfinityMode.NEGATIVE)
    zero = x.graph.constant([0], x.data_type).broadcast_to(x.sizes)
    return dml.if_(broadcast_to(blind, x.sizes), zero, x)


@dataclass(frozen=True)
class AttentionPositions:
    """Positions of queries and keys, {1, 1, rows, 1} and {1, 1, 1, keys}, for masks.

    Attributes:
        query: INT32, or one per sequence {batch, 1, rows, 1}.
        key: INT32.
    """

    query: Tensor
    key: Tensor

    @classmethod
    def of(cls, node: OnnxNode, rows: int, keys: int, before: int | Tensor) -> AttentionPositions:
        """Return the positions after a number of earlier keys, which may differ between sequences: {batch, 1, 1, 1}."""
        row = numbered(node, rows, 2)
        if isinstance(before, Tensor):
            sizes = (before.sizes[0], 1, rows, 1)
            row = dml.add(broadcast_to(row, sizes), broadcast_to(before, sizes))
        elif before:
            row = row + before
        return cls(row, numbered(node, keys, 3))

    def no_later(self, more: int = 0) -> Tensor:
        """Return a mask (UINT8) of the keys at most this many positions after the query."""
        return self._compared(self.query + more if more else self.query, dml.greater_than_or_equal)

    def no_earlier(self, less: int) -> Tensor:
        """Return a mask (UINT8) of the keys at most this many positions before the query."""
        return self._compared(self.query - less, dml.less_than_or_equal)

    def _compared(self, bound: Tensor, compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        sizes = broadcast_shapes(bound.sizes, self.key.sizes)
        return compare(broadcast_to(bound, sizes), broadcast_to(self.key, sizes))


def causal_bias(node: OnnxNode, rows: int, keys: int, before: int, data_type: DataType) -> Tensor | None:
    """Return a bias {1, 1, rows, keys} that masks the keys after a query; None if there are none.

    The last query sees all keys, as in onnxruntime's CPU provider, which matters if there are more keys than positions.

    Args:
        node: Node whose graph is used.
        rows, keys: Number of queries and keys.
        before: Number of keys before that of the first query.
        data_type: Type of the bias.
    """
    if before >= keys - 1:
        return None
    places = AttentionPositions.of(node, rows, keys, before)
    if before + rows < keys:
        numbers = [*range(before, before + rows - 1), keys - 1]
        places = replace(places, query=reshaped(node.constant(numbers, DataType.INT32), (1, 1, rows, 1)))
    return hidden_where(dml.logical_not(places.no_later()), lowest(data_type), data_type)


def everywhere(conditions: Sequence[Tensor]) -> Tensor:
    """Return the conjunction of masks, broadcast."""
    sizes = broadcast_shapes(*(condition.sizes for condition in conditions))
    result, *rest = conditions
    for condition in rest:
        result = dml.logical_and(broadcast_to(result, sizes), broadcast_to(condition, sizes))
    return result


def total(*biases: Tensor | None) -> Tensor | None:
    """Return the broadcast sum of 4-D biases; None for none."""
    present = [bias for bias in biases if bias is not None]
    if not present:
        return None
    sizes = broadcast_shapes(*(bias.sizes for bias in present))
    result, *rest = present
    for bias in rest:
        result = dml.add(broadcast_to(result, sizes), broadcast_to(bias, sizes))
    return result
