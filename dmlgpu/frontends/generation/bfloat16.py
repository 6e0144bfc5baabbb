"""Networks with weights of BFLOAT16, or of this type as a whole: they are computed in float32, and matrices stay in two
bytes per element."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dmlgpu.frontends.generation.editing import replace_entries, stand_in
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import check
from dmlgpu.frontends.onnx.rewriting import bodies_in
from dmlgpu.frontends.onnx.values import OnnxValue

_FLOAT, _BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16
_FLOATS = (_FLOAT, _BFLOAT16)

_MATRIX = 2
"""Rank of a matrix."""

_READERS = frozenset(("Cast", "Gather", "Gemm", "MatMul", "Transpose"))
"""Operators that read a matrix in its own type: products convert elements while they read them."""


def widen_bfloat16(proto: ModelProto, folder: Path | None, weights: SharedWeights) -> dict[str, OnnxValue]:
    """Let a model with BFLOAT16 compute in float32, and return the values of its weights of that type by name.

    Matrices that only products and lookups read stay in BFLOAT16. Other weights become float32.

    Args:
        proto: The model.
        folder: Folder of its external data; None if it has none.
        weights: Weights of this network and others.

    Raises:
        ModelError: If the model is malformed, or the data of a weight are missing or have another size.
    """
    if not _has_bfloat16(proto.graph):
        return {}
    check(proto)
    graph = proto.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == _BFLOAT16}
    _replace_types(graph)
    _drop_casts(graph, tensors)
    readers = _readers(graph)
    values = {name: weights.of(tensor, folder) for name, tensor in tensors.items()}
    narrow = [name for name, value in values.items() if len(value.shape) == _MATRIX and readers[name] <= _READERS]
    values = {name: value if name in narrow else weights.converted(value, _wide) for name, value in values.items()}
    _add_casts(graph, narrow)
    unchanged = [tensor for tensor in graph.initializer if tensor.name not in tensors]
    stand_ins = [
        stand_in(name, value.shape, helper.np_dtype_to_tensor_dtype(value.data_type.numpy))
        for name, value in values.items()
    ]
    replace_entries(graph.initializer, [*unchanged, *stand_ins])
    return values


def _has_bfloat16(graph: GraphProto) -> bool:
    """Return whether weights, inputs or outputs are of this type."""
    return any(tensor.data_type == _BFLOAT16 for tensor in graph.initializer) or any(
        info.type.tensor_type.elem_type == _BFLOAT16 for info in (*graph.input, *graph.output)
    )


def _wide(elements: NDArray[Any]) -> OnnxValue:
    """Return elements as float32."""
    return OnnxValue.of_weight(elements.astype(np.float32))


def _scopes(graph: GraphProto) -> tuple[GraphProto, ...]:
    """Return a graph and the bodies in it."""
    return (graph, *bodies_in(attribute for node in graph.node for attribute in node.attribute))


def _replace_types(graph: GraphProto) -> None:
    """Replace BFLOAT16 by FLOAT in declarations, casts and constants, of bodies as well."""
    for scope in _scopes(graph):
        del scope.value_info[:]
        for info in (*scope.input, *scope.output):
            if info.type.tensor_type.elem_type == _BFLOAT16:
                info.type.tensor_type.elem_type = _FLOAT
        for tensor in () if scope is graph else scope.initializer:
            _widen(tensor)
        for node in scope.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.INT and attribute.name in ("to", "dtype"):
                    attribute.i = _FLOAT if attribute.i == _BFLOAT16 else attribute.i
                elif attribute.type == AttributeProto.TENSOR:
                    _widen(attribute.t)


def _widen(tensor: TensorProto) -> None:
    """Replace a small tensor by one of FLOAT."""
    if tensor.data_type == _BFLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _drop_casts(graph: GraphProto, weights: Container[str]) -> None:
    """Remove casts of weights, and let their readers read the weights themselves."""
    outputs = {info.name for info in graph.output}
    aliases = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Cast"
        and node.input[0] in weights
        and node.output[0] not in outputs
        and any(attribute.name == "to" and attribute.i in _FLOATS for attribute in node.attribute)
    }
    for scope in _scopes(graph):
        for node in scope.node:
            node.input[:] = [aliases.get(name, name) for name in node.input]
    replace_entries(graph.node, [node for node in graph.node if node.output[0] not in aliases])


def _readers(graph: GraphProto) -> dict[str, set[str]]:
    """Return the operators that read each name; "output" is added for outputs of the graph."""
    readers: dict[str, set[str]] = defaultdict(set)
    for scope in _scopes(graph):
        for node in scope.node:
            for name in node.input:
                readers[name].add(node.op_type)
        for info in scope.output:
            readers[info.name].add("output")
    return readers


def _add_casts(graph: GraphProto, matrices: Container[str]) -> None:
    """Let nodes read matrices as float32: lookups convert the rows that they find."""
    wide: dict[str, NodeProto] = {}
    for scope in _scopes(graph):
        nodes = []
        for node in scope.node:
            nodes.append(node)
            if node.op_type == "Gather" and node.input[0] in matrices:
                output, node.output[0] = node.output[0], f"{node.output[0]}.rows"
                nodes.append(helper.make_node("Cast", [node.output[0]], [output], output, to=_FLOAT))
            elif node.op_type != "Cast":
                for index, name in enumerate(node.input):
                    if name in matrices:
                        node.input[index] = f"{name}.wide"
                        wide[name] = helper.make_node("Cast", [name], [f"{name}.wide"], f"{name}.wide", to=_FLOAT)
        replace_entries(scope.node, nodes)
    replace_entries(graph.node, [*wide.values(), *graph.node])
