"""Scaled dot-product attention by DirectML's streaming kernel, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dmlgpu.frontends.torch.operators.registry import Unsupported, aten, composes, decomposes
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


def weights_of(query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float) -> Tensor:
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


@aten("_scaled_dot_product_fused_attention_overrideable", fused=True)
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
    """Return the output of attention, without the tensors that other backends save for the gradient."""
    if dropout_p:
        raise Unsupported("dropout_p must be 0")
    output = attention(query, key, value, attn_bias, is_causal, scale)
    return output, None, None, None, query.sizes[2], key.sizes[2], None, None, None


@aten("_scaled_dot_product_fused_attention_overrideable_backward", fused=True, wide=True)
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


# ---- functions of torch tensors --------------------------------------------------------------------------------------


def _broadcasts(mask: torch.Tensor, sizes: Sequence[int]) -> bool:
    """Return whether a mask of at most four dimensions has the sizes of scores, or 1."""
    return all(size in (1, other) for size, other in zip(reversed(mask.shape), reversed(sizes), strict=False))


@composes("scaled_dot_product_attention", differentiable=True)
def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute attention by DirectML's kernel, or by PyTorch's products and softmax with dropout or other shapes."""
    aten_: Any = torch.ops.aten
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} "
            f"key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    shapes = query.shape, key.shape, value.shape
    scores = (*shapes[0][:-1], shapes[1][-2]) if query.dim() > 1 and key.dim() > 1 else ()
    is_plain = (
        not dropout_p
        and all(len(shape) == 4 and shape[0] == shapes[0][0] for shape in shapes)
        and shapes[1][1:3] == shapes[2][1:3]
        and shapes[0][3] == shapes[1][3]
        and (shapes[0][1] == shapes[1][1] or (enable_gqa and not shapes[0][1] % max(shapes[1][1], 1)))
        and query.dtype.is_floating_point
        and (attn_mask is None or (not is_causal and attn_mask.dim() in (2, 3, 4) and _broadcasts(attn_mask, scores)))
    )
    if is_plain:
        return aten_._scaled_dot_product_fused_attention_overrideable(
            query, key, value, attn_mask, 0.0, is_causal, False, scale=scale
        )[0]
    if attn_mask is not None and attn_mask.dtype is torch.bool:  # the operator called below adds masks of any dtype
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
    return aten_._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


@composes("_native_multi_head_attention")
def native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the layer `nn.MultiheadAttention` without gradients; masks are true at hidden positions."""
    linear = torch.nn.functional.linear
    parts = zip(qkv_weight.chunk(3), qkv_bias.chunk(3), (query, key, value), strict=True)
    heads = [linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2) for weight, bias, x in parts]
    visible = None
    if mask is not None:
        hidden = mask.to(torch.bool)
        visible = ~(hidden[:, None, None, :] if mask_type == 1 else hidden)
    weights = query.new_empty(0)
    if need_weights:
        scores = heads[0] @ heads[1].transpose(-2, -1) / math.sqrt(embed_dim // num_head)
        if visible is not None:
            scores = scores.masked_fill(~visible, -math.inf)
        weights = scores.softmax(-1)
        output = weights @ heads[2]
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        output = torch.nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], visible)
    return linear(output.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


@composes("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """Compute the layer `nn.TransformerEncoderLayer` without gradients."""
    functional = torch.nn.functional
    activation = functional.gelu if use_gelu else functional.relu

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(activation(functional.linear(x, ffn_weight_1, ffn_bias_1)), ffn_weight_2, ffn_bias_2)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)


@composes("_nested_tensor_from_mask_left_aligned")
def is_nested_tensor_from_mask_possible(x: torch.Tensor, mask: torch.Tensor) -> bool:
    """Return False, so that `nn.TransformerEncoder` keeps padded batches: the device has no nested tensors."""
    return False


decomposes("_safe_softmax")
