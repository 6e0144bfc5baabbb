"""Every second column of the last two rows, reversed. An offset and a size in
the input define the window; a negative stride starts at its end.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

x = np.arange(24, dtype=np.float32).reshape(4, 6)
expected = x[2:4, 5:0:-2]  # columns 5, 3, 1

window = {
    "input_window_offsets": (2, 1),
    "input_window_sizes": (2, 5),
    "input_window_strides": (1, -2),
}
assert np.array_equal(
    ops.directml.slice1(x, **window, output_sizes=(2, 3)), expected
)

cut = descs.Slice1(
    input_tensor=TensorDesc.of(x),
    output_tensor=TensorDesc(DataType.FLOAT32, (2, 3)),
    **window,
)
(output,) = dmlgpu.evaluate(cut, [x])
assert np.array_equal(output, expected)
