"""Scaled dot-product attention by DirectML's streaming kernel, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops import directml
from dmlgpu.ops.creation import diagonals
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import summed, total
from dmlgpu.tensors.tensor import Tensor


def _heads_last(x: Tensor) -> Tensor:
    """Return {N, S, H * E} for {N, H, S, E}."""
    batch, heads, rows, width = x.sizes
    return x.transpose(0, 2, 1, 3).reshape(batch, rows, heads * width)


def _mask(x: Tensor, sizes: tuple[int, ...], bias: Tensor | None, is_causal: bool) -> Tensor | None:
    """Return the addend of the products {N, H, S, T}, -inf at masked positions; None if there is none."""
    hidden = None
    if is_causal and sizes[3] > 1:
        hidden = diagonals((sizes[2], sizes[3]), x.device) > 0
    if bias is not None and bias.is_boolean:
        hidden, bias = ~bias if hidden is None else hidden | ~bias, None
    if hidden is None:
        return None if bias is None else bias.astype(x.data_type).broadcast_to(sizes)
    lowest = filled(x, (1,) * hidden.ndim, -math.inf).broadcast_to(hidden.sizes)
    addend = lowest._chosen(hidden, 0.0)
    addend = addend if bias is None else addend + bias.astype(x.data_type)
    return addend.broadcast_to(sizes)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(query @ key.T * scale + bias) @ value of {N, H, S, E}; rows that see nothing are 0.

    Key and value may have fewer heads, which groups of heads of the query share.
    """
    batch, heads, rows, width = query.sizes
    columns, value_width = key.sizes[2], value.sizes[3]
    sizes = (batch, heads, rows, columns)
    if not (query.size and key.size and value.size):
        return filled(query, (batch, heads, rows, value_width))
    addend = _mask(query, sizes, bias, is_causal)
    options: dict[str, Any] = {
        "relative_position_bias": addend,
        "scale": 1 / math.sqrt(width) if scale is None else scale,
        "mask_filter_value": -10000.0,
    }
    operands = [_heads_last(x) for x in (query, key, value)]
    if key.sizes[1] == heads:
        output = directml.multihead_attention(*operands, **options, head_count=heads).output
    else:
        options |= {"query_head_count": heads, "key_value_head_count": key.sizes[1]}
        output = directml.multihead_attention1(*operands, **options).output
    result: Tensor = output.reshape(batch, rows, heads, value_width).transpose(0, 2, 1, 3)
    if addend is not None and bias is not None:
        highest: Any = directml.reduce(addend, function="max", axes=(3,))
        result = result._chosen(highest > -math.inf, 0.0)
    return result


def weights_of(
    query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """Return the weights of attention {N, H, S, T}; rows that see nothing are 0."""
    scores = (query @ key.transpose(0, 1, 3, 2)) * scale
    addend = _mask(query, scores.sizes, bias, is_causal)
    if addend is not None:
        scores = scores + addend
    weights: Tensor = directml.activation_softmax1(scores, axes=(3,))
    if bias is not None:
        highest: Any = directml.reduce(scores, function="max", axes=(3,))
        weights = weights._chosen(highest > -math.inf, 0.0)
    return weights


@aten("_scaled_dot_product_fused_attention_overrideable")
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Return the output of attention, and what other backends keep for the gradient, which this one computes anew."""
    if dropout_p:
        raise Unsupported("dropout_p must be 0")
    output = attention(query, key, value, attn_bias, is_causal, scale)
    nothing = filled(query, (0,))
    return output, nothing, nothing, nothing, query.sizes[2], key.sizes[2], nothing, nothing, nothing


@aten("_scaled_dot_product_fused_attention_overrideable_backward")
def fused_attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    mask: Sequence[bool],
    output: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of query, key, value and the float mask of attention."""
    factor = 1 / math.sqrt(query.sizes[3]) if scale is None else scale
    kinds = (query, key, value)
    groups = query.sizes[1] // key.sizes[1]
    if groups > 1:
        key, value = (_repeated(x, groups) for x in (key, value))
    if not (query.size and key.size and value.size):
        return *(filled(x, x.sizes) for x in kinds), None  # type: ignore[return-value]
    weights = weights_of(query, key, attn_bias, is_causal, factor)
    of_value = weights.transpose(0, 1, 3, 2) @ gradient
    of_weights = gradient @ value.transpose(0, 1, 3, 2)
    of_scores = weights * (of_weights - total(of_weights * weights, (3,)))
    of_query, of_key = (of_scores @ key) * factor, (of_scores.transpose(0, 1, 3, 2) @ query) * factor
    if groups > 1:
        of_key, of_value = (_summed_groups(x, groups) for x in (of_key, of_value))
    of_bias = summed(of_scores, attn_bias.sizes) if mask[3] and attn_bias is not None else None
    return of_query, of_key, of_value, of_bias


def _repeated(x: Tensor, groups: int) -> Tensor:
    """Return each head as often as heads of the query share it."""
    batch, heads, rows, width = x.sizes
    repeated = x.expand_dims(2).broadcast_to((batch, heads, groups, rows, width))
    return repeated.reshape(batch, heads * groups, rows, width)


def _summed_groups(x: Tensor, groups: int) -> Tensor:
    batch, heads, rows, width = x.sizes
    sums: Tensor = total(x.reshape(batch, heads // groups, groups, rows, width), (2,)).squeeze(2)
    return sums
