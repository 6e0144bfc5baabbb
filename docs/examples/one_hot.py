"""Convert class indices to one-hot rows. `values_tensor` holds the value
elsewhere (off) and the value at the index (on).
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

classes = np.array([2, 0, 3], np.uint32)
expected = np.eye(4, dtype=np.float32)[classes]

assert np.array_equal(ops.one_hot(classes, depth=4), expected)

one_hot = descs.OneHot(
    indices_tensor=TensorDesc(DataType.UINT32, (3, 1)),
    values_tensor=TensorDesc(DataType.FLOAT32, (1, 2)),
    output_tensor=TensorDesc.of(expected),
    axis=1,
)
(output,) = dmlgpu.evaluate(
    one_hot, [classes.reshape(3, 1), np.array([[0, 1]], np.float32)]
)
assert np.array_equal(output, expected)
