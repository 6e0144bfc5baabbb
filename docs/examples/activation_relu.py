"""The most common activation. In descriptions it is mostly the
`fused_activation` of another operator, which saves a pass over memory.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, MatrixTransform

x = np.array([[-2, -0.5, 0], [0.5, 1, 3]], np.float32)
expected = np.maximum(x, 0)

assert np.array_equal(ops.relu(x), expected)

relu = descs.ActivationRelu(
    input_tensor=TensorDesc.of(x), output_tensor=TensorDesc.of(expected)
)
(output,) = dmlgpu.evaluate(relu, [x])
assert np.array_equal(output, expected)

fused = descs.Gemm(
    a_tensor=TensorDesc.of(x),
    b_tensor=TensorDesc(DataType.FLOAT32, (3, 3)),
    c_tensor=None,
    output_tensor=TensorDesc.of(x),
    trans_a=MatrixTransform.NONE,
    trans_b=MatrixTransform.NONE,
    alpha=1.0,
    beta=0.0,
    fused_activation=descs.ActivationRelu(),  # it needs no tensors
)
(output,) = dmlgpu.evaluate(fused, [x, np.eye(3, dtype=np.float32), None])
assert np.array_equal(output, expected)
