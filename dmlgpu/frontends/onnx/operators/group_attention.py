"""GroupQueryAttention of com.microsoft: heads that share keys and values, which are a cache."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.attention import (
    AttentionInputs,
    AttentionPositions,
    attend,
    bias_of,
    by_head,
    composed,
    everywhere,
    side_by_side,
    without_blind,
)
from dmlgpu.frontends.onnx.expressions import broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import COUNTS_PAST, MICROSOFT
from dmlgpu.frontends.onnx.operators.attention import angles, consecutive_angles, rotated
from dmlgpu.frontends.onnx.operators.elementwise import converted
from dmlgpu.frontends.onnx.operators.quantization import Quantization, dequantized, quantized, symmetric_scale
from dmlgpu.frontends.onnx.registry import Steps, operator
from dmlgpu.frontends.onnx.symbolic import as_integer
from dmlgpu.frontends.onnx.values import Bounds, NeedsDecision
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_SCALES = {12: "k_scale", 13: "v_scale"}
_INT8 = DataType.INT8


@dataclass(frozen=True)
class _Sizes:
    """Heads of queries, heads of keys and values, size of a head; sequences, new rows, rows of the cache."""

    heads: int
    shared: int
    size: int
    batch: int
    rows: int
    keys: int


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: OnnxNode) -> Steps:
    """Attention with a cache: new keys and values follow the valid past ones.

    The cache has as many rows as the past, or as all keys if they are more. The number of valid rows stays on the
    device; rows of the cache after these are those of the past, or 0. A query that sees no key, because a bias of -inf
    hides them all or the window is 0, has an output of 0, as in ONNX Runtime's CPU provider. If the caches have another
    floating-point type than the queries, which ONNX Runtime rejects, attention is computed in that type.

    INT8 caches may have scales per head and row, which ONNX Runtime has not: inputs k_scale and v_scale FLOAT {batch,
    heads, rows, blocks}, and two more outputs, the scales afterwards. Each block of a new row, the whole row if there
    is one, is scaled by 127 / max|x|, rounded and stored; attention reads the stored values.
    """
    _check_supported(node)
    sizes = yield from _sizes(node)
    node.check_range(5, 0, sizes.keys - 1, "seqlens_k")
    lengths = dml.cast(reshaped(node.tensor(5), (sizes.batch,)), DataType.INT32)
    if not node.flag(COUNTS_PAST):
        fewer = broadcast_to(node.size(1 - sizes.rows, DataType.INT32), lengths.sizes)
        lengths = dml.max(dml.add(lengths, fewer), node.constant([0], DataType.INT32).broadcast_to(lengths.sizes))
    parts = _parts(node, sizes)
    if node.has(14):
        query, key, value = _by_part(parts, sizes)
        parts = [_normalized(node, query, 14), _normalized(node, key, 15), value]
    if not node.has(12):  # so that the kernel that writes keys to their cache rotates and casts them
        parts = list(_by_part(parts, sizes))
    if node.flag("do_rotary"):
        *turned, value = parts
        parts = [*_rotated(node, sizes, lengths, turned), value]
    if node.has(12):
        return _quantized_attention(node, sizes, lengths, _by_part(parts, sizes))
    own_type = parts[0].data_type
    cache_type = node.data_type(3) if node.has(3) else own_type
    if cache_type is not own_type:
        parts = [dml.cast(part, cache_type) for part in parts]
    query, key, value = _by_part(parts, sizes)
    wide = (sizes.batch, sizes.rows)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(sizes.size)
    flat = [reshaped(part, (*wide, part.sizes[2] * part.sizes[3])) for part in (query, key, value)]
    past = _cache(node, 3, sizes), _cache(node, 4, sizes)
    operands = AttentionInputs(flat[0], flat[1], flat[2], sizes.heads, sizes.shared, scale, past=past)
    output, key, value = _attended(node, sizes, lengths, operands)
    return [dml.cast(output, own_type) if cache_type is not own_type else output, key, value]


def _attended(
    node: OnnxNode, sizes: _Sizes, lengths: Tensor, operands: AttentionInputs
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output of attention with the options of the node, and all keys and values."""
    kind = operands.query.data_type
    softcap, sink, added = node.number("softcap"), _sink(node, sizes, kind), _added(node, sizes)
    is_composed = bool(softcap) or sink is not None
    may_be_blind = added is not None or node.integer("local_window_size", -1) == 0
    seen = _seen(node, sizes, lengths, causal=is_composed or may_be_blind)
    operands = replace(operands, bias=bias_of(seen, added, kind))
    assert operands.past is not None
    keys, values = operands.past
    output = None
    if operands.key is not None or not is_composed:
        results = attend(operands, lengths=lengths, present=operands.key is not None)
        output = results.output
        if results.key is not None and results.value is not None:
            keys, values = results.key, results.value
    if is_composed:
        cached = replace(operands, key=None, value=None, past=(keys, values))
        output = composed(cached, softcap=softcap, sink=sink).output
    assert output is not None
    if operands.bias is not None and may_be_blind:
        output = side_by_side(without_blind(by_head(output, sizes.heads), operands.bias))
    return output, keys, values


def _quantized_attention(
    node: OnnxNode, sizes: _Sizes, lengths: Tensor, parts: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the outputs for caches of INT8 with scales."""
    query, *new = parts
    caches: list[Tensor] = []
    scales: list[Tensor] = []
    for rows, index in zip(new, (3, 4), strict=True):
        cache, scale = node.tensor(index), node.tensor(index + 9)
        blocks = scale.sizes[3] if not sizes.size % scale.sizes[3] else 1
        expected, block = (*cache.sizes[:3], blocks), sizes.size // blocks
        if node.data_type(index) is not _INT8 or scale.sizes != expected or scale.data_type is not DataType.FLOAT32:
            raise node.rejection(
                f"input {_SCALES[index + 9]} must be FLOAT of shape {list(expected)}, with a cache of INT8, "
                f"got {scale.data_type.name} {list(scale.sizes)} with {node.data_type(index).name}"
            )
        if cache.sizes[2] != sizes.keys:
            raise node.rejection(f"caches of INT8 must have rows for all tokens, got {cache.sizes[2]} for {sizes.keys}")
        wide = converted(transposed(rows, (0, 2, 1, 3)), DataType.FLOAT32)
        flat = reshaped(dml.abs(wide), (*wide.sizes[:2], sizes.rows * blocks, block))
        largest = reshaped(dml.reduce(flat, ReduceFunction.MAX, axes=(3,)), (*wide.sizes[:2], sizes.rows, blocks))
        new_scale = symmetric_scale(node, largest)
        by = Quantization(new_scale, None, (1, 1, 1, block))
        positions = dml.add(
            broadcast_to(reshaped(lengths, (sizes.batch, 1, 1, 1)), (*wide.sizes[:3], 1)),
            broadcast_to(
                dml.fill_value_sequence(node.builder, (1, 1, sizes.rows, 1), DataType.INT32, 0, 1), (*wide.sizes[:3], 1)
            ),
        )
        for target, updates, written in ((cache, quantized(wide, by, _INT8), caches), (scale, new_scale, scales)):
            places = dml.identity(broadcast_to(positions, updates.sizes))
            written.append(directml.scatter_elements(target, places, updates, axis=2))
    keys, values = (
        converted(
            dequantized(cache, Quantization(scale, None, (1, 1, 1, sizes.size // scale.sizes[3]))), query.data_type
        )
        for cache, scale in zip(caches, scales, strict=True)
    )
    factor = node.number("scale", 0.0) or 1 / math.sqrt(sizes.size)
    flat = reshaped(query, (sizes.batch, sizes.rows, sizes.heads * sizes.size))
    operands = AttentionInputs(flat, None, None, sizes.heads, sizes.shared, factor, past=(keys, values))
    output, _, _ = _attended(node, sizes, lengths, operands)
    return [output, *caches, None, *scales]


def _check_supported(node: OnnxNode) -> None:
    for index, name in _SCALES.items():
        if node.has(index) and (not node.has(3) or len(node.shape(index)) != 4):
            raise node.rejection(
                f"input {name} is supported with scales per head and row only, {{batch, heads, rows, blocks}}"
            )
    if node.has(12) != node.has(13):
        raise node.rejection("inputs k_scale and v_scale must both be present, or neither")
    if node.wants(3):
        raise node.rejection("output output_qk is not supported")
    if not node.flag("causal", True):
        raise node.rejection("attribute causal=0 is not supported")
    if node.flag("sliding_window_cache"):
        raise node.rejection("attribute sliding_window_cache is not supported")


def _sizes(node: OnnxNode) -> Generator[NeedsDecision, Any, _Sizes]:
    node.check_rank(0, 3)
    heads, shared = node.integer("num_heads"), node.integer("kv_num_heads")
    batch, rows, width = node.shape(0)
    if shared < 1 or heads < 1 or heads % shared:
        raise node.rejection(f"num_heads must be a multiple of kv_num_heads, got {heads} and {shared}")
    parts = heads if node.has(1) else heads + 2 * shared
    if width < parts or width % parts:
        raise node.rejection(f"heads must divide the last dimension, got {parts} for shape {list(node.shape(0))}")
    size = width // parts
    past = 0
    if node.has(3):
        for index in (3, 4):
            node.check_rank(index, 4)
        past = node.shape(3)[2]
    if math.prod(node.shape(6)) != 1:
        raise node.rejection(f"total_sequence_length must be one integer, got shape {list(node.shape(6))}")
    what = f"{node}: total_sequence_length"

    def rows_of_cache(total: NDArray[Any], past: int, rows: int) -> int:
        Bounds(1, past + rows, what).check(total)
        return max(past, as_integer(total.item()))

    keys = yield node.decided((6,), rows_of_cache, past, rows)
    return _Sizes(heads, shared, size, batch, rows, keys)


def _parts(node: OnnxNode, sizes: _Sizes) -> list[Tensor]:
    """Return queries, keys and values {batch, rows, heads, size}; queries and keys stay packed if they are."""
    if node.has(1):
        counts: tuple[int, ...] = (sizes.heads, sizes.shared, sizes.shared)
        parts: Sequence[Tensor] = [node.tensor(index) for index in range(3)]
    else:
        counts = (sizes.heads + sizes.shared, sizes.shared)
        parts = dml.split(node.tensor(0), 2, [count * sizes.size for count in counts])
    return [
        reshaped(part, (sizes.batch, sizes.rows, count, sizes.size)) for part, count in zip(parts, counts, strict=True)
    ]


def _by_part(parts: Sequence[Tensor], sizes: _Sizes) -> Sequence[Tensor]:
    """Return queries, keys and values."""
    return parts if len(parts) == 3 else [*dml.split(parts[0], 2, [sizes.heads, sizes.shared]), parts[1]]


def _normalized(node: OnnxNode, x: Tensor, index: int) -> Tensor:
    """Return heads divided by the root of the mean of their squares, and scaled."""
    return directml.mean_variance_normalization2(
        x,
        broadcast_to(reshaped(node.tensor(index), (1, 1, 1, x.sizes[3])), x.sizes),
        axes=(3,),
        epsilon=node.number("qk_norm_epsilon", 1e-6),
        use_mean=False,
    )


def _rotated(node: OnnxNode, sizes: _Sizes, lengths: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return queries and keys rotated by the angles of their positions."""
    node.check_range(9 if node.has(9) else 5, 0, node.shape(7)[0] - 1, "places in cos_cache")
    if node.has(9):
        positions = dml.cast(node.tensor(9), DataType.INT32)
        cos, sin = (angles(node.tensor(index), positions) for index in (7, 8))
    else:
        cos, sin = (consecutive_angles(node.tensor(index), lengths, sizes.rows) for index in (7, 8))
    interleaved = node.flag("rotary_interleaved")
    return [rotated(part, cos, sin, interleaved=interleaved) for part in parts]


def _cache(node: OnnxNode, index: int, sizes: _Sizes) -> Tensor:
    """Return past keys or values, padded with zeros to the rows of the cache."""
    if not node.has(index) or node.value(index).is_empty:
        shape = (sizes.batch, sizes.shared, sizes.keys, sizes.size)
        return dml.fill_value_constant(node.builder, shape, node.data_type(0), 0)
    past = node.tensor(index)
    missing = sizes.keys - past.sizes[2]
    return directml.padding1(past, start_padding=(0,) * 4, end_padding=(0, 0, missing, 0)) if missing else past


def _seen(node: OnnxNode, sizes: _Sizes, lengths: Tensor, *, causal: bool) -> Tensor | None:
    """Return a mask of the cached keys that each query sees, by its window and optionally causality; None for all."""
    positions = AttentionPositions.of(node, sizes.rows, sizes.keys, reshaped(lengths, (sizes.batch, 1, 1, 1)))
    window = node.integer("local_window_size", -1)
    conditions = [positions.no_later()] if causal else []
    conditions += [positions.no_earlier(window - 1)] if window >= 0 else []
    return everywhere(conditions) if conditions else None


def _added(node: OnnxNode, sizes: _Sizes) -> Tensor | None:
    """Return the bias of the model, padded to the keys of the cache."""
    if not node.has(10):
        return None
    bias = node.tensor(10)
    missing = sizes.keys - bias.sizes[3]
    return directml.padding1(bias, start_padding=(0,) * 4, end_padding=(0, 0, 0, missing)) if missing > 0 else bias


def _sink(node: OnnxNode, sizes: _Sizes, kind: DataType) -> Tensor | None:
    """Return the additional term (sink) of each head's softmax."""
    if node.has(11):
        return reshaped(node.tensor(11), (1, sizes.heads, 1, 1))
    if node.integer("smooth_softmax", -1) == 1:
        return node.constant([0], kind).broadcast_to((1, sizes.heads, 1, 1))
    return None
