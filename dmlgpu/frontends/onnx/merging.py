"""Products of one input with several quantized matrices, merged into one product and a Split of its columns.

A decoder multiplies a hidden state by the matrices of queries, keys and values, and another one by those of the gate
and of the upper half of a perceptron. One product reads the input once and keeps more of the adapter busy.
GroupQueryAttention takes queries, keys and values without a Split, and rotates queries and keys together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

from onnx import NodeProto, helper

from dmlgpu.frontends.onnx.registry import mark_version
from dmlgpu.frontends.onnx.rewriting import read_names
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray
from dmlgpu.frontends.onnx.values import OnnxValue

_GROUP_ORDER = 4
"""Input of MatMulNBits with the order of groups, which is not supported."""

_SPLIT_VERSION = 11
"""Operator set version in which Split has the sizes in an attribute."""


def with_merged_products(
    nodes: Sequence[NodeProto], weights: Mapping[str, OnnxValue], outputs: Sequence[str], variable: Collection[str] = ()
) -> tuple[list[NodeProto], dict[str, OnnxValue]]:
    """Merge MatMulNBits nodes of the same input whose matrices have equal rows, bits and blocks; return nodes and
    weights.

    Args:
        nodes: Nodes, in order.
        weights: Weights by name.
        outputs: Outputs of the graph.
        variable: Weights that a run may replace.
    """
    constants = {name: weight for name, weight in weights.items() if name not in variable}
    groups: dict[Hashable, list[NodeProto]] = {}
    for node in nodes:
        if node.op_type == "MatMulNBits" and all(name in constants for name in node.input[1:] if name):
            groups.setdefault(_kind(node, constants), []).append(node)
    merged = {group[0].output[0]: group for group in groups.values() if len(group) > 1}
    dropped = {node.output[0] for group in merged.values() for node in group[1:]}
    reads = Counter([*(name for node in nodes for name in read_names(node)), *outputs])
    attentions = {tuple(node.input[:3]): node for node in nodes if node.op_type == "GroupQueryAttention"}
    packed: dict[str, str] = {}
    result, known = [], dict(weights)
    for node in nodes:
        name = node.output[0] if node.output else ""
        if name in merged:
            product, split, joined = _merged(merged[name], constants)
            result.append(product)
            known |= joined
            attention = attentions.get(tuple(split.output))
            if attention is None or any(reads[output] != 1 for output in split.output):
                result.append(split)
            else:
                packed[attention.output[0]] = product.output[0]
        elif name in packed:
            result.append(_of_packed(node, packed[name]))
        elif name not in dropped:
            result.append(node)
    return result, known


def _of_packed(attention: NodeProto, packed: str) -> NodeProto:
    """Return GroupQueryAttention of one tensor with queries, keys and values."""
    changed = NodeProto()
    changed.CopyFrom(attention)
    changed.input[0], changed.input[1], changed.input[2] = packed, "", ""
    return changed


def _kind(node: NodeProto, constants: Mapping[str, OnnxValue]) -> Hashable:
    """Return a key that is equal for nodes that can be merged, and unique for other nodes."""
    if len(node.input) > _GROUP_ORDER and node.input[_GROUP_ORDER]:
        return node.output[0]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    attributes.pop("N", None)
    parts = [constants.get(name) for name in node.input[1:]]
    kinds = tuple(None if part is None else (part.data_type, part.shape[1:]) for part in parts)
    return node.input[0], node.domain, tuple(sorted(attributes.items())), kinds


def _merged(
    group: Sequence[NodeProto], constants: Mapping[str, OnnxValue]
) -> tuple[NodeProto, NodeProto, dict[str, OnnxValue]]:
    """Return one product, the Split into the outputs of several, and the weights of the product."""
    first = group[0]
    label = "+".join(node.name or node.output[0] for node in group)
    inputs, joined = [first.input[0]], {}
    for index in range(1, len(first.input)):
        weights = [constants[node.input[index]] for node in group if node.input[index]]
        parts = [weight.array for weight in weights if weight.array is not None]
        name = f"{label} input {index}" if parts else ""
        inputs.append(name)
        if parts:
            joined[name] = OnnxValue.of_weight(DeferredArray.joined(parts))
    counts = [next(attribute.i for attribute in node.attribute if attribute.name == "N") for node in group]
    product = NodeProto()
    product.CopyFrom(first)
    del product.input[:]
    product.input.extend(inputs)
    product.name, product.output[0] = label, f"{label} columns"
    for attribute in product.attribute:
        if attribute.name == "N":
            attribute.i = sum(counts)
    outputs = [node.output[0] for node in group]
    split = helper.make_node("Split", [product.output[0]], outputs, f"{label} split", axis=-1, split=counts)
    mark_version(split, _SPLIT_VERSION)
    return product, split, joined
