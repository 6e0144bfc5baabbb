"""Compute the offset of each of several concatenated sequences: the exclusive
cumulative sum of the lengths.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import AxisDirection

lengths = np.array([[3, 1, 4, 1, 5]], np.int32)
ends = np.cumsum(lengths, axis=1)

assert np.array_equal(ops.cumsum(lengths, axis=1), ends)

starts = descs.CumulativeSummation(
    input_tensor=TensorDesc.of(lengths),
    output_tensor=TensorDesc.of(lengths),
    axis=1,
    axis_direction=AxisDirection.INCREASING,
    has_exclusive_sum=True,
)
(output,) = dmlgpu.evaluate(starts, [lengths])
assert np.array_equal(output, ends - lengths)  # [[0, 3, 4, 8, 9]]
