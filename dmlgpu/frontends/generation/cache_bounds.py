"""Bounds of queries, keys and values, by which caches can be float16 without overflow.

A row after RMS or layer normalization is x = g * u + c with weight g, bias c and ||u|| <= sqrt(d), for any tokens. By
the Cauchy-Schwarz inequality, an element of the product W x + b is at most sqrt(d) ||W_i * g|| + ||W_i|| ||c||
+ |b_i|. A rotary embedding multiplies this by at most |cos| + |sin|. Attention sums scores in float32, and its output
is a mean of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper

from dmlgpu.common.errors import shown
from dmlgpu.compiler.target import Profile
from dmlgpu.frontends.generation.language_model import CacheFormat, LanguageModel
from dmlgpu.frontends.generation.network import cache_part
from dmlgpu.frontends.onnx.model import light
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.runtime.device import Device

Floats = NDArray[np.float64]

MAX_ELEMENT = float(np.finfo(np.float16).max) / 2
"""Maximum bound of an element; the other half of the range is for rounding, of sums and of activations to 8 bits."""

_NORMS = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1, None),
    "SimplifiedLayerNormalization": (1, None),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2, None),
}
"""Inputs with weight and bias of operators that normalize the last axis."""

_SAME_ELEMENTS = frozenset(("Cast", "Identity", "Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze"))
_CACHES, _TABLES, _ADDED, _HEAD_NORMS = (3, 4), (7, 8), (10, 11), (14, 15)
"""Inputs of GroupQueryAttention: caches; cosines and sines; a bias of scores, and sinks; weights of heads."""


def default_caches(model: LanguageModel, device: Device) -> CacheFormat | None:
    """Return the format of caches if none is requested: float16 on GPUs if no element can overflow, else the network's.

    CPU adapters convert each element that they read, which takes longer than reading float32.
    """
    target = getattr(device.backend, "target", None)
    if target is None or target.profile is Profile.CPU or model.encoder is not None:
        return None
    proto, folder, _ = light(model.network)
    bounds = CacheBounds(proto.graph, model.weights, folder)
    return CacheFormat(np.dtype(np.float16), model.config.head_size) if bounds.fit(MAX_ELEMENT) else None


class CacheBounds:
    """Bounds of queries, keys and values; infinity if a bound is not known.

    Args:
        graph: The network.
        weights: Initializers that are in none of its files.
        folder: Folder of its external data; None if it has none.
    """

    def __init__(self, graph: GraphProto, weights: Mapping[str, OnnxValue], folder: Path | None):
        self._graph, self._weights, self._folder = graph, weights, folder
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}

    def fit(self, limit: float) -> bool:
        """Return whether GroupQueryAttention updates all caches, and no element of queries, keys and values can exceed
        a limit."""
        attentions = [node for node in self._graph.node if node.op_type == "GroupQueryAttention"]
        updated = {_input(node, index) for node in attentions for index in _CACHES}
        caches = {info.name for info in self._graph.input if cache_part(info.name)}
        if not caches or not caches <= updated:
            return False
        with np.errstate(invalid="ignore", over="ignore"):  # NaN is not less than the limit
            return all(bound <= limit for node in attentions for bound in self.of_attention(node))

    def of_attention(self, node: NodeProto) -> Iterator[float]:
        """Yield a bound of each part, queries, keys and values, or of all if they are one tensor; infinity as well if
        scores are stored in the type of the caches."""
        has_norms, is_packed = any(_input(node, index) for index in _HEAD_NORMS), not _input(node, 1)
        stores_scores = (
            any(_input(node, index) for index in _ADDED)
            or _attribute(node, "softcap", 0.0)
            or _attribute(node, "smooth_softmax", 0) == 1
        )
        if stores_scores or (is_packed and has_norms):
            yield math.inf
            return
        turn = 1.0
        if _attribute(node, "do_rotary", 0):
            cos, sin = (self._array(_input(node, index)) for index in _TABLES)
            turn = float(np.max(np.abs(cos) + np.abs(sin)))
        scale = max(1.0, abs(_attribute(node, "scale", 0.0)))  # queries may be multiplied by it first
        for index, factor in enumerate((turn * scale, turn, 1.0)[: 1 if is_packed else 3]):
            if has_norms and index < len(_HEAD_NORMS):
                norm = self._array(_input(node, _HEAD_NORMS[index]))
                yield factor * math.sqrt(norm.size) * _max(norm)
            else:
                yield factor * self.of_element(_input(node, index))

    def of_element(self, name: str) -> float:
        """Return a bound of the magnitude of the elements of a value."""
        node = self._producers.get(name)
        if node is None:
            return _max(self._array(name))
        if node.op_type in _SAME_ELEMENTS:
            return self.of_element(node.input[0])
        if node.op_type == "Add":
            return sum(map(self.of_element, node.input))
        row = self._row(name)
        if row is None:
            return self._of_product(node)
        weight, bias = row
        return float(np.max(math.sqrt(weight.size) * weight + bias))

    def _row(self, name: str) -> tuple[Floats, Floats] | None:
        """Return the magnitudes of weight and bias of a normalized row; None if the value is no such row."""
        node = self._producers.get(name)
        if node is None or node.output[0] != name:
            return None
        if node.op_type in ("Cast", "Identity"):
            return self._row(node.input[0])
        if node.op_type not in _NORMS or _attribute(node, "axis", -1) != -1:
            return None
        at, after = _NORMS[node.op_type]
        weight = np.abs(self._array(_input(node, at)))
        has_bias = after is not None and _input(node, after)
        bias = np.abs(self._array(_input(node, after))) if after is not None and has_bias else np.zeros_like(weight)
        return (weight, bias) if weight.ndim == 1 else None

    def _of_product(self, node: NodeProto) -> float:
        """Return a bound of a product of normalized rows and a weight."""
        row = self._row(node.input[0])
        if row is None or node.op_type not in ("MatMul", "MatMulNBits"):
            return math.inf
        weight, bias = row
        squares = np.stack([weight.size * weight**2, np.full_like(weight, np.sum(bias**2))])
        sums = self._quantized(node, squares) if node.op_type == "MatMulNBits" else self._floats(node.input[1], squares)
        added = _input(node, 5)
        return float(np.sqrt(sums).sum(axis=0).max()) + (_max(self._array(added)) if added else 0.0)

    def _quantized(self, node: NodeProto, squares: Floats) -> Floats:
        """Return sums of squares {2, N} of the rows of a quantized weight, from scales and the range of codes."""
        rows, inner, bits, block = (_attribute(node, name, 0) for name in ("N", "K", "bits", "block_size"))
        if _input(node, 4) or inner != squares.shape[1]:
            return np.array([math.inf])
        scales, last = self._array(node.input[2]), 2**bits - 1
        codes = np.array(2 ** (bits - 1))
        if _input(node, 3):
            zero_points = self._array(node.input[3])
            is_packed = zero_points.size != scales.size
            codes = np.array(last) if is_packed else np.maximum(np.abs(zero_points), np.abs(last - zero_points))
        largest = (scales.reshape(-1) * codes.reshape(-1)).reshape(rows, -1)
        padded = np.pad(squares, ((0, 0), (0, -inner % block))).reshape(2, -1, block).sum(axis=2)
        return padded @ (largest**2).T

    def _floats(self, name: str, squares: Floats) -> Floats:
        """Return sums of squares {2, N} of the columns of a weight {K, N}."""
        axis = 0
        while (node := self._producers.get(name)) is not None and node.op_type in ("Cast", "Transpose"):
            name, axis = node.input[0], axis ^ (node.op_type == "Transpose")
        matrix = self._value(name)
        if matrix is None or len(matrix.shape) != 2 or matrix.shape[axis] != squares.shape[1]:
            return np.array([math.inf])
        if axis == 0:
            return squares @ np.asarray(matrix).astype(np.float64) ** 2
        step = max(1, 2**20 // matrix.shape[1])
        spans = [slice(start, min(start + step, matrix.shape[0])) for start in range(0, matrix.shape[0], step)]
        parts = [matrix.rows(span) if isinstance(matrix, DeferredArray) else matrix[span] for span in spans]
        return np.concatenate([squares @ part.astype(np.float64).T ** 2 for part in parts], axis=1)

    def _array(self, name: str) -> Floats:
        """Return the elements of an initializer, else infinity."""
        value = self._value(name)
        return np.array([math.inf]) if value is None else np.asarray(value).astype(np.float64)

    def _value(self, name: str) -> Any:
        """Return an initializer; None if it is none."""
        if name in self._weights:
            return self._weights[name].array
        tensor = self._initializers.get(name)
        if tensor is None:
            return None
        return OnnxValue.of_tensor(tensor, f"initializer {shown(name)}", self._folder).host_array


def _input(node: NodeProto, index: int) -> str:
    """Return the name of an input; empty if it is omitted."""
    return node.input[index] if index < len(node.input) else ""


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute of a node."""
    return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)


def _max(array: Floats) -> float:
    """Return the largest magnitude."""
    return float(np.max(np.abs(array)))
