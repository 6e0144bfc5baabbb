"""Layer normalization, as in transformers: every token has its own mean and
variance over the last axis; then a scale and a bias per feature, broadcast
along the other axes by strides of 0.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

rng = np.random.default_rng(0)
tokens = rng.standard_normal((2, 5, 8)).astype(np.float32)
scale, bias = rng.standard_normal((2, 8)).astype(np.float32)

wide = tokens.astype(np.float64)
mean = wide.mean(axis=-1, keepdims=True)
variance = wide.var(axis=-1, keepdims=True)
expected = (wide - mean) / np.sqrt(variance + 1e-5) * scale + bias

assert np.allclose(
    ops.layer_norm(tokens, weight=scale, bias=bias, eps=1e-5),
    expected,
    atol=1e-4,
)

of_features = TensorDesc(DataType.FLOAT32, (2, 5, 8), strides=(0, 0, 1))
normalization = descs.MeanVarianceNormalization2(
    input_tensor=TensorDesc.of(tokens),
    scale_tensor=of_features,
    bias_tensor=of_features,
    output_tensor=TensorDesc.of(tokens),
    axes=(2,),
    use_mean=True,
    use_variance=True,
    epsilon=1e-5,
    fused_activation=None,
)
inputs = [
    tokens,
    np.broadcast_to(scale, tokens.shape),
    np.broadcast_to(bias, tokens.shape),
]
(output,) = dmlgpu.evaluate(normalization, inputs)
assert np.allclose(output, expected, atol=1e-4)
