"""Look up words in an embedding table: one row per index. Negative indices
count from the end. DirectML requires indices and output to have the rank of the
table, so dimensions of size 1 are put in front; `index_dimensions` is the
actual rank of the indices.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType

table = np.arange(20, dtype=np.float32).reshape(5, 4)
words = np.array([3, 0, -1], np.int32)
expected = table[words]

assert np.array_equal(ops.take(table, words, axis=0), expected)

gather = descs.Gather(
    input_tensor=TensorDesc.of(table),
    indices_tensor=TensorDesc(DataType.INT32, (1, 3)),
    output_tensor=TensorDesc(DataType.FLOAT32, (3, 4)),
    axis=0,
    index_dimensions=1,
)
(output,) = dmlgpu.evaluate(gather, [table, words.reshape(1, 3)])
assert np.array_equal(output, expected)
