"""Convert float32 to the bytes of a picture. Fractions are truncated towards
zero, so round first if necessary.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

x = np.array([0.2, 0.9, 127.5, 254.99], np.float32)
expected = np.trunc(x).astype(np.uint8)  # [0, 0, 127, 254]

assert np.array_equal(ops.astype(x, "uint8"), expected)
assert np.array_equal(ops.astype(ops.round(x), "uint8"), [0, 1, 128, 255])

cast = descs.Cast(
    input_tensor=TensorDesc.of(x), output_tensor=TensorDesc.of(expected)
)
(output,) = dmlgpu.evaluate(cast, [x])
assert output.dtype == np.uint8 and np.array_equal(output, expected)
