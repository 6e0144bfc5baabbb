"""Attention with heads of size 8 and the usual scale, 1 / sqrt(8). Queries,
keys and values are {batch, tokens, heads * size}. A causal mask is a
`relative_position_bias` of zeros and large negative numbers.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, MultiheadAttentionMaskType

batch, tokens, heads, size = 1, 4, 2, 8
rng = np.random.default_rng(0)
query, key, value = rng.standard_normal(
    (3, batch, tokens, heads * size)
).astype(np.float32)
causal = np.where(np.tri(tokens, dtype=bool), 0, -1e4).astype(np.float32)


def of_heads(x):
    return (
        x.reshape(batch, tokens, heads, size)
        .transpose(0, 2, 1, 3)
        .astype(np.float64)
    )


scores = (
    of_heads(query) @ of_heads(key).transpose(0, 1, 3, 2) / np.sqrt(size)
    + causal
)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
weights /= weights.sum(axis=-1, keepdims=True)
expected = (
    (weights @ of_heads(value)).transpose(0, 2, 1, 3).reshape(query.shape)
)

assert np.allclose(
    ops.attention(query, key, value, num_heads=heads, bias=causal),
    expected,
    atol=1e-5,
)

attention = descs.MultiheadAttention(
    query_tensor=TensorDesc.of(query),
    key_tensor=TensorDesc.of(key),
    value_tensor=TensorDesc.of(value),
    relative_position_bias_tensor=TensorDesc(
        DataType.FLOAT32,
        (batch, heads, tokens, tokens),
        strides=(0, 0, tokens, 1),
    ),
    output_tensor=TensorDesc.of(query),
    scale=1 / np.sqrt(size).item(),
    mask_filter_value=-1e4,
    head_count=heads,
    mask_type=MultiheadAttentionMaskType.NONE,
)
bias = np.broadcast_to(causal, (batch, heads, tokens, tokens))
tensors = {
    "query_tensor": query,
    "key_tensor": key,
    "value_tensor": value,
    "relative_position_bias_tensor": bias,
}
inputs = [
    tensors.get(slot.label) for slot in attention.inputs
]  # None if an optional tensor is omitted
(output, *_) = dmlgpu.evaluate(attention, inputs)
assert np.allclose(output, expected, atol=1e-5)
