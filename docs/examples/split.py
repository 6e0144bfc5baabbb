"""Split the output of one matrix product into queries, keys and values for
attention.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

stacked = np.arange(36, dtype=np.float32).reshape(2, 18)
expected = np.split(stacked, 3, axis=1)

assert all(map(np.array_equal, ops.split(stacked, 3, axis=1), expected))

split = descs.Split(
    input_tensor=TensorDesc.of(stacked),
    output_tensors=tuple(map(TensorDesc.of, expected)),
    axis=1,
)
outputs = dmlgpu.evaluate(split, [stacked])
assert len(outputs) == 3 and all(map(np.array_equal, outputs, expected))
