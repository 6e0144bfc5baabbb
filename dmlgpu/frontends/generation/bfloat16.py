"""Weights of BFLOAT16, which devices do not have: matrices as float16 with a scale per row, other tensors as float32.

A network with such weights, or of this type as a whole, is computed in float32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dmlgpu.frontends.generation.editing import replace_entries, stand_in
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import check
from dmlgpu.frontends.onnx.rewriting import bodies_in
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray
from dmlgpu.frontends.onnx.values import OnnxValue

_FRACTION, _EXPONENT, _BIAS = 7, 0xFF, 127
"""Bits of the fraction, mask of the exponent, and the exponent's offset."""

_HALF_EXPONENT, _MIN_EXPONENT = 15, -126
"""Exponents of the largest float16 and of the smallest normal float32."""

_FLOAT, _BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16
_MATRIX = 2
"""Rank of a matrix."""

_FLOATS = (_FLOAT, _BFLOAT16)


def widened(words: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Convert BFLOAT16 elements, given as words, to float32."""
    return (words.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class ScaledHalves:
    """A matrix as float16 elements, and a power of two per row by which they are multiplied.

    Elements are exact down to 2^-32 of the largest in their row; smaller ones are rounded to 2^-40 of it.
    """

    elements: DeferredArray
    scales: DeferredArray

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.elements.nbytes + self.scales.nbytes

    @classmethod
    def of(cls, shape: tuple[int, int], words: Callable[[slice], NDArray[np.uint16]]) -> ScaledHalves:
        """Return a BFLOAT16 matrix, given a function that returns its rows as words."""
        rows, inner = shape

        def scales(span: slice) -> NDArray[np.float32]:
            exponents = words(span) >> _FRACTION & _EXPONENT
            largest = np.where(exponents == _EXPONENT, 0, exponents).max(1).astype(np.int32)
            return np.ldexp(np.float32(1), np.maximum(largest - _BIAS - _HALF_EXPONENT, _MIN_EXPONENT))

        def elements(span: slice) -> NDArray[np.float16]:
            return (widened(words(span)) / scales(span)[:, None]).astype(np.float16)

        return cls(
            DeferredArray(shape, np.float16, elements, 8 * inner), DeferredArray((rows,), np.float32, scales, 4 * inner)
        )


def without_bfloat16(proto: ModelProto, folder: Path | None, weights: SharedWeights) -> dict[str, OnnxValue]:
    """Replace BFLOAT16 in a model by other types, and return the values of its weights by name.

    Matrices that products and lookups read stay in two bytes per element.

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
    values: dict[str, OnnxValue] = {}
    rewriting = _ScaledMatrices(graph)
    for name, tensor in tensors.items():
        words = _words(tensor, folder, weights)
        if len(words.shape) == _MATRIX and rewriting.scale(name):
            values[name], values[_scales(name)] = weights.converted(words, _halves)
        else:
            values[name] = weights.converted(words, _wide)
    rewriting.finish()
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


def _words(tensor: TensorProto, folder: Path | None, weights: SharedWeights) -> OnnxValue:
    """Return the elements of a tensor as words."""
    as_integers = TensorProto()
    as_integers.CopyFrom(tensor)
    as_integers.data_type = TensorProto.UINT16
    return weights.of(as_integers, folder)


def _halves(words: NDArray[np.uint16]) -> tuple[OnnxValue, OnnxValue]:
    """Return a matrix as float16, and its scales."""
    rows, inner = words.shape
    halves = ScaledHalves.of((rows, inner), words.__getitem__)
    return OnnxValue.of_weight(halves.elements), OnnxValue.of_weight(halves.scales)


def _wide(words: NDArray[np.uint16]) -> OnnxValue:
    """Return elements as float32."""
    return OnnxValue.of_weight(widened(words))


def _scales(name: str) -> str:
    return f"{name}.scales"


def _replace_types(graph: GraphProto) -> None:
    """Replace BFLOAT16 by FLOAT in declarations, casts and constants, of bodies as well."""
    bodies = list(bodies_in(attribute for node in graph.node for attribute in node.attribute))
    for scope in (graph, *bodies):
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
    for scope in (graph, *bodies_in(attribute for node in graph.node for attribute in node.attribute)):
        for node in scope.node:
            node.input[:] = [aliases.get(name, name) for name in node.input]
    replace_entries(graph.node, [node for node in graph.node if node.output[0] not in aliases])


_Added: TypeAlias = "dict[int, list[NodeProto]]"
"""New nodes, by the identity of the one they precede or follow."""


class _ScaledMatrices:
    """Moves the scales of matrices to the inputs or outputs of the nodes that read them."""

    def __init__(self, graph: GraphProto):
        self._graph = graph
        self._outputs = {info.name for info in graph.output}
        self._nodes = list(graph.node)
        self._readers: dict[str, list[tuple[NodeProto | None, int]]] = defaultdict(list)
        for node in self._nodes:
            for index, name in enumerate(node.input):
                self._readers[name].append((node, index))
        for body in bodies_in(attribute for node in graph.node for attribute in node.attribute):
            for name in (name for node in body.node for name in node.input):
                self._readers[name].append((None, 0))
        self._before: _Added = defaultdict(list)
        self._after: _Added = defaultdict(list)

    def scale(self, name: str) -> bool:
        """Scale a matrix; return whether all its readers can apply the scales."""
        readers = [(self._kind(node, position), node) for node, position in self._readers[name]]
        if name in self._outputs or not readers or not all(kind for kind, _ in readers):
            return False
        for index, (kind, node) in enumerate(readers):
            assert node is not None
            label = f"{name}.{index}"
            if kind == "rows":  # x @ (scales * matrix) = (x * scales) @ matrix
                self._add(self._before, node, "Mul", [node.input[0], _scales(name)], f"{label}.scaled")
                node.input[0] = f"{label}.scaled"
                self._cast(node, 1, name, label)
            elif kind == "gather":
                self._scale_lookup(node, name, label)
            else:
                self._scale_product(node, name, label)
        return True

    def finish(self) -> None:
        """Add the nodes."""
        nodes = [new for node in self._nodes for new in (*self._before[id(node)], node, *self._after[id(node)])]
        replace_entries(self._graph.node, nodes)

    def _kind(self, node: NodeProto | None, place: int) -> str:
        """Return how a node reads a matrix; empty if it cannot be scaled."""
        if node is None:
            return ""
        options = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "MatMul" and place == 1:
            return "rows"
        if node.op_type == "Gather" and place == 0 and not options.get("axis", 0):
            return "gather"
        if node.op_type == "Gemm" and place == 1:
            plain = len(node.input) == 2 or options.get("beta", 1.0) == 1
            return ("columns" if plain else "") if options.get("transB") else ("" if options.get("transA") else "rows")
        if node.op_type == "Transpose":
            products = [
                reader is not None and reader.op_type == "MatMul" and position == 1
                for reader, position in self._readers[node.output[0]]
            ]
            return "columns" if products and all(products) and node.output[0] not in self._outputs else ""
        return ""

    def _add(
        self, where: _Added, node: NodeProto, op_type: str, inputs: list[str], output: str, **options: Any
    ) -> None:
        where[id(node)].append(helper.make_node(op_type, inputs, [output], output, **options))

    def _cast(self, node: NodeProto, place: int, name: str, label: str) -> None:
        """Let a node read the matrix as float32; kernels convert it while they read it."""
        self._add(self._before, node, "Cast", [name], f"{label}.wide", to=_FLOAT)
        node.input[place] = f"{label}.wide"

    def _scale_lookup(self, node: NodeProto, name: str, label: str) -> None:
        output = node.output[0]
        node.output[0] = f"{label}.rows"
        self._add(self._after, node, "Cast", [node.output[0]], f"{label}.wide", to=_FLOAT)
        self._add(self._after, node, "Gather", [_scales(name), node.input[1]], f"{label}.factors", axis=0)
        self._add(self._after, node, "Unsqueeze", [f"{label}.factors", self._axes()], f"{label}.columns")
        self._add(self._after, node, "Mul", [f"{label}.wide", f"{label}.columns"], output)

    def _scale_product(self, node: NodeProto, name: str, label: str) -> None:
        """Scale the results of products with the transposed matrix."""
        products = [node] if node.op_type == "Gemm" else [reader for reader, _ in self._readers[node.output[0]]]
        self._cast(node, 1 if node.op_type == "Gemm" else 0, name, label)
        for index, product in enumerate(products):
            assert product is not None
            output, bias = product.output[0], product.input[2] if len(product.input) > 2 else ""
            product.output[0] = f"{label}.{index}.product"
            del product.input[2:]
            scaled = f"{label}.{index}.sum" if bias else output
            self._add(self._after, product, "Mul", [product.output[0], _scales(name)], scaled)
            if bias:
                self._add(self._after, product, "Add", [scaled, bias], output)

    def _axes(self) -> str:
        name = "bfloat16.last_axis"
        if not any(tensor.name == name for tensor in self._graph.initializer):
            self._graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), name))
        return name
