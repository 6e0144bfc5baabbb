"""Multi-head attention from its formula, in float64, every score at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.reference.elementwise import attribute
from dmlgpu.reference.indexing import last_dimensions
from dmlgpu.reference.registry import Array, claim, reference

Optional = Array | None
Wide = NDArray[np.float64]


def _by_head(array: Array, heads: int) -> Array:
    """Reshape {batch, row, head * size} to {batch, head, row, size}."""
    flat = last_dimensions(array, 3)
    return flat.reshape(*flat.shape[:2], heads, -1).swapaxes(1, 2)


def _stacked(array: Optional, which: int) -> Optional:
    """Return one of the tensors stacked in {batch, row, head, n, size}, as {batch, head, row, size}."""
    return None if array is None else array[:, :, :, which].swapaxes(1, 2)


def _first(*arrays: Optional) -> Optional:
    return next((array for array in arrays if array is not None), None)


def _biased(array: Optional, bias: Optional, before: int) -> Optional:
    """Add the bias to new rows, rounded to their dtype, as in the present outputs."""
    if array is None or bias is None:
        return array
    _, heads, _, size = array.shape
    part = bias.reshape(-1)[before : before + heads * size].reshape(heads, 1, size)
    return (array.astype(np.float64) + part).astype(array.dtype)


def _joined(past: Optional, new: Optional) -> Array:
    """Join past rows and new ones."""
    pieces = [array for array in (past, new) if array is not None]
    return np.concatenate([last_dimensions(array, 4) for array in pieces], axis=2)


def _cached(past: Optional, new: Optional, lengths: Array, before: Optional) -> Array:
    """Return a cache with the past rows at its beginning, followed by the new ones."""
    assert before is not None
    cache = last_dimensions(before, 4).copy()
    if past is not None:
        rows = last_dimensions(past, 4)
        cache[:, :, : rows.shape[2]] = rows
    if new is not None:
        for batch, length in enumerate(np.clip(lengths.reshape(-1), 0, cache.shape[2])):
            room = cache[batch, :, length : length + new.shape[2]]
            room[...] = new[batch, :, : room.shape[1]]
    return cache


def _inside(mask_type: MaskType, mask: Array, batch: int, keys: int) -> NDArray[np.bool_]:
    """Return a mask of the keys that are not padding, {batch, 1, 1, keys}."""
    flat = mask.reshape(-1)
    start = flat[batch : 2 * batch] if mask_type is MaskType.KEY_SEQUENCE_END_START else np.zeros(batch)
    place = np.arange(keys)
    within = (place >= start[:, np.newaxis]) & (place < flat[:batch, np.newaxis])
    return np.asarray(within[:, np.newaxis, np.newaxis, :])


def _masked(desc: Any, scores: Wide, mask: Optional) -> Wide:
    """Apply the mask to scores: BOOLEAN adds to them, the other types replace them."""
    if mask is None:
        return scores
    value = attribute(desc.mask_filter_value)
    if desc.mask_type is MaskType.BOOLEAN:
        return np.where(last_dimensions(mask, 4) == 0, scores + value, scores)
    return np.where(_inside(desc.mask_type, mask, scores.shape[0], scores.shape[-1]), scores, value)


def _weights(scores: Wide) -> Wide:
    """Return the softmax of scores along the keys."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def operands(
    desc: Any, inputs: Sequence[Optional], before: Sequence[Optional] | None = None
) -> tuple[Array, Array, Array]:
    """Return queries, and all keys and values, as {batch, head, row, size}.

    Args:
        desc: Either description.
        inputs: One array per flat input.
        before: Former contents of the outputs, including a cache; None for zeros.
    """
    query, key, value, query_key, key_value, query_key_value, bias, _, _, past_key, past_value, *lengths = inputs
    count, shared = _head_counts(desc)
    q = _first(None if query is None else _by_head(query, count), _stacked(query_key, 0), _stacked(query_key_value, 0))
    k = _first(
        None if key is None else _by_head(key, shared),
        _stacked(query_key, 1),
        _stacked(key_value, 0),
        _stacked(query_key_value, 1),
    )
    v = _first(None if value is None else _by_head(value, shared), _stacked(key_value, 1), _stacked(query_key_value, 2))
    assert q is not None
    size = q.shape[-1]
    biased = _biased(q, bias, 0)
    k, v = _biased(k, bias, count * size), _biased(v, bias, (count + shared) * size)
    assert biased is not None
    past = lengths[0] if lengths else None
    if past is None or (k is None and desc.output_present_key_tensor is None):
        return biased, _joined(past_key, k), _joined(past_value, v)
    outputs = before or [np.zeros(tensor.sizes, tensor.data_type.numpy) for _, _, tensor in desc.outputs]
    _, keys, values = outputs
    return biased, _cached(past_key, k, past, keys), _cached(past_value, v, past, values)


def _head_counts(desc: Any) -> tuple[int, int]:
    """Return the head counts of queries, and of keys and values."""
    if isinstance(desc, descs.MultiheadAttention):
        return desc.head_count, desc.head_count
    return desc.query_head_count, desc.key_value_head_count


def _output(
    desc: Any,
    query: Array,
    keys: Array,
    values: Array,
    mask: Optional,
    position: Optional,
    lengths: Optional,
) -> Array:
    """``softmax(query @ keys^T * scale + masks) @ values``, heads side by side."""
    repeats = query.shape[1] // keys.shape[1]
    wide_keys, wide_values = (np.repeat(array, repeats, axis=1).astype(np.float64) for array in (keys, values))
    claim("scores", *query.shape[:3], keys.shape[2], each=40)
    unseen = _unseen(query.shape[2], keys.shape[2], lengths)
    scores = query.astype(np.float64) @ wide_keys.swapaxes(-1, -2) * attribute(desc.scale)
    if position is not None:
        scores = scores + last_dimensions(position, 4)
    scores = _masked(desc, scores, mask)
    if unseen is not None:
        scores = np.where(unseen, -np.inf, scores)
    result = (_weights(scores) @ wide_values).swapaxes(1, 2)
    return result.reshape(desc.output_tensor.sizes).astype(query.dtype)


def _unseen(queries: int, keys: int, lengths: Optional) -> NDArray[np.bool_] | None:
    """Return a mask of the keys that come after a query, {batch, 1, queries, keys}."""
    if lengths is None:
        return None
    last = np.clip(lengths.reshape(-1, 1, 1, 1), 0, keys) + np.arange(queries)[:, np.newaxis]
    return np.asarray(np.arange(keys) > last)


@reference(descs.MultiheadAttention)
@reference(descs.MultiheadAttention1, keeps=True)
def multihead_attention1(desc: Any, *tensors: Optional, before: Sequence[Optional] | None = None) -> tuple[Array, ...]:
    """Attention whose query heads share key and value heads; unwritten elements of a cache are unchanged."""
    query, keys, values = operands(desc, tensors, before)
    lengths = tensors[11] if len(tensors) > 11 else None
    output = _output(desc, query, keys, values, tensors[7], tensors[8], lengths)
    return output, _shaped(keys, desc.output_present_key_tensor), _shaped(values, desc.output_present_value_tensor)


def _shaped(array: Array, tensor: Any) -> Array:
    """Reshape to the output, which may have leading dimensions of size 1; None keeps the shape."""
    return array if tensor is None else array.reshape(tensor.sizes)
