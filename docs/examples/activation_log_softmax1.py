"""The logarithm of softmax over the last axis, as used by cross-entropy losses.
It stays finite where softmax underflows to 0.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

logits = np.array([[1, 2, 3], [0, -500, 500]], np.float32)
wide = logits.astype(np.float64)
expected = wide - np.logaddexp.reduce(wide, axis=-1, keepdims=True)

assert np.allclose(
    ops.log_softmax(logits, axis=-1), expected, rtol=1e-5, atol=1e-6
)

log_softmax = descs.ActivationLogSoftmax1(
    input_tensor=TensorDesc.of(logits),
    output_tensor=TensorDesc.of(logits),
    axes=(1,),
)
(output,) = dmlgpu.evaluate(log_softmax, [logits])
assert np.allclose(output, expected, rtol=1e-5, atol=1e-6)
