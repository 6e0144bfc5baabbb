"""Batch normalization at inference, with the mean and variance of each channel
from training.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

rng = np.random.default_rng(0)
images = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
mean, variance, scale, bias = (
    np.array(values, np.float32).reshape(1, 3, 1, 1)
    for values in ([0, 0.5, -1], [1, 0.25, 4], [1, 2, 0.5], [0, -1, 3])
)
expected = (images - mean) / np.sqrt(variance + 1e-5) * scale + bias

output = ops.batch_norm(
    images,
    mean.ravel(),
    variance.ravel(),
    scale.ravel(),
    bias.ravel(),
    eps=1e-5,
)
assert np.allclose(output, expected, atol=1e-4)

statistics = [mean, variance, scale, bias]
of_channels = TensorDesc.of(mean)
normalization = descs.BatchNormalization(
    input_tensor=TensorDesc.of(images),
    mean_tensor=of_channels,
    variance_tensor=of_channels,
    scale_tensor=of_channels,
    bias_tensor=of_channels,
    output_tensor=TensorDesc.of(images),
    spatial=True,
    epsilon=1e-5,
    fused_activation=None,
)
(output,) = dmlgpu.evaluate(normalization, [images, *statistics])
assert np.allclose(output, expected, atol=1e-4)
