"""Resize an image to twice its size with linear interpolation. Pixels are
squares: their centers lie half a pixel from their corners, hence the offsets
0.5 and -0.5 (PyTorch's `align_corners=False`, ONNX's `half_pixel`).
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode

images = np.array([[0, 4, 8], [12, 16, 32]], np.float32).reshape(1, 1, 2, 3)


def doubled(rows):
    """Double the rows: 3/4 of the nearest and 1/4 of the next; edges repeat."""
    above = np.vstack([rows[:1], rows[:-1]])
    below = np.vstack([rows[1:], rows[-1:]])
    return np.stack(
        [0.75 * rows + 0.25 * above, 0.75 * rows + 0.25 * below], axis=1
    ).reshape(-1, rows.shape[1])


expected = doubled(doubled(images[0, 0]).T).T.reshape(1, 1, 4, 6)
assert np.allclose(ops.resize(images, (4, 6), mode="linear"), expected)

resample = descs.Resample2(
    input_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 4, 6)),
    interpolation_mode=InterpolationMode.LINEAR,
    rounding_direction=AxisDirection.INCREASING,
    scales=(1.0, 1.0, 2.0, 2.0),
    input_pixel_offsets=(0.5, 0.5, 0.5, 0.5),
    output_pixel_offsets=(-0.5, -0.5, -0.5, -0.5),
)
(output,) = dmlgpu.evaluate(resample, [images])
assert np.allclose(output, expected)
