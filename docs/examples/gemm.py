"""A fully connected layer. The weights are stored as {outputs, inputs}, so they
are transposed. The bias is the same for every row.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, MatrixTransform

rng = np.random.default_rng(0)
rows = rng.standard_normal((5, 8)).astype(np.float32)
weights = rng.standard_normal((3, 8)).astype(np.float32)
bias = np.array([0.5, -1, 2], np.float32)
expected = rows.astype(np.float64) @ weights.T + bias

assert np.allclose(ops.linear(rows, weights, bias), expected, atol=1e-4)
assert np.allclose(ops.matmul(rows, weights.T), expected - bias, atol=1e-4)

gemm = descs.Gemm(
    a_tensor=TensorDesc.of(rows),
    b_tensor=TensorDesc.of(weights),
    c_tensor=TensorDesc(DataType.FLOAT32, (5, 3), strides=(0, 1)),
    output_tensor=TensorDesc(DataType.FLOAT32, (5, 3)),
    trans_a=MatrixTransform.NONE,
    trans_b=MatrixTransform.TRANSPOSE,
    alpha=1.0,
    beta=1.0,
    fused_activation=None,
)
(output,) = dmlgpu.evaluate(
    gemm, [rows, weights, np.broadcast_to(bias, (5, 3))]
)
assert np.allclose(output, expected, atol=1e-4)
