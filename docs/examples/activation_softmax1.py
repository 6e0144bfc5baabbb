"""Softmax over the last axis, as over the classes of a classifier. The results
sum to 1 over `axes`. The largest logit is subtracted first, so that large
logits do not overflow.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

logits = np.array([[1, 2, 3, 4], [1000, 1001, 1002, 1003]], np.float32)
powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
expected = powers / powers.sum(axis=-1, keepdims=True)

assert np.allclose(ops.softmax(logits, axis=-1), expected, rtol=1e-5)

softmax = descs.ActivationSoftmax1(
    input_tensor=TensorDesc.of(logits),
    output_tensor=TensorDesc.of(logits),
    axes=(logits.ndim - 1,),
)
(output,) = dmlgpu.evaluate(softmax, [logits])
assert np.allclose(output, expected, rtol=1e-5)
assert np.allclose(output.sum(axis=-1), 1, rtol=1e-6)
