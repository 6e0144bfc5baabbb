"""What of a model is computed when it is read: constants, and normalisations that become part of a convolution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto

from dmlgpu.frontends.onnx.names import read_names
from dmlgpu.frontends.onnx.values import Value

Array = NDArray[Any]


@dataclass(frozen=True)
class Folded:
    """A node of which nothing is left.

    Attributes:
        node: its name.
        op_type: its operator.
        why: where it went.
    """

    node: str
    op_type: str
    why: str


def with_normalised_filters(
    nodes: Sequence[NodeProto], weights: Mapping[str, Value], outputs: Sequence[str], variable: Collection[str] = ()
) -> tuple[list[NodeProto], dict[str, Value], list[Folded]]:
    """Return nodes and weights with each BatchNormalization in the filter and bias of the Conv that alone feeds it.

    The factors are computed in double precision, and rounded once to the filter's type.

    Args:
        nodes: in order.
        weights: by name.
        outputs: of the graph.
        variable: the weights that a run may replace.
    """
    reads = Counter([*(name for one in nodes for name in read_names(one)), *outputs])
    convolutions = {one.output[0]: number for number, one in enumerate(nodes) if one.op_type == "Conv"}
    found: list[NodeProto | None] = list(nodes)
    known, folded = dict(weights), []
    for number, node in enumerate(nodes):
        place = convolutions.get(node.input[0]) if node.op_type == "BatchNormalization" and _is_plain(node) else None
        if place is None or reads[node.input[0]] != 1:
            continue
        convolution = nodes[place]
        given = [name for name in (*convolution.input[1:3], *node.input[1:5]) if name]
        if not all(_is_constant(name, known, variable) for name in given):
            continue
        made = NodeProto()
        made.CopyFrom(convolution)
        names = [f"{convolution.output[0]} normalised {part}" for part in ("filter", "bias")]
        known |= dict(zip(names, _normalised(known, convolution, node), strict=True))
        del made.input[1:]
        made.input.extend(names)
        made.output[0], made.name = node.output[0], convolution.name or convolution.output[0]
        found[place], found[number] = made, None
        folded.append(Folded(node.name or node.output[0], node.op_type, f"it is in the filter of Conv {made.name!r}"))
    return [one for one in found if one is not None], known, folded


def _is_plain(node: NodeProto) -> bool:
    """Return whether a normalisation uses the statistics that it is given, per channel."""
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    alone = not any(node.output[1:])
    return alone and not given.get("training_mode", 0) and given.get("spatial", 1) == 1 and len(node.input) == 5


def _is_constant(name: str, known: Mapping[str, Value], variable: Collection[str]) -> bool:
    return name in known and name not in variable and known[name].data_type.is_float


def _normalised(known: Mapping[str, Value], convolution: NodeProto, node: NodeProto) -> tuple[Value, Value]:
    """Return filter and bias of a convolution and the normalisation behind it."""
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    scale, offset, mean, variance = (_doubles(known[name]) for name in node.input[1:5])
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + given.get("epsilon", 1e-5))
        filters = known[convolution.input[1]]
        bias = known.get(convolution.input[2]) if len(convolution.input) > 2 else None
        before = 0.0 if bias is None else _doubles(bias)
        wide = _doubles(filters) * factor.reshape(-1, *(1,) * (len(filters.shape) - 1))
        added = (before - mean) * factor + offset
        kind = filters.data_type.numpy
        return Value.of_array(wide.astype(kind), is_weight=True), Value.of_array(added.astype(kind), is_weight=True)


def _doubles(value: Value) -> Array:
    assert value.array is not None
    return value.array.astype(np.float64)
