"""The three most likely classes, largest first, with their indices."""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import AxisDirection, DataType

logits = np.array([[0.1, 2.5, -3, 7, 1], [5, 4, 3, 2, 1]], np.float32)
places = np.argsort(-logits, axis=-1)[:, :3]
values = np.take_along_axis(logits, places, axis=-1)

result = ops.topk(logits, k=3, axis=-1)
assert np.array_equal(result.values, values)
assert np.array_equal(result.indices, places)

top = descs.TopK1(
    input_tensor=TensorDesc.of(logits),
    output_value_tensor=TensorDesc(DataType.FLOAT32, (2, 3)),
    output_index_tensor=TensorDesc(DataType.UINT32, (2, 3)),
    axis=1,
    k=3,
    axis_direction=AxisDirection.DECREASING,
)
output_values, output_indices = dmlgpu.evaluate(top, [logits])
assert np.array_equal(output_values, values)
assert np.array_equal(output_indices, places)
