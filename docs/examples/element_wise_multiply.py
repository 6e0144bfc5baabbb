"""Scale each channel of images {N, C, H, W} by its own factor, as a squeeze-
and-excitation block does.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

images = np.linspace(-1, 1, 2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
factors = np.array([0.5, 1, 2], np.float32).reshape(1, 3, 1, 1)
expected = images * factors

assert np.array_equal(ops.multiply(images, factors), expected)

multiply = descs.ElementWiseMultiply(
    a_tensor=TensorDesc.of(images),
    b_tensor=TensorDesc(DataType.FLOAT32, (2, 3, 2, 2), strides=(0, 1, 0, 0)),
    output_tensor=TensorDesc.of(expected),
)
(output,) = dmlgpu.evaluate(
    multiply, [images, np.broadcast_to(factors, images.shape)]
)
assert np.array_equal(output, expected)
