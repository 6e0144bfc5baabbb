"""The class that a classifier predicts. For equal elements, `INCREASING`
returns the first index and `DECREASING` the last.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import AxisDirection, DataType

logits = np.array([[0.1, 2.5, 2.5, -1], [4, 3, 2, 1]], np.float32)

assert np.array_equal(ops.argmax(logits, axis=-1), logits.argmax(axis=-1))

for direction, expected in (
    (AxisDirection.INCREASING, [[1], [0]]),
    (AxisDirection.DECREASING, [[2], [0]]),
):
    argmax = descs.Argmax(
        input_tensor=TensorDesc.of(logits),
        output_tensor=TensorDesc(DataType.UINT32, (2, 1)),
        axes=(1,),
        axis_direction=direction,
    )
    (output,) = dmlgpu.evaluate(argmax, [logits])
    assert np.array_equal(output, expected)
