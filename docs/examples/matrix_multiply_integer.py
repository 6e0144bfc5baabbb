"""The product of two quantized matrices before scaling. Zero points are
subtracted; sums are exact INT32.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

a = np.array([[130, 128, 255], [0, 127, 1]], np.uint8).reshape(1, 1, 2, 3)
b = np.array([[-128, 1], [127, -1], [5, 0]], np.int8).reshape(1, 1, 3, 2)
zero = np.array([128], np.uint8).reshape(1, 1, 1, 1)
expected = (a.astype(np.int32) - 128) @ b.astype(np.int32)

assert np.array_equal(
    ops.directml.matrix_multiply_integer(a, b, a_zero_point=zero), expected
)

product = descs.MatrixMultiplyInteger(
    a_tensor=TensorDesc.of(a),
    a_zero_point_tensor=TensorDesc.of(zero),
    b_tensor=TensorDesc.of(b),
    b_zero_point_tensor=None,
    output_tensor=TensorDesc(DataType.INT32, (1, 1, 2, 2)),
)
(output,) = dmlgpu.evaluate(product, [a, zero, b, None])
assert np.array_equal(output, expected)
