"""Batch normalisation after a convolution goes into its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.network import Constant, GraphInput, Network, Node, Result, Value
from dmlgpu.compiler.graph.passes.node_rewriting import Inner, changed, is_same, rewritten
from dmlgpu.compiler.graph.passes.rewriting import Note

NAME = "batch-normalization"
PARAMETERS = ("mean", "variance", "scale", "bias")


def fold_batch_normalization(network: Network, notes: list[Note]) -> Network:
    """Scale and shift the weights of convolutions of float32 instead of their results, where nothing but a
    BATCH_NORMALIZATION reads these, and weights and parameters are known when the graph is initialised:

        scale * (conv(x, filter) + b - mean) / sqrt(variance + epsilon) + bias
            = conv(x, filter * factor) + (b - mean) * factor + bias,  factor = scale / sqrt(variance + epsilon)

    The new nodes read nothing but weights: later passes fold them, or compute them at initialisation.
    """
    readers = Counter(value for _, _, value in network.reads())
    readers.update(network.outputs)

    def is_known(value: Value | None) -> bool:
        if isinstance(value, GraphInput):
            tensor = network.inputs[value.index]
            return tensor is not None and tensor.owned_by_dml
        return value is None or isinstance(value, Constant)

    def change(number: int, first: int) -> Sequence[Node] | None:
        node = network.nodes[number]
        source = node.inputs[0] if node.inputs else None
        if not isinstance(node.desc, descs.BatchNormalization) or not isinstance(source, Result):
            return None
        before = network.nodes[source.node]
        if readers[source] != 1 or not all(map(is_known, (*node.inputs[1:], *before.inputs[1:]))):
            return None
        desc = _normalizing(before.desc, node.desc)
        if desc is None:
            return None
        notes.append(Note(NAME, node.name, f"done by the weights of {before.name}"))
        weights = _Weights(node, first)
        inputs = (before.inputs[0], *weights.of(before))
        return [*weights.nodes, Node(desc, inputs, before.name)]

    return rewritten(network, change)


def _normalizing(desc: object, normalization: descs.BatchNormalization) -> descs.Convolution | None:
    """Return a convolution whose weights normalise; None where it or the normalisation is of another kind."""
    if not isinstance(desc, descs.Convolution) or desc.fused_activation is not None or normalization.epsilon <= 0:
        return None
    vector = _vector(normalization)
    parameters = [getattr(normalization, f"{name}_tensor") for name in PARAMETERS]
    if (
        any(tensor.sizes != vector.sizes or tensor.data_type is not DataType.FLOAT32 for tensor in parameters)
        or (desc.direction is not ConvolutionDirection.FORWARD and desc.group_count > 1)
        or not is_same(desc.output_tensor, normalization.input_tensor)
    ):
        return None
    return changed(
        desc,
        filter_tensor=TensorDesc(DataType.FLOAT32, desc.filter_tensor.sizes),
        bias_tensor=vector,
        output_tensor=normalization.output_tensor,
        fused_activation=normalization.fused_activation,
    )


def _vector(normalization: descs.BatchNormalization) -> TensorDesc:
    """Return a tensor of one number per channel."""
    _, channels, *spatial = normalization.input_tensor.sizes
    return TensorDesc(DataType.FLOAT32, (1, channels, *(1 for _ in spatial)))


class _Weight(NamedTuple):
    """A tensor that is known at initialisation."""

    value: Value | None
    tensor: TensorDesc


class _Weights:
    """Nodes that compute weights with a normalisation in them.

    Args:
        node: the normalisation.
        first: the number of the first of them.
    """

    def __init__(self, node: Node, first: int):
        assert isinstance(node.desc, descs.BatchNormalization)
        self.nodes: list[Node] = []
        self._name, self._first = node.name, first
        self._vector, self._epsilon = _vector(node.desc), node.desc.epsilon
        self._given = {
            name: _Weight(value, getattr(node.desc, f"{name}_tensor"))
            for name, value in zip(PARAMETERS, node.inputs[1:], strict=True)
        }

    def of(self, convolution: Node) -> tuple[Value | None, Value | None]:
        """Return the filter and the bias of a convolution, normalised."""
        desc, given = convolution.desc, self._given
        assert isinstance(desc, descs.Convolution)
        _, filters, bias = convolution.inputs
        deviation = self._deviation(given["variance"])
        factor = self._element_wise(descs.ElementWiseDivide, "factor", given["scale"], deviation)
        outputs = 0 if desc.direction is ConvolutionDirection.FORWARD else 1
        strides = tuple(int(dimension == outputs) for dimension in range(len(desc.filter_tensor.sizes)))
        repeated = _Weight(factor.value, TensorDesc(DataType.FLOAT32, desc.filter_tensor.sizes, strides))
        scaled = self._element_wise(descs.ElementWiseMultiply, "filter", _Weight(filters, desc.filter_tensor), repeated)
        if desc.bias_tensor is None:
            moved = self._element_wise(descs.ElementWiseMultiply, "mean", given["mean"], factor)
            shift = self._element_wise(descs.ElementWiseSubtract, "bias", given["bias"], moved)
        else:
            centered = self._element_wise(
                descs.ElementWiseSubtract, "centered", _Weight(bias, desc.bias_tensor), given["mean"]
            )
            moved = self._element_wise(descs.ElementWiseMultiply, "moved", centered, factor)
            shift = self._element_wise(descs.ElementWiseAdd, "bias", moved, given["bias"])
        return scaled.value, shift.value

    def _deviation(self, variance: _Weight) -> _Weight:
        bias = ScaleBias(1.0, self._epsilon)
        desc = descs.ElementWiseSqrt(input_tensor=variance.tensor, output_tensor=self._vector, scale_bias=bias)
        return self._add("deviation", desc, (variance.value,), self._vector)

    def _element_wise(self, kind: Any, what: str, a: _Weight, b: _Weight) -> _Weight:
        output = TensorDesc(DataType.FLOAT32, a.tensor.sizes)
        desc = kind(a_tensor=a.tensor, b_tensor=b.tensor, output_tensor=output)
        return self._add(what, desc, (a.value, b.value), output)

    def _add(self, what: str, desc: Any, inputs: tuple[Value | None, ...], output: TensorDesc) -> _Weight:
        self.nodes.append(Node(desc, inputs, f"{self._name} {what}"))
        return _Weight(Inner(self._first + len(self.nodes) - 1, 0), output)
