"""Merged decoders as Optimum writes them: an If on ``use_cache_branch``, with the weights of both branches outside."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

_MIN_SHARED = 2
"""Minimum rank of the weights outside of the branches."""


def merge(first: ModelProto, later: ModelProto) -> ModelProto:
    """Return a model with ``later``, which has caches, in its then-branch, and ``first`` in its else-branch."""
    outputs = list(first.graph.output)
    known = {info.name for info in later.graph.output}
    for info in outputs:
        if info.name not in known:  # of the encoder's states, which do not change: an empty tensor stands for it
            sizes = [0, *(size.dim_value or 1 for size in info.type.tensor_type.shape.dim[1:])]
            empty = helper.make_tensor(info.name, info.type.tensor_type.elem_type, sizes, [])
            later.graph.node.append(helper.make_node("Constant", [], [info.name], value=empty))
    weights: dict[tuple[int, bytes, tuple[int, ...]], TensorProto] = {}
    without, with_caches = (
        _branch(model.graph, name, outputs, weights) for name, model in (("no_past", first), ("with_past", later))
    )
    inputs = {info.name: info for model in (later, first) for info in model.graph.input}
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    names = [info.name for info in outputs]
    choice = helper.make_node("If", [flag.name], names, then_branch=with_caches, else_branch=without)
    graph = helper.make_graph([choice], "merged", [*inputs.values(), flag], outputs, list(weights.values()))
    merged = helper.make_model(graph, opset_imports=first.opset_import, ir_version=first.ir_version)
    onnx.checker.check_model(merged)
    return merged


def _branch(
    graph: GraphProto,
    name: str,
    outputs: Iterable[ValueInfoProto],
    weights: dict[tuple[int, bytes, tuple[int, ...]], TensorProto],
) -> GraphProto:
    """Return a graph without inputs; its weights move to those of both branches."""
    names: dict[str, str] = {}
    own = []
    for tensor in graph.initializer:
        array = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor))
        if array.ndim < _MIN_SHARED:
            own.append(tensor)
            continue
        shared = TensorProto()
        shared.CopyFrom(tensor)
        shared.name = f"{name}.{tensor.name}_merged"
        key = tensor.data_type, array.tobytes(), array.shape
        names[tensor.name] = weights.setdefault(key, shared).name
    for node in graph.node:
        node.input[:] = [names.get(source, source) for source in node.input]
    return helper.make_graph(list(graph.node), name, [], list(outputs), own)
