"""Crop a region of a feature map to a fixed size, as detectors do: 2x2 outputs,
each the mean of 2x2 samples interpolated between pixels. A region is x1, y1,
x2, y2. For a linear feature map the result is its value at the centers of the
cells.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction

y, x = np.mgrid[0:8, 0:8].astype(np.float32)
features = (10 * y + x).reshape(1, 1, 8, 8)  # element (y, x) is 10 * y + x
regions = np.array([[1, 2, 5, 6]], np.float32).reshape(1, 1, 1, 4)
images = np.array([0], np.uint32).reshape(1, 1, 1, 1)

centers_x, centers_y = (
    np.array([2, 4]) - 0.5,
    np.array([3, 5]) - 0.5,
)  # pixel centers lie at 0.5
expected = (10 * centers_y[:, None] + centers_x).reshape(1, 1, 2, 2)

attributes = {
    "spatial_scale_x": 1.0,
    "spatial_scale_y": 1.0,
    "input_pixel_offset": 0.5,
    "output_pixel_offset": -0.5,
    "out_of_bounds_input_value": 0.0,
    "minimum_samples_per_output": 2,
    "maximum_samples_per_output": 2,
    "align_regions_to_corners": False,
}
modes = {"reduction_function": "average", "interpolation_mode": "linear"}
output = ops.directml.roi_align1(
    features, regions, images, **modes, **attributes, output_sizes=(1, 1, 2, 2)
)
assert np.allclose(output, expected)

align = descs.RoiAlign1(
    input_tensor=TensorDesc.of(features),
    roi_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, 4)),
    batch_indices_tensor=TensorDesc.of(images),
    output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 2)),
    reduction_function=ReduceFunction.AVERAGE,
    interpolation_mode=InterpolationMode.LINEAR,
    **attributes,
)
(output,) = dmlgpu.evaluate(align, [features, regions, images])
assert np.allclose(output, expected)
