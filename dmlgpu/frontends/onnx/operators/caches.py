"""TensorScatter: rows that are written into a cache."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions


@operator("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """Put new rows into a copy of a cache, behind as many as each sequence has; round about where it is circular."""
    node.check_rank(1, len(node.shape(0)))
    cache, update = node.tensor(0), node.tensor(1)
    sizes, new = cache.sizes, update.sizes
    axis = node.axis(node.integer("axis", -2), len(sizes))
    mode = node.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.refusal(f"mode must be linear or circular, got {mode!r}")
    if axis == 0:
        raise node.refusal("axis must not be 0, the sequences'")
    if node.has(2):
        most = sizes[axis] if mode == "linear" else np.iinfo(np.int32).max  # places are INT32
        node.check_range(2, 0, int(most) - new[axis], "write_indices")
    rows = [1] * len(sizes)
    rows[axis] = new[axis]
    places = dml.fill_value_sequence(node.builder, rows, DataType.INT32, 0, 1)
    rows[0] = sizes[0]
    places = broadcast_to(places, rows)
    if node.has(2):
        starts = dml.cast(reshaped(node.tensor(2), (sizes[0], *(1,) * (len(sizes) - 1))), DataType.INT32)
        places = dml.add(places, broadcast_to(starts, rows))
    if mode == "circular":
        count = node.constant([sizes[axis]], DataType.INT32)
        places = dml.modulus_floor(places, broadcast_to(reshaped(count, (1,) * len(sizes)), rows))
    indices = dml.identity(broadcast_to(places, new))
    return node.valued(functions.scatter_elements(cache, indices, update, axis=axis))
