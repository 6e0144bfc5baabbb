"""A fully connected layer of a quantized network. Real values are (q - zero
point) * scale, for inputs and outputs.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

rng = np.random.default_rng(0)
a = rng.integers(0, 256, (1, 1, 3, 8)).astype(np.uint8)
b = rng.integers(0, 256, (1, 1, 8, 2)).astype(np.uint8)


def scalar(value, data_type):
    return np.full((1, 1, 1, 1), value, data_type)


scales = (
    scalar(0.5, np.float32),
    scalar(0.25, np.float32),
    scalar(128, np.float32),
)
zeros = scalar(120, np.uint8), scalar(131, np.uint8), scalar(100, np.uint8)
real = (a.astype(np.int64) - 120) @ (b.astype(np.int64) - 131) * (0.5 * 0.25)
expected = np.clip(np.rint(real / 128) + 100, 0, 255).astype(np.uint8)

output = ops.directml.quantized_linear_matrix_multiply(
    a,
    scales[0],
    b,
    scales[1],
    scales[2],
    a_zero_point=zeros[0],
    b_zero_point=zeros[1],
    output_zero_point=zeros[2],
)
assert np.array_equal(output, expected)

product = descs.QuantizedLinearMatrixMultiply(
    a_tensor=TensorDesc.of(a),
    a_scale_tensor=TensorDesc.of(scales[0]),
    a_zero_point_tensor=TensorDesc.of(zeros[0]),
    b_tensor=TensorDesc.of(b),
    b_scale_tensor=TensorDesc.of(scales[1]),
    b_zero_point_tensor=TensorDesc.of(zeros[1]),
    output_scale_tensor=TensorDesc.of(scales[2]),
    output_zero_point_tensor=TensorDesc.of(zeros[2]),
    output_tensor=TensorDesc.of(expected),
)
inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
(output,) = dmlgpu.evaluate(product, inputs)
assert np.array_equal(output, expected)
