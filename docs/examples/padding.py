"""Reflection padding by one pixel, as style transfer pads before a convolution.
The edge is not repeated.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import PaddingMode

images = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
expected = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")

amounts = {"start_padding": (0, 0, 1, 1), "end_padding": (0, 0, 1, 1)}
assert np.array_equal(
    ops.directml.padding(images, padding_mode="reflection", **amounts), expected
)

padding = descs.Padding(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc.of(expected),
    padding_mode=PaddingMode.REFLECTION,
    padding_value=0.0,
    **amounts,
)
(output,) = dmlgpu.evaluate(padding, [images])
assert np.array_equal(output, expected)
