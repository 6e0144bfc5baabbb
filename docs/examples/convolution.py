"""A layer of a convolutional network: a 3x3 filter, one pixel of zero padding
to keep the size, a bias per channel, and ReLU. `CROSS_CORRELATION` is what
networks call convolution. The bias has the rank of the images.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType

rng = np.random.default_rng(0)
images = rng.standard_normal((1, 3, 6, 6)).astype(np.float32)  # N, C, H, W
filters = rng.standard_normal((4, 3, 3, 3)).astype(
    np.float32
)  # results, C, height, width
bias = np.array([-1, 0, 1, 2], np.float32)

padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(
    padded, (3, 3), axis=(2, 3)
)  # N, C, H, W, 3, 3
sums = np.einsum("nchwyx,fcyx->nfhw", windows, filters) + bias.reshape(
    1, 4, 1, 1
)
expected = np.maximum(sums, 0)

assert np.allclose(
    ops.conv2d(images, filters, bias, padding=1, activation="relu"),
    expected,
    atol=1e-4,
)

convolution = descs.Convolution(
    input_tensor=TensorDesc.of(images),
    filter_tensor=TensorDesc.of(filters),
    bias_tensor=TensorDesc(DataType.FLOAT32, (1, 4, 1, 1)),
    output_tensor=TensorDesc(DataType.FLOAT32, (1, 4, 6, 6)),
    mode=ConvolutionMode.CROSS_CORRELATION,
    direction=ConvolutionDirection.FORWARD,
    strides=(1, 1),
    dilations=(1, 1),
    start_padding=(1, 1),
    end_padding=(1, 1),
    output_padding=(0, 0),
    group_count=1,
    fused_activation=descs.ActivationRelu(),
)
(output,) = dmlgpu.evaluate(
    convolution, [images, filters, bias.reshape(1, 4, 1, 1)]
)
assert np.allclose(output, expected, atol=1e-4)
