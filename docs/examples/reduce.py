"""Global average pooling: the mean of an image's pixels per channel. Reduced
axes stay with size 1. `ReduceFunction` also has sums, norms, minimum and
maximum, and their indices.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, ReduceFunction

images = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
expected = images.mean(axis=(2, 3), keepdims=True)

assert np.array_equal(ops.mean(images, axis=(2, 3), keepdims=True), expected)
assert np.array_equal(
    ops.directml.reduce(images, function="average", axes=(2, 3)), expected
)

mean = descs.Reduce(
    function=ReduceFunction.AVERAGE,
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc(DataType.FLOAT32, (2, 3, 1, 1)),
    axes=(2, 3),
)
(output,) = dmlgpu.evaluate(mean, [images])
assert np.array_equal(output, expected)
