"""A network with other nodes in the places of some, and descriptions that passes change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dmlgpu.catalog import validation
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Network, Node, Result, Value

AnyDesc = TypeVar("AnyDesc", bound=OperatorDesc)


def rewritten(network: Network, change: Callable[[int, int], Sequence[Node] | None]) -> Network:
    """Return a network in which nodes stand for others.

    Args:
        network: what is rewritten.
        change: given the number of a node in the network and the number that its successors in the new one begin with,
            returns what stands in its place, the last of which has the node's outputs; None: the node itself. These
            nodes read results by the numbers of the network, and each other's (``Inner``) by those of the new one.
    """
    places: dict[int, int] = {}
    nodes: list[Node] = []

    def moved(value: Value | None) -> Value | None:
        if isinstance(value, Result) and not isinstance(value, Inner):
            return Result(places[value.node], value.output)
        return Result(value.node, value.output) if isinstance(value, Inner) else value

    for number, node in enumerate(network.nodes):
        for one in change(number, len(nodes)) or (node,):
            nodes.append(replace(one, inputs=tuple(map(moved, one.inputs))))
        places[number] = len(nodes) - 1
    return replace(network, nodes=tuple(nodes), outputs=tuple(map(moved, network.outputs)))  # type: ignore[arg-type]


class Inner(Result):
    """The result of a node that a pass puts into the network, by its number there."""


def changed(desc: AnyDesc, **fields: Any) -> AnyDesc | None:
    """Return a description with other fields; None where the operator does not take them."""
    try:
        other = desc.replace(**fields)
        validation.validate(other)
        operators.check(other)
    except InvalidDescription:
        return None
    return other


def is_same(first: TensorDesc, second: TensorDesc) -> bool:
    """Return whether two tensors on the ends of an edge have equal elements at equal coordinates."""
    return (
        first.data_type is second.data_type
        and first.sizes == second.sizes
        and first.element_strides == second.element_strides
    )
