"""Attention of ONNX, Attention and MultiHeadAttention of com.microsoft, and RotaryEmbedding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable
from dmlgpu.frontends.onnx.attention import (
    AttentionInputs,
    AttentionPositions,
    attend,
    bias_of,
    by_head,
    causal_bias,
    composed,
    everywhere,
    hidden_where,
    numbered,
    side_by_side,
    total,
    without_blind,
)
from dmlgpu.frontends.onnx.expressions import broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.registry import AS_FUNCTION, Result, operator
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


@operator("Attention", since=23)
def attention(node: OnnxNode) -> Sequence[Result]:
    """Attention with shared heads, a past and a mask. A query that sees no key has an output of 0.

    A query sees a key if the mask, causality, the windows and ``nonpad_kv_seqlen`` all allow it; a float mask hides by
    -inf. The softmax is computed in float32 for every ``softmax_precision``.
    """
    rank = len(node.shape(0))
    for index in range(3):
        node.check_rank(index, *((4,) if rank == 4 else (3,)))
    heads, shared = node.integer("q_num_heads"), node.integer("kv_num_heads")
    if rank == 4:
        heads, shared = node.shape(0)[1], node.shape(1)[1]
    if heads < 1 or shared < 1 or heads % shared:
        raise node.rejection(f"q_num_heads must be a multiple of kv_num_heads, got {heads} and {shared}")
    if node.has(4) != node.has(5) or (node.has(4) and node.has(6)):
        raise node.rejection("past_key and past_value must be given together, and without nonpad_kv_seqlen")
    query, key, value = (side_by_side(node.tensor(index)) if rank == 4 else node.tensor(index) for index in range(3))
    if query.sizes[2] % heads or key.sizes[2] % shared or value.sizes[2] % shared:
        hidden = [tensor.sizes[2] for tensor in (query, key, value)]
        raise node.rejection(f"hidden sizes must be multiples of {heads}, {shared} and {shared} heads, got {hidden}")
    for index in (4, 5):
        if node.has(index):
            node.check_rank(index, 4)
    past = (node.tensor(4), node.tensor(5)) if node.has(4) and not node.value(4).is_empty else None
    before = past[0].sizes[2] if past else 0
    keys = key.sizes[1] + before
    _check_masks(node, (query.sizes[0], heads, query.sizes[1], keys))
    added = _widened(node.tensor(3), keys, -math.inf) if node.has(3) and not node.value(3).is_bool else None
    bias = bias_of(_seen(node, query.sizes[1], keys, before), added, query.data_type)
    scale = node.number("scale", 1 / math.sqrt(query.sizes[2] // heads))
    operands = AttentionInputs(query, key, value, heads, shared, scale, bias, past)
    softcap, present = node.number("softcap"), node.wants(1) or node.wants(2)
    stage = node.integer("qk_matmul_output_mode") if node.wants(3) else None
    if stage not in (None, 0, 1, 2, 3):
        raise node.rejection(f"qk_matmul_output_mode must be between 0 and 3, got {stage}")
    if softcap or stage is not None:
        results = composed(operands, present=present, softcap=softcap, stage=stage)
    else:
        results = attend(operands, present=present)
    output, scores = by_head(results.output, heads), results.scores
    if bias is not None:
        output = without_blind(output, bias)
        scores = without_blind(scores, bias) if scores is not None and stage == 3 else scores
    return [output if rank == 4 else side_by_side(output), results.key, results.value, scores]


def _check_masks(node: OnnxNode, sizes: Shape) -> None:
    """Raise an error unless the mask and the lengths fit scores {batch, heads, rows, keys}."""
    if node.has(3):
        shape, data_type = node.shape(3), node.data_type(0)
        if not node.value(3).is_bool and node.data_type(3) is not data_type:
            got = node.data_type(3).name.lower()
            raise node.rejection(f"attn_mask must be of booleans, or of {data_type.name.lower()} as Q, got {got}")
        others = zip(shape[-2::-1], sizes[-2::-1], strict=False)
        if (
            not 1 <= len(shape) <= 4
            or shape[-1] > sizes[3]
            or not all(is_broadcastable(size, expected) for size, expected in others)
        ):
            raise node.rejection(f"attn_mask must broadcast to {list(sizes)}, got {list(shape)}")
    if node.has(6):
        if node.shape(6) != sizes[:1]:
            raise node.rejection(f"nonpad_kv_seqlen must have shape {list(sizes[:1])}, got {list(node.shape(6))}")
        node.check_range(6, 0, sizes[3], "nonpad_kv_seqlen")


def _seen(node: OnnxNode, rows: int, keys: int, past: int) -> Tensor | None:
    """Return a mask of the keys that each query sees by mask, lengths, causality and windows; None for all."""
    conditions = []
    if node.has(3) and node.value(3).is_bool:
        conditions.append(_widened(node.tensor(3), keys, 0))
    before: int | Tensor = past
    if node.has(6):
        lengths = dml.cast(reshaped(node.tensor(6), (node.shape(6)[0], 1, 1, 1)), DataType.INT32)
        before = lengths - rows
        sizes = (lengths.sizes[0], 1, 1, keys)
        conditions.append(dml.less_than(broadcast_to(numbered(node, keys, 3), sizes), broadcast_to(lengths, sizes)))
    positions = AttentionPositions.of(node, rows, keys, before)
    windows = [node.integer(f"{side}_window_size", -1) for side in ("left", "right")]
    if min(windows) < -1:
        raise node.rejection(f"left_window_size and right_window_size must be at least -1, got {windows}")
    left, right = windows
    if node.flag("is_causal"):
        conditions.append(positions.no_later())
    if right >= 0:
        conditions.append(positions.no_later(right))
    if left >= 0:
        conditions.append(positions.no_earlier(left))
    return everywhere(conditions) if conditions else None


def _widened(mask: Tensor, keys: int, filler: float) -> Tensor:
    """Return a mask with 4 dimensions, padded with a filler up to the number of keys."""
    mask = reshaped(mask, (*(1,) * (4 - len(mask.sizes)), *mask.sizes))
    missing = keys - mask.sizes[3]
    if missing <= 0:
        return mask
    return directml.padding1(mask, padding_value=filler, start_padding=(0,) * 4, end_padding=(0, 0, 0, missing))


@operator("Attention", domain=MICROSOFT)
def fused_attention(node: OnnxNode) -> Sequence[Result]:
    """Self-attention of one input, including its projections."""
    if node.flag("do_rotary"):
        raise node.rejection("attribute do_rotary is not supported")
    if node.flag("past_present_share_buffer") or node.has(6):
        raise node.rejection("attribute past_present_share_buffer is not supported")
    node.check_rank(0, 3)
    node.check_rank(1, 2)
    x, weights = node.tensor(0), node.tensor(1)
    batch, rows, width = x.sizes
    heads = node.integer("num_heads")
    sizes = node.integers("qkv_hidden_sizes", 3) or (weights.sizes[1] // 3,) * 3
    if heads < 1 or any(size % heads for size in sizes) or sum(sizes) != weights.sizes[1]:
        raise node.rejection(f"num_heads must divide qkv_hidden_sizes, got {heads} and {list(sizes)}")
    c = broadcast_to(node.tensor(2), (batch * rows, weights.sizes[1])) if node.has(2) else None
    projected = directml.gemm(reshaped(x, (batch * rows, width)), weights, c, beta=1.0 if c is not None else 0.0)
    query, key, value = dml.split(reshaped(projected, (batch, rows, sum(sizes))), 2, sizes)
    past = None
    if node.has(4) and not node.value(4).is_empty:
        keys, values = dml.split(node.tensor(4), 0, (1, 1))
        past = reshaped(keys, keys.sizes[1:]), reshaped(values, values.sizes[1:])
    before = past[0].sizes[2] if past else 0
    bias = _biases(node, mask=3, added=5, rows=rows, keys=rows + before, before=before, kind=x.data_type)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(sizes[0] // heads)
    results = attend(AttentionInputs(query, key, value, heads, heads, scale, bias, past), present=node.wants(1))
    if results.key is None or results.value is None:
        return [results.output]
    present = [reshaped(state, (1, *state.sizes)) for state in (results.key, results.value)]
    return [results.output, dml.join(present, 0)]


def _biases(
    node: OnnxNode, *, mask: int, added: int, rows: int, keys: int, before: int, kind: DataType
) -> Tensor | None:
    """Return the sum of the masks of keys and the bias of the model."""
    causal = causal_bias(node, rows, keys, before, kind) if node.flag("unidirectional") else None
    return total(_hidden(node, mask, rows, keys, kind), causal, node.optional_tensor(added))


def _hidden(node: OnnxNode, index: int, rows: int, keys: int, kind: DataType) -> Tensor | None:
    """Return a mask of keys, in any of com.microsoft's shapes, as a bias.

    {batch} has the ends of sequences, {2 * batch} then their starts, {3 * batch + 2} their lengths first;
    {batch, keys}, {batch, rows, keys} and {batch, 1, longest, longest} have 0 if a key is hidden.
    """
    if not node.has(index):
        return None
    mask = node.tensor(index)
    value = node.number("mask_filter_value", -10000.0)
    batch = node.shape(0)[0]
    if len(mask.sizes) == 1:
        return hidden_where(_behind_ends(node, mask, batch, keys), value, kind)
    if len(mask.sizes) == 4:
        longest = mask.sizes[3]
        if longest < keys:
            raise node.rejection(f"a mask of 4 dimensions must have {keys} keys, got {longest}")
        mask = dml.slice(mask, (0, 0, keys - rows, 0), (mask.sizes[0], mask.sizes[1], rows, keys))
    elif len(mask.sizes) == 3:
        mask = reshaped(mask, (mask.sizes[0], 1, *mask.sizes[1:]))
    else:
        mask = reshaped(mask, (mask.sizes[0], 1, 1, mask.sizes[1]))
    zero = node.constant([0], mask.data_type).broadcast_to(mask.sizes)
    return hidden_where(dml.less_than_or_equal(mask, zero), value, kind)


def _behind_ends(node: OnnxNode, mask: Tensor, batch: int, keys: int) -> Tensor:
    """Return a mask of the keys after the end of their sequence, or before its start if the mask has starts."""
    count = mask.sizes[0]
    if count not in (batch, 2 * batch, 3 * batch + 2):
        raise node.rejection(
            f"a mask of one dimension must have {batch}, {2 * batch} or {3 * batch + 2} numbers, got {count}"
        )
    sizes = (batch, 1, 1, keys)
    position = broadcast_to(numbered(node, keys, 3), sizes)
    end = broadcast_to(reshaped(dml.slice(mask, (0,), (batch,)), (batch, 1, 1, 1)), sizes)
    hidden = dml.greater_than_or_equal(position, end)
    if count == 2 * batch:
        start = broadcast_to(reshaped(dml.slice(mask, (batch,), (batch,)), (batch, 1, 1, 1)), sizes)
        hidden = dml.logical_or(hidden, dml.less_than(position, start))
    return hidden


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: OnnxNode) -> Sequence[Result]:
    """Attention of projected queries, keys and values, apart or packed, with a past.

    ``unidirectional`` hides key m from query i if m > past + i, except from the last query, as in onnxruntime's CPU
    provider. That is causality if there are as many new keys as queries.
    """
    for index, name in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if node.has(index):
            raise node.rejection(f"input {name} is not supported")
    if node.wants(3):
        raise node.rejection("output qk is not supported")
    heads = node.integer("num_heads")
    query, key, value = _parts(node, heads)
    if heads < 1 or query.sizes[2] % heads:
        raise node.rejection(f"num_heads must divide {query.sizes[2]}, got {heads}")
    query, key, value = _with_bias(node, 3, query, key, value)
    past = (node.tensor(6), node.tensor(7)) if node.has(6) and not node.value(6).is_empty else None
    if len(node.shape(0)) == 3 and node.has(1) and len(node.shape(1)) == 4:
        past, key, value = (node.tensor(1), node.tensor(2)), None, None
    before = past[0].sizes[2] if past else 0
    rows, keys = query.sizes[1], before + (key.sizes[1] if key is not None else 0)
    bias = _biases(node, mask=4, added=5, rows=rows, keys=keys, before=before, kind=query.data_type)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(query.sizes[2] // heads)
    operands = AttentionInputs(query, key, value, heads, heads, scale, bias, past)
    results = attend(operands, present=node.wants(1) or node.wants(2))
    return [results.output, results.key, results.value]


def _parts(node: OnnxNode, heads: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return queries, keys and values {batch, rows, heads * size}; None for keys and values of 4 dimensions."""
    node.check_rank(0, 3, 5)
    query = node.tensor(0)
    if heads < 1:
        raise node.rejection(f"num_heads must be at least 1, got {heads}")
    if len(query.sizes) == 5:
        query, key, value = _unpacked(query)
        return query, key, value
    if not node.has(1):
        raise node.rejection("input key must be given, unless query has 5 dimensions")
    node.check_rank(1, 3, 4, 5)
    key = node.tensor(1)
    if len(key.sizes) == 5:
        key, value = _unpacked(key)
        return query, key, value
    if len(key.sizes) == 4:
        return query, None, None
    return query, key, node.tensor(2)


def _unpacked(packed: Tensor) -> list[Tensor]:
    """Return the parts of {batch, rows, heads, parts, size} as {batch, rows, heads * size}."""
    batch, rows, heads, count, size = packed.sizes
    return [reshaped(part, (batch, rows, heads * size)) for part in dml.split(packed, 3, (1,) * count)]


def _with_bias(
    node: OnnxNode, index: int, query: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return queries, keys and values plus their shares of the bias."""
    if not node.has(index):
        return query, key, value
    bias = node.tensor(index)
    wide = query.sizes[2]
    shares = dml.split(bias, 0, (wide, wide, bias.sizes[0] - 2 * wide))
    parts = [
        None if part is None else dml.add(part, broadcast_to(share, part.sizes))
        for part, share in zip((query, key, value), shares, strict=True)
    ]
    assert parts[0] is not None
    return parts[0], parts[1], parts[2]


def rotated(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Return the pairs of elements of each head, rotated by angles.

    Args:
        x: {batch, rows, heads, size}.
        cos, sin: {batch or 1, rows, pairs}; elements of a head after the pairs are unchanged.
        interleaved: Whether pairs are adjacent elements; else the first half pairs with the second.
    """
    batch, rows, heads, size = x.sizes
    pairs = cos.sizes[2]
    turned, *rest = dml.split(x, 3, (2 * pairs, size - 2 * pairs)) if size > 2 * pairs else (x,)
    wide = (batch, rows, heads, pairs, 2) if interleaved else (batch, rows, heads, 2, pairs)
    axis = 4 if interleaved else 3
    halves = reshaped(turned, wide)
    exchanged = directml.slice1(
        halves,
        input_window_offsets=(0,) * 5,
        input_window_sizes=wide,
        input_window_strides=tuple(-1 if index == axis else 1 for index in range(5)),
    )
    signs = x.graph.constant(np.array([-1, 1], x.data_type.numpy).reshape(2, *(1,) * (4 - axis)), x.data_type)
    each = (*cos.sizes[:2], 1, pairs, 1) if interleaved else (*cos.sizes[:2], 1, 1, pairs)
    cos, sin = (broadcast_to(reshaped(angle, each), wide) for angle in (cos, sin))
    signed = dml.multiply(sin, broadcast_to(signs, wide))
    sums = dml.add(dml.multiply(halves, cos), dml.multiply(exchanged, signed))
    turned_pairs = reshaped(sums, (batch, rows, heads, 2 * pairs))
    return dml.join([turned_pairs, *rest], 3) if rest else turned_pairs


def angles(table: Tensor, positions: Tensor) -> Tensor:
    """Return the rows {batch, rows, pairs} of a table {positions, pairs} at positions {batch, rows}."""
    batch, rows = positions.sizes
    table, positions = reshaped(table, (1, *table.sizes)), reshaped(positions, (1, batch, rows))
    return directml.gather(table, positions, axis=1, index_dimensions=2)


def consecutive_angles(table: Tensor, first: Tensor, rows: int) -> Tensor:
    """Return as many rows {batch, rows, pairs} of a table {positions, pairs} from a first position {batch} on."""
    (positions, pairs), (batch,) = table.sizes, first.sizes
    # Row i of a sequence is i rows after its first one: a view of the table from there on.
    following = table.reinterpret((batch, rows, positions - rows + 1, pairs), (0, pairs, pairs, 1))
    taken = directml.gather_nd1(
        following,
        broadcast_to(reshaped(first, (1, batch, 1, 1)), (1, batch, rows, 1)),
        input_dimension_count=4,
        indices_dimension_count=3,
        batch_dimension_count=2,
    )
    return reshaped(taken, (batch, rows, pairs))


@operator("RotaryEmbedding", since=23)
def rotary_embedding_as_function(node: OnnxNode) -> Sequence[Result]:
    """Use ONNX's own function body after checking positions, since its Gather would accept negative ones."""
    if node.has(3):
        node.check_range(3, 0, node.shape(1)[0] - 1, "position_ids")
    return AS_FUNCTION


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: OnnxNode) -> OnnxValue:
    """Rotate pairs of elements by angles that depend on the position; one position is that of the first row."""
    if node.flag("is_packed_batching"):
        raise node.rejection("attribute is_packed_batching is not supported")
    node.check_rank(0, 3, 4)
    node.check_rank(2, 2)
    x, shape = node.tensor(0), node.shape(0)
    heads, rotary_size = node.integer("num_heads"), node.integer("rotary_embedding_dim")
    pairs = node.shape(2)[1]
    if len(shape) == 4:
        x = transposed(x, (0, 2, 1, 3))
    elif rotary_size or heads:
        if heads < 1 or shape[2] % heads:
            raise node.rejection(f"num_heads must divide {shape[2]}, got {heads}")
        x = reshaped(x, (*shape[:2], heads, shape[2] // heads))
    else:
        x = reshaped(x, (*shape[:2], shape[2] // (2 * pairs), 2 * pairs))
    batch, rows = x.sizes[:2]
    last = node.shape(2)[0] - (1 if node.shape(1) == (batch, rows) else rows)
    node.check_range(1, 0, last, "position_ids")
    positions = dml.cast(node.tensor(1), DataType.INT32)
    if positions.sizes == (batch, rows):
        cos, sin = (angles(node.tensor(index), positions) for index in (2, 3))
    else:
        first = reshaped(positions, (1,))
        cos, sin = (consecutive_angles(node.tensor(index), first, rows) for index in (2, 3))
    result = rotated(x, cos, sin, interleaved=node.flag("interleaved"))
    if len(shape) == 4:
        return node.valued(transposed(result, (0, 2, 1, 3)))
    return node.valued(result, shape)
