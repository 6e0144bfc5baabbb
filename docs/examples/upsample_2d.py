"""Repeat every pixel twice in height and three times in width, as decoders and
detectors do.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import InterpolationMode

images = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
expected = images.repeat(2, axis=2).repeat(3, axis=3)

scale = descs.Size2D(width=3, height=2)
assert np.array_equal(
    ops.directml.upsample_2d(
        images, scale_size=scale, interpolation_mode="nearest_neighbor"
    ),
    expected,
)

upsample = descs.Upsample2d(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc.of(expected),
    scale_size=scale,
    interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
)
(output,) = dmlgpu.evaluate(upsample, [images])
assert np.array_equal(output, expected)
