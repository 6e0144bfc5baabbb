"""GELU as in the feed-forward layers of transformers, computed with the error
function, not with the tanh approximation.
"""

import math

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

x = np.linspace(-4, 4, 9, dtype=np.float32)
expected = [
    0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()
]

assert np.allclose(ops.gelu(x), expected, rtol=1e-4, atol=1e-6)

gelu = descs.ActivationGelu(
    input_tensor=TensorDesc.of(x), output_tensor=TensorDesc.of(x)
)
(output,) = dmlgpu.evaluate(gelu, [x])
assert np.allclose(output, expected, rtol=1e-4, atol=1e-6)
