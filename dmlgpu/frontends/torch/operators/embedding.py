"""Embeddings, bags of embeddings, and their gradients."""

from __future__ import annotations

import math
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.reductions import ordered
from dmlgpu.ops.searching import searchsorted
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled, widened
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.tensor import Tensor

MAX_MATRIX = 2**20
"""Maximum elements of the matrix of zeros and ones by which rows are summed in one product; more rows are sorted."""

_SUM, _MEAN, _MAX = range(3)
"""PyTorch's values of the modes of bags."""


# ---- sums of rows ----------------------------------------------------------------------------------------------------


def summed_rows(rows: Tensor, indices: Tensor, count: int) -> Tensor:
    """Return for each of `count` indices the sum of the rows {n, width} that have it.

    Few rows are summed by a product with a matrix of zeros and ones, many in segments of equal indices after sorting.
    """
    n = indices.sizes[0]
    if not rows.size:
        return filled(rows, (count, *rows.sizes[1:]))
    if n * count <= MAX_MATRIX:
        places = sequence(count, 0, 1, indices.data_type, rows.device).expand_dims(1)
        marks = (places == indices.expand_dims(0)).astype(rows.data_type)
        return marks @ rows
    keys, order = ordered(indices)
    wide = widened(rows._taken(order, 0, "index_add"))
    if n >= 2 * _BLOCK * count:
        return _summed_segments(wide, keys, count).astype(rows.data_type)
    (sums,) = _scanned((wide,), keys, _added)
    return _last_of_segments(sums, keys, count).astype(rows.data_type)


def _added(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (a[0] + b[0],)


def _summed_segments(rows: Tensor, keys: Tensor, count: int) -> Tensor:
    """Return the sums of many rows of each of `count` keys, zeros for those without rows; keys are sorted.

    A key's sum is that of its rows in the block of its last row, and what blocks before have summed.
    """
    blocks = -(-keys.sizes[0] // _BLOCK)
    padding = blocks * _BLOCK - keys.sizes[0]
    if padding:  # zero rows for the last key
        rows = joined([rows, filled(rows, (padding, *rows.sizes[1:]))], 0)
        keys = joined([keys, keys[-1:].broadcast_to((padding,))], 0)
    rows, keys = rows.reshape(blocks, _BLOCK, -1), keys.reshape(blocks, _BLOCK)
    ends = keys[:, -1]
    (before,) = _scanned((_sum_of(rows, keys, ends),), ends, _added)
    places = sequence(count, 0, 1, keys.data_type, rows.device)
    last = searchsorted(keys.reshape(-1), places, "right") - 1
    block = last._chosen(last >= 0, 0).astype(DataType.INT32) // _BLOCK
    sums = _sum_of(rows._taken(block, 0, "index_add"), keys._taken(block, 0, "index_add"), places)
    previous = (block - 1)._chosen(block > 0, 0)
    is_continued = (ends._taken(previous, 0, "index_add") == places) & (block > 0)
    return sums + before._taken(previous, 0, "index_add")._chosen(is_continued.expand_dims(1), 0)


def _sum_of(rows: Tensor, keys: Tensor, key: Tensor) -> Tensor:
    """Return the sums of the rows {blocks, rows, width} that have one key per block."""
    is_counted = (keys == key.expand_dims(1)).expand_dims(2)
    return total(rows._chosen(is_counted, 0), (1,)).squeeze(1)


def _scanned(values: tuple[Tensor, ...], keys: Tensor, combine: Any) -> tuple[Tensor, ...]:
    """Return the running combination of the rows of each key; keys are sorted.

    Blocks of rows are scanned, then the last rows of blocks, whose results blocks continue.
    """
    count = keys.sizes[0]
    if count <= 2 * _BLOCK:
        parts = _scanned_blocks(tuple(x.expand_dims(0) for x in values), keys.expand_dims(0), combine)
        return tuple(x.squeeze(0) for x in parts)
    blocks = -(-count // _BLOCK)
    padding = blocks * _BLOCK - count
    padded = tuple(joined([x, x[:padding]], 0) if padding else x for x in (*values, keys))
    *rows, keys = (x.reshape(blocks, _BLOCK, *x.sizes[1:]) for x in padded)
    scanned = _scanned_blocks(tuple(rows), keys, combine)
    before = _scanned(tuple(x[:-1, -1] for x in scanned), keys[:-1, -1], combine)
    continued = combine(tuple(x.expand_dims(1) for x in before), tuple(x[1:] for x in scanned))
    is_same = (keys[1:] == keys[:-1, -1:]).expand_dims(2)
    wholes = (joined([x[:1], result._chosen(is_same, x[1:])], 0) for x, result in zip(scanned, continued, strict=True))
    return tuple(x.reshape(-1, *x.sizes[2:])[:count] for x in wholes)


_BLOCK = 16
"""Rows of a block: four passes over all rows scan it, and a fifth continues it."""


def _scanned_blocks(values: tuple[Tensor, ...], keys: Tensor, combine: Any) -> tuple[Tensor, ...]:
    """Do the work of ``_scanned`` within each block {blocks, rows, width}."""
    step, count = 1, keys.sizes[1]
    while step < count:
        is_same = (keys[:, step:] == keys[:, :-step]).expand_dims(2)
        earlier, later = tuple(x[:, :-step] for x in values), tuple(x[:, step:] for x in values)
        combined = combine(earlier, later)
        values = tuple(
            joined([x[:, :step], result._chosen(is_same, row)], 1)
            for x, result, row in zip(values, combined, later, strict=True)
        )
        step *= 2
    return values


def _last_of_segments(values: Tensor, keys: Tensor, count: int) -> Tensor:
    """Return the last row of each of `count` keys, zeros for those without rows; keys are sorted."""
    places = sequence(count, 0, 1, keys.data_type, values.device)
    last = searchsorted(keys, places, "right") - 1
    last = last._chosen(last >= 0, 0)
    is_there = keys._taken(last, 0, "index_add") == places
    return values._taken(last, 0, "index_add")._chosen(is_there.expand_dims(1), 0)


# ---- tables ----------------------------------------------------------------------------------------------------------


@aten("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Return the row of a table at each index."""
    return weight._taken(indices, 0, "embedding")


@aten("embedding_dense_backward", wide=True, fused=True)
def embedding_dense_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Return the gradient of the table of `embedding`."""
    keys = indices.reshape(-1)
    rows = gradient.reshape(keys.sizes[0], -1) if gradient.size else filled(gradient, (0, gradient.sizes[-1]))
    if padding_idx >= 0:
        rows = rows._chosen((keys != padding_idx).expand_dims(1), 0.0)
    result = summed_rows(rows, keys, num_weights)
    if not scale_grad_by_freq or not rows.size:
        return result
    counts = summed_rows(filled(rows, (1, 1), 1).broadcast_to((keys.sizes[0], 1)), keys, num_weights)
    return result / counts._chosen(counts > 0, 1.0)


# ---- bags ------------------------------------------------------------------------------------------------------------


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sum, mean or maximum of the rows of each bag; the bag of each index, the bags' sizes, the maxima's
    indices."""
    indices, offsets = (tensor.astype(DataType.INT64) for tensor in (indices, offsets))
    bags, width = offsets.sizes[0] - include_last_offset, weight.sizes[1]
    n = indices.sizes[0]
    if not n or not bags:
        empty = filled(offsets, (bags,))
        return filled(weight, (bags, width)), filled(offsets, (n,)), empty, filled(offsets, (bags, width))
    bag_of = searchsorted(offsets[:bags].copy(), sequence(n, 0, 1, DataType.INT64, weight.device), "right") - 1
    is_counted = indices != padding_idx
    counts = summed_rows(is_counted.astype(DataType.FLOAT32).expand_dims(1), bag_of, bags)
    sizes = counts.squeeze(1).astype(DataType.INT64)
    rows = weight._taken(indices, 0, "embedding_bag")
    if mode == _MAX:
        output, maxima = _maxima(rows, indices, bag_of, is_counted, bags)
        return output, bag_of, sizes, maxima
    rows = widened(rows)
    if per_sample_weights is not None:
        rows = rows * widened(per_sample_weights).expand_dims(1)
    output = summed_rows(rows._chosen(is_counted.expand_dims(1), 0.0), bag_of, bags)
    if mode == _MEAN:
        output = output / counts._chosen(counts > 0, 1.0)
    return output.astype(weight.data_type), bag_of, sizes, sizes


def _maxima(rows: Tensor, indices: Tensor, bag_of: Tensor, is_counted: Tensor, bags: int) -> tuple[Tensor, Tensor]:
    """Return the maxima of each bag, and the index of the row of each."""
    lowest = rows._chosen(is_counted.expand_dims(1), -math.inf)
    names = indices._chosen(is_counted, -1).expand_dims(1).broadcast_to(rows.sizes)

    def greater(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        is_later = b[0] > a[0]
        return b[0]._chosen(is_later, a[0]), b[1]._chosen(is_later, a[1])

    values, chosen = _scanned((lowest, names), bag_of, greater)
    maxima = _last_of_segments(chosen + 1, bag_of, bags) - 1  # bags without rows have the index -1
    return _last_of_segments(values, bag_of, bags)._chosen(maxima >= 0, 0.0), maxima


@aten("_embedding_bag_backward", wide=True)
def embedding_bag_backward(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor,
    bag_size: Tensor,
    maxima: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Return the gradient of the table of `_embedding_bag`."""
    if sparse:
        raise Unsupported("gradients are dense, sparse must be False")
    width = gradient.sizes[-1]
    if not indices.size or not gradient.size:
        return filled(gradient, (num_weights, width))
    if mode == _MAX:
        columns = sequence(width, 0, 1, DataType.INT64, gradient.device)
        places = (maxima * width + columns).reshape(-1)
        places = places._chosen((maxima >= 0).reshape(-1), 0)
        values = gradient._chosen(maxima >= 0, 0.0).reshape(-1, 1)
        return summed_rows(values, places, num_weights * width).reshape(num_weights, width)
    if mode == _MEAN:
        gradient = gradient / bag_size._chosen(bag_size > 0, 1).astype(gradient.data_type).expand_dims(1)
    rows = gradient._taken(bag_of, 0, "embedding_bag")
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.expand_dims(1)
    return embedding_dense_backward(rows, indices, num_weights, padding_idx, scale_grad_by_freq)


@aten("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    gradient: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """Return the gradient of the weights of samples of `_embedding_bag`."""
    if not indices.size:
        return filled(gradient, indices.sizes)
    factors = gradient._taken(bag_of, 0, "embedding_bag"), weight._taken(indices, 0, "embedding_bag")
    products = widened(factors[0]) * widened(factors[1])
    sums: Tensor = total(products, (1,)).squeeze(1).astype(weight.data_type)
    return sums._chosen(indices != padding_idx, 0.0)
