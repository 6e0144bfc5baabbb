"""ReLU6, the activation of small convolutional networks: clip to the range 0 to
6.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

x = np.array([-3, -0.5, 0, 2.5, 6, 9], np.float32)
expected = np.minimum(np.maximum(x, 0), 6)

assert np.array_equal(ops.clip(x, min=0, max=6), expected)

clip = descs.ElementWiseClip(
    input_tensor=TensorDesc.of(x),
    output_tensor=TensorDesc.of(expected),
    scale_bias=None,
    min=0.0,
    max=6.0,
)
(output,) = dmlgpu.evaluate(clip, [x])
assert np.array_equal(output, expected)
