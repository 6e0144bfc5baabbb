"""Looking up words in a table of embeddings: a whole row for each index. Indices may be negative, from the end.
DirectML wants as many dimensions of indices and result as of the table, so ones are put in front;
`index_dimensions` says how many count.
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
