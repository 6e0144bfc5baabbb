"""Instance normalization, as in style transfer: every channel of every image
has its own mean and variance, so `axes` are height and width.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

rng = np.random.default_rng(0)
images = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
scale = np.array([1, 2, 0.5], np.float32)
bias = np.array([0, -1, 3], np.float32)

wide = images.astype(np.float64)
mean = wide.mean(axis=(2, 3), keepdims=True)
variance = wide.var(axis=(2, 3), keepdims=True)
expected = (wide - mean) / np.sqrt(variance + 1e-5) * scale.reshape(
    3, 1, 1
) + bias.reshape(3, 1, 1)

assert np.allclose(
    ops.instance_norm(images, weight=scale, bias=bias, eps=1e-5),
    expected,
    atol=1e-4,
)

of_channels = TensorDesc(DataType.FLOAT32, (2, 3, 4, 4), strides=(0, 1, 0, 0))
normalization = descs.MeanVarianceNormalization1(
    input_tensor=TensorDesc.of(images),
    scale_tensor=of_channels,
    bias_tensor=of_channels,
    output_tensor=TensorDesc.of(images),
    axes=(2, 3),
    normalize_variance=True,
    epsilon=1e-5,
    fused_activation=None,
)
inputs = [
    images,
    *(
        np.broadcast_to(values.reshape(1, 3, 1, 1), images.shape)
        for values in (scale, bias)
    ),
]
(output,) = dmlgpu.evaluate(normalization, inputs)
assert np.allclose(output, expected, atol=1e-4)
