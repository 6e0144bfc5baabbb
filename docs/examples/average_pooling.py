"""Halve the size of an image by averaging 2x2 pixels."""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

images = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
expected = images.reshape(1, 2, 2, 2, 2, 2).mean(axis=(3, 5))

assert np.array_equal(ops.avg_pool2d(images, 2, stride=2), expected)

pooling = descs.AveragePooling(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc(DataType.FLOAT32, (1, 2, 2, 2)),
    strides=(2, 2),
    window_size=(2, 2),
    start_padding=(0, 0),
    end_padding=(0, 0),
    include_padding=False,
)
(output,) = dmlgpu.evaluate(pooling, [images])
assert np.array_equal(output, expected)
