"""Write one element per index into a copy of the input: here a one in each row,
at the column given by the index.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

x = np.zeros((3, 4), np.float32)
indices = np.array([[1], [3], [0]], np.int32)
updates = np.array([[1], [1], [1]], np.float32)
expected = x.copy()
np.put_along_axis(expected, indices, updates, axis=1)

assert np.array_equal(
    ops.directml.scatter_elements(x, indices, updates, axis=1), expected
)

scatter = descs.ScatterElements(
    input_tensor=TensorDesc.of(x),
    indices_tensor=TensorDesc.of(indices),
    updates_tensor=TensorDesc.of(updates),
    output_tensor=TensorDesc.of(x),
    axis=1,
)
(output,) = dmlgpu.evaluate(scatter, [x, indices, updates])
assert np.array_equal(output, expected)
