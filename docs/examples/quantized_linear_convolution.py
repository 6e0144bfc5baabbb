"""A 3x3 convolution of a quantized network with padding. Padded elements are
the zero point, which represents 0.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs

rng = np.random.default_rng(0)
images = rng.integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
filters = rng.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
bias = np.array([-500, 0, 900], np.int32).reshape(
    1, 3, 1, 1
)  # in units of the product of both scales


def scalar(value, data_type):
    return np.full((1, 1, 1, 1), value, data_type)


input_scale = scalar(0.5, np.float32)
filter_scale = scalar(0.25, np.float32)
output_scale = scalar(64, np.float32)
input_zero = scalar(128, np.uint8)
filter_zero = scalar(0, np.int8)
output_zero = scalar(128, np.uint8)

padded = np.pad(images.astype(np.int64) - 128, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
sums = np.einsum("nchwyx,fcyx->nfhw", windows, filters.astype(np.int64)) + bias
expected = np.clip(np.rint(sums * (0.5 * 0.25) / 64) + 128, 0, 255).astype(
    np.uint8
)

inputs = [
    images,
    input_scale,
    input_zero,
    filters,
    filter_scale,
    filter_zero,
    bias,
    output_scale,
    output_zero,
]
convolution = descs.QuantizedLinearConvolution(
    input_tensor=TensorDesc.of(images),
    input_scale_tensor=TensorDesc.of(input_scale),
    input_zero_point_tensor=TensorDesc.of(input_zero),
    filter_tensor=TensorDesc.of(filters),
    filter_scale_tensor=TensorDesc.of(filter_scale),
    filter_zero_point_tensor=TensorDesc.of(filter_zero),
    bias_tensor=TensorDesc.of(bias),
    output_scale_tensor=TensorDesc.of(output_scale),
    output_zero_point_tensor=TensorDesc.of(output_zero),
    output_tensor=TensorDesc.of(expected),
    strides=(1, 1),
    dilations=(1, 1),
    start_padding=(1, 1),
    end_padding=(1, 1),
    group_count=1,
)
(output,) = dmlgpu.evaluate(convolution, inputs)
assert np.array_equal(output, expected)
