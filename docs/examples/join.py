"""Concatenate the channels of two branches, as a U-Net does."""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

skipped = np.zeros((1, 2, 3, 3), np.float32)
upsampled = np.ones((1, 4, 3, 3), np.float32)
expected = np.concatenate([skipped, upsampled], axis=1)

assert np.array_equal(ops.concatenate([skipped, upsampled], axis=1), expected)

join = descs.Join(
    input_tensors=(TensorDesc.of(skipped), TensorDesc.of(upsampled)),
    output_tensor=TensorDesc.of(expected),
    axis=1,
)
(output,) = dmlgpu.evaluate(join, [skipped, upsampled])
assert np.array_equal(output, expected)
