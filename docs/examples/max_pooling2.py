"""ResNet's pooling: 3x3 windows, stride 2, one pixel of padding, which is never
the maximum.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops

rng = np.random.default_rng(0)
images = -rng.random(
    (1, 2, 6, 6), np.float32
)  # negative, so zero padding would win
padded = np.pad(
    images, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf
)
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[
    :, :, ::2, ::2
]
expected = windows.max(axis=(-2, -1))

assert np.array_equal(ops.max_pool2d(images, 3, stride=2, padding=1), expected)

pooling = descs.MaxPooling2(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc.of(expected),
    output_indices_tensor=None,
    strides=(2, 2),
    window_size=(3, 3),
    start_padding=(1, 1),
    end_padding=(1, 1),
    dilations=(1, 1),
)
(output,) = dmlgpu.evaluate(pooling, [images])
assert np.array_equal(output, expected)
