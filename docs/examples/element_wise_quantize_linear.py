"""Convert floats to bytes: `x / scale + zero_point`, rounded half to even and
saturated.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

x = np.array([[-40, -0.25, 0.25, 0.75], [1.25, 10, 63.5, 90]], np.float32)
scale, zero_point = np.float32(0.5), np.uint8(128)
expected = np.clip(np.rint(x / scale) + 128, 0, 255).astype(np.uint8)

output = ops.quantize(x, np.array([scale]), np.array([zero_point]))
assert np.array_equal(output, expected)

scales, zero_points = np.full(x.shape, scale), np.full(x.shape, zero_point)
quantize = descs.ElementWiseQuantizeLinear(
    input_tensor=TensorDesc.of(x),
    scale_tensor=TensorDesc.of(scales),
    zero_point_tensor=TensorDesc.of(zero_points),
    output_tensor=TensorDesc.of(expected),
)
(output,) = dmlgpu.evaluate(quantize, [x, scales, zero_points])
assert np.array_equal(output, expected)
