"""Convert bytes back to floats: `(x - zero_point) * scale`, here with one scale
per channel.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

x = np.array([[-128, 0, 127], [-1, 10, 100]], np.int8)
scales = np.array([0.5, 0.125], np.float32)  # one per row
expected = (x.astype(np.float32) - 3) * scales[:, None]

output = ops.dequantize(x, scales, np.full(2, 3, np.int8), axis=0)
assert np.array_equal(output, expected)

dequantize = descs.ElementWiseDequantizeLinear(
    input_tensor=TensorDesc.of(x),
    scale_tensor=TensorDesc(DataType.FLOAT32, (2, 3), strides=(1, 0)),
    zero_point_tensor=TensorDesc.of(np.full((2, 3), 3, np.int8)),
    output_tensor=TensorDesc(DataType.FLOAT32, (2, 3)),
)
inputs = [
    x,
    np.broadcast_to(scales[:, None], (2, 3)),
    np.full((2, 3), 3, np.int8),
]
(output,) = dmlgpu.evaluate(dequantize, inputs)
assert np.array_equal(output, expected)
