"""Convert logits to probabilities. Large inputs give 0 or 1, no overflow."""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

logits = np.array([-100, -2, 0, 2, 100], np.float32)
expected = 0.5 * (1 + np.tanh(logits.astype(np.float64) / 2))

assert np.allclose(ops.sigmoid(logits), expected, rtol=1e-5, atol=1e-7)

sigmoid = descs.ActivationSigmoid(
    input_tensor=TensorDesc.of(logits), output_tensor=TensorDesc.of(logits)
)
(output,) = dmlgpu.evaluate(sigmoid, [logits])
assert np.allclose(output, expected, rtol=1e-5, atol=1e-7)
