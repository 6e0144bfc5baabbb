"""Networks whose weights are of BFLOAT16, made from networks of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from dmlgpu.frontends.generation.editing import rename, replace_entries

FLOAT, BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16
_MIN_SIZE = 64


def rounded(array: ArrayLike) -> NDArray[np.float32]:
    """Return float32 elements cut to BFLOAT16."""
    return (np.asarray(array, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def tensor_of(name: str, array: NDArray[np.float32], *, as_raw: bool = True) -> TensorProto:
    """Return a tensor of BFLOAT16."""
    words = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensor = TensorProto(name=name, data_type=BFLOAT16, dims=array.shape)
    if as_raw:
        tensor.raw_data = words.tobytes()
    else:
        tensor.int32_data.extend(map(int, words.reshape(-1)))
    return tensor


def cut(model: ModelProto) -> None:
    """Cut the weights of a network to BFLOAT16, stored as float32."""
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(tensor)), tensor.name))


def narrow(model: ModelProto) -> int:
    """Store the weights of a network in BFLOAT16 if that is exact, and declare its inputs and outputs of this type.

    All are cast, so the network computes in float32 as before.

    Returns:
        The number of elements of the weights.
    """
    graph = model.graph
    count = 0
    before, after = [], []
    for tensor in graph.initializer:
        if tensor.data_type != FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        if array.size < _MIN_SIZE or not np.array_equal(rounded(array), array):
            continue
        count += array.size
        stored = f"{tensor.name}.stored"
        before.append(helper.make_node("Cast", [stored], [tensor.name], to=FLOAT))
        tensor.CopyFrom(tensor_of(stored, array))
    declared = [info for info in (*graph.input, *graph.output) if info.type.tensor_type.elem_type == FLOAT]
    wide = {info.name: f"{info.name}.wide" for info in declared}
    rename(graph, lambda name: wide.get(name, name))
    for info in declared:
        info.name = info.name.removesuffix(".wide")
        info.type.tensor_type.elem_type = BFLOAT16
    sources = {info.name for info in graph.input}
    for name, inner in wide.items():
        if name in sources:
            before.append(helper.make_node("Cast", [name], [inner], to=FLOAT))
        else:
            after.append(helper.make_node("Cast", [inner], [name], to=BFLOAT16))
    replace_entries(graph.node, [*before, *graph.node, *after])
    return count
