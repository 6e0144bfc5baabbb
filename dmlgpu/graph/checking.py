"""The rules that the operators of a network keep, whatever the adapter can do."""

from __future__ import annotations

from dmlgpu import operators, validation
from dmlgpu.enums import FeatureLevel
from dmlgpu.errors import InvalidDescription, InvalidGraph
from dmlgpu.graph.network import Network
from dmlgpu.operator_desc import OperatorDesc


def check_rules(desc: OperatorDesc, level: FeatureLevel) -> None:
    """Raise InvalidDescription when a description breaks a rule of a feature level."""
    validation.validate(desc, level)
    # The rules beyond the catalog come with an operator's lowering.
    if desc.operator in operators.implemented():
        operators.check(desc, level)


def check_nodes(network: Network, level: FeatureLevel) -> None:
    """Check the description of every node, equal ones once.

    Raises:
        InvalidGraph: one breaks a rule; the message names the node.
    """
    for desc, name in {node.desc: node.name for node in reversed(network.nodes)}.items():
        try:
            check_rules(desc, level)
        except InvalidDescription as error:
            raise InvalidGraph(f"graph {network.name!r}: node {name!r}: {error}") from error
