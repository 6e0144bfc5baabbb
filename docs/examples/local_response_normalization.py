"""AlexNet's normalization across five adjacent channels. `alpha` is divided by
the window size.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

rng = np.random.default_rng(0)
images = rng.standard_normal((1, 8, 2, 2)).astype(np.float32)
padded = np.pad(
    images.astype(np.float64) ** 2, ((0, 0), (2, 2), (0, 0), (0, 0))
)
squares = sum(padded[:, shift : shift + 8] for shift in range(5))
expected = images / (2 + 1e-4 / 5 * squares) ** 0.75

output = ops.directml.local_response_normalization(
    images, cross_channel=True, local_size=5, alpha=1e-4, beta=0.75, bias=2.0
)
assert np.allclose(output, expected, rtol=1e-4, atol=1e-6)

normalization = descs.LocalResponseNormalization(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc.of(images),
    cross_channel=True,
    local_size=5,
    alpha=1e-4,
    beta=0.75,
    bias=2.0,
)
(output,) = dmlgpu.evaluate(normalization, [images])
assert np.allclose(output, expected, rtol=1e-4, atol=1e-6)
