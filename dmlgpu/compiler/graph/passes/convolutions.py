"""Folding into convolutions: zero padding before them, a bias and batch normalization after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, DataType, PaddingMode
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NetworkNode, NodeResult, Value
from dmlgpu.compiler.graph.passes.nodes import Inner, changed, is_same, rewritten
from dmlgpu.compiler.graph.passes.rewriting import NodePass, NoteTaker

LEAD = 2
"""Number of dimensions before the spatial ones: batch and channel."""


def fold_padding(network: Network, note: NoteTaker) -> Network:
    """Fold zero padding of the input into forward convolutions of floats."""

    def change(index: int, _first: int) -> Sequence[NetworkNode] | None:
        node = network.nodes[index]
        source = node.inputs[0] if node.inputs else None
        if not isinstance(node.desc, descs.Convolution) or not isinstance(source, NodeResult):
            return None
        before = network.nodes[source.node]
        desc = _padded(node.desc, operators.upgrade(before.desc))
        if desc is None:
            return None
        note(before.name, f"done by {node.name}")
        return [replace(node, desc=desc, inputs=(before.inputs[0], *node.inputs[1:]))]

    return rewritten(network, change)


PADDING = NodePass("padding", fold_padding)


def _padded(desc: descs.Convolution, padding: object) -> descs.Convolution | None:
    """Return a convolution with the padding folded in; None if it cannot be folded."""
    if (
        not isinstance(padding, descs.Padding1)
        or padding.padding_mode is not PaddingMode.CONSTANT
        or padding.padding_value != 0
        or any((*padding.start_padding[:LEAD], *padding.end_padding[:LEAD]))
        or desc.direction is not ConvolutionDirection.FORWARD
        or not is_same(padding.output_tensor, desc.input_tensor)
    ):
        return None
    return changed(
        desc,
        input_tensor=padding.input_tensor,
        start_padding=_sums(desc.start_padding, padding.start_padding[LEAD:]),
        end_padding=_sums(desc.end_padding, padding.end_padding[LEAD:]),
    )


def _sums(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


CHANNEL = 1


def fold_bias(network: Network, note: NoteTaker) -> Network:
    """Fold the addition of a per-channel value into a float32 convolution without a bias, if the addition is its
    only consumer."""
    readers = Counter(value for _, _, value in network.reads())
    readers.update(network.outputs)

    def change(index: int, _first: int) -> Sequence[NetworkNode] | None:
        node = network.nodes[index]
        if not isinstance(node.desc, descs.ElementWiseAdd | descs.ElementWiseAdd1):
            return None
        for source, added in (node.inputs, node.inputs[::-1]):
            if not isinstance(source, NodeResult) or readers[source] != 1:
                continue
            before = network.nodes[source.node]
            desc = _biased(before.desc, node.desc, swapped=source is not node.inputs[0])
            if desc is not None:
                note(node.name, f"done by {before.name}")
                return [NetworkNode(desc, (*before.inputs[:2], added), before.name)]
        return None

    return rewritten(network, change)


BIAS = NodePass("bias", fold_bias)


def _biased(
    desc: object, addition: descs.ElementWiseAdd | descs.ElementWiseAdd1, *, swapped: bool
) -> descs.Convolution | None:
    """Return a convolution with a bias; None if that is impossible.

    Args:
        desc: The convolution.
        addition: The addition.
        swapped: Whether the convolution is the second operand.
    """
    result, added = addition.a_tensor, addition.b_tensor
    if swapped:
        result, added = added, result
    if not isinstance(desc, descs.Convolution) or desc.bias_tensor is not None or desc.fused_activation is not None:
        return None
    strides = added.element_strides
    alike = all(
        not stride or dimension == CHANNEL for dimension, stride in enumerate(strides) if added.sizes[dimension] > 1
    )
    if added.data_type is not DataType.FLOAT32 or not alike or not is_same(desc.output_tensor, result):
        return None
    sizes = tuple(size if dimension == CHANNEL else 1 for dimension, size in enumerate(added.sizes))
    return changed(
        desc,
        bias_tensor=TensorDesc(DataType.FLOAT32, sizes, strides, flags=added.flags),
        output_tensor=addition.output_tensor,
        fused_activation=addition.fused_activation if isinstance(addition, descs.ElementWiseAdd1) else None,
    )


PARAMETERS = ("mean", "variance", "scale", "bias")


def fold_batch_normalization(network: Network, note: NoteTaker) -> Network:
    """Fold BATCH_NORMALIZATION into the weights of a float32 convolution if it is the only reader of the convolution,
    and weights and parameters are known at initialization:

        scale * (conv(x, filter) + b - mean) / sqrt(variance + epsilon) + bias
            = conv(x, filter * factor) + (b - mean) * factor + bias,  factor = scale / sqrt(variance + epsilon)

    The new nodes read only weights: later passes fold them, or compute them at initialization.
    """
    readers = Counter(value for _, _, value in network.reads())
    readers.update(network.outputs)

    def is_known(value: Value | None) -> bool:
        if isinstance(value, NetworkInput):
            tensor = network.inputs[value.index]
            return tensor is not None and tensor.owned_by_dml
        return value is None or isinstance(value, Constant)

    def change(index: int, first: int) -> Sequence[NetworkNode] | None:
        node = network.nodes[index]
        source = node.inputs[0] if node.inputs else None
        if not isinstance(node.desc, descs.BatchNormalization) or not isinstance(source, NodeResult):
            return None
        before = network.nodes[source.node]
        if readers[source] != 1 or not all(map(is_known, (*node.inputs[1:], *before.inputs[1:]))):
            return None
        desc = _normalizing(before.desc, node.desc)
        if desc is None:
            return None
        note(node.name, f"done by the weights of {before.name}")
        weights = _Weights(node, first)
        inputs = (before.inputs[0], *weights.of(before))
        return [*weights.nodes, NetworkNode(desc, inputs, before.name)]

    return rewritten(network, change)


BATCH_NORMALIZATION = NodePass("batch-normalization", fold_batch_normalization)


def _normalizing(desc: object, normalization: descs.BatchNormalization) -> descs.Convolution | None:
    """Return a convolution with the normalization folded into its weights; None if either is of another kind."""
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
    """A tensor that is known at initialization."""

    value: Value | None
    tensor: TensorDesc


class _Weights:
    """Nodes that compute normalized weights.

    Args:
        node: The normalization.
        first: Index of the first of these nodes.
    """

    def __init__(self, node: NetworkNode, first: int):
        assert isinstance(node.desc, descs.BatchNormalization)
        self.nodes: list[NetworkNode] = []
        self._name, self._first = node.name, first
        self._vector, self._epsilon = _vector(node.desc), node.desc.epsilon
        self._parameters = {
            name: _Weight(value, getattr(node.desc, f"{name}_tensor"))
            for name, value in zip(PARAMETERS, node.inputs[1:], strict=True)
        }

    def of(self, convolution: NetworkNode) -> tuple[Value | None, Value | None]:
        """Return the filter and the bias of a convolution, normalized."""
        desc, parameters = convolution.desc, self._parameters
        assert isinstance(desc, descs.Convolution)
        _, filters, bias = convolution.inputs
        deviation = self._deviation(parameters["variance"])
        factor = self._element_wise(descs.ElementWiseDivide, "factor", parameters["scale"], deviation)
        outputs = 0 if desc.direction is ConvolutionDirection.FORWARD else 1
        strides = tuple(int(dimension == outputs) for dimension in range(len(desc.filter_tensor.sizes)))
        repeated = _Weight(factor.value, TensorDesc(DataType.FLOAT32, desc.filter_tensor.sizes, strides))
        scaled = self._element_wise(descs.ElementWiseMultiply, "filter", _Weight(filters, desc.filter_tensor), repeated)
        if desc.bias_tensor is None:
            moved = self._element_wise(descs.ElementWiseMultiply, "mean", parameters["mean"], factor)
            shift = self._element_wise(descs.ElementWiseSubtract, "bias", parameters["bias"], moved)
        else:
            centered = self._element_wise(
                descs.ElementWiseSubtract, "centered", _Weight(bias, desc.bias_tensor), parameters["mean"]
            )
            moved = self._element_wise(descs.ElementWiseMultiply, "moved", centered, factor)
            shift = self._element_wise(descs.ElementWiseAdd, "bias", moved, parameters["bias"])
        return scaled.value, shift.value

    def _deviation(self, variance: _Weight) -> _Weight:
        bias = ScaleBias(1.0, self._epsilon)
        desc = descs.ElementWiseSqrt(input_tensor=variance.tensor, output_tensor=self._vector, scale_bias=bias)
        return self._add("deviation", desc, (variance.value,), self._vector)

    def _element_wise(self, op_cls: Any, what: str, a: _Weight, b: _Weight) -> _Weight:
        output = TensorDesc(DataType.FLOAT32, a.tensor.sizes)
        desc = op_cls(a_tensor=a.tensor, b_tensor=b.tensor, output_tensor=output)
        return self._add(what, desc, (a.value, b.value), output)

    def _add(self, what: str, desc: Any, inputs: tuple[Value | None, ...], output: TensorDesc) -> _Weight:
        self.nodes.append(NetworkNode(desc, inputs, f"{self._name} {what}"))
        return _Weight(Inner(self._first + len(self.nodes) - 1, 0), output)
