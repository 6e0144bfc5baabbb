"""Add a bias to every row of a batch. DirectML requires equal sizes, so the
bias is broadcast by a stride of 0 along the rows. `ops.add` broadcasts by
itself, as NumPy does.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

rows = np.arange(12, dtype=np.float32).reshape(3, 4)
bias = np.array([0.5, 1.0, 1.5, 2.0], np.float32)
expected = rows + bias

assert np.array_equal(ops.add(rows, bias), expected)

add = descs.ElementWiseAdd(
    a_tensor=TensorDesc.of(rows),
    b_tensor=TensorDesc(DataType.FLOAT32, (3, 4), strides=(0, 1)),
    output_tensor=TensorDesc.of(expected),
)
(output,) = dmlgpu.evaluate(add, [rows, np.broadcast_to(bias, (3, 4))])
assert np.array_equal(output, expected)
