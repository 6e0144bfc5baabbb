"""What depends on nothing but weights is computed once, when the graph is initialised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dmlgpu import reference
from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.compiler.graph.network import Constant, GraphInput, Network, Node, Result, Value
from dmlgpu.compiler.graph.passes.rewriting import Note

NAME = "initialization"

MOST_BYTES = 1 << 16
"""Results of more bytes than this and than what they are computed from (numbers of four bits as floats, tiles) are
computed at each execution: they would take more memory to keep, and more time to read."""


def initialize_early(network: Network, notes: list[Note]) -> Network:
    """Compute nodes that read nothing but data and OWNED_BY_DML inputs at initialisation.

    Whatever reads such values is told so by OWNED_BY_DML: filters and matrices are laid out anew at initialisation.
    """
    known: set[Value] = {Constant(number) for number in range(len(network.constants))}
    known |= {GraphInput(number) for number, tensor in enumerate(network.inputs) if tensor and tensor.owned_by_dml}
    ends = {value.node for value in network.outputs if isinstance(value, Result)}
    initial: set[int] = set()
    for number, node in enumerate(network.nodes):
        if _is_initial(network, number, known, ends):
            initial.add(number)
            known |= {Result(number, output) for output in range(len(node.desc.outputs))}
            notes.append(Note(NAME, node.name, "computed when the graph is initialised"))
    nodes = tuple(_marked(node, known) for node in network.nodes)
    return replace(network, nodes=nodes, initial=frozenset(initial))


def _is_initial(network: Network, number: int, known: set[Value], ends: set[int]) -> bool:
    node = network.nodes[number]
    made = sum(slot.tensor.byte_size for slot in node.desc.outputs if slot.tensor)
    given = sum(slot.tensor.byte_size for slot in node.desc.inputs if slot.tensor)
    return (
        given > 0
        and all(value is None or value in known for value in node.inputs)
        and number not in ends
        and made <= max(given, MOST_BYTES)
        and not reference.keeps_outputs(node.desc.operator)
    )


def _marked(node: Node, known: set[Value]) -> Node:
    """Return a node whose description says which of its inputs are known at initialisation."""
    owned = {
        (slot.field, slot.position) for slot, value in zip(node.desc.inputs, node.inputs, strict=True) if value in known
    }
    if not owned:
        return node

    def marked(field: str, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(_with_ownership(one, (field, number) in owned) for number, one in enumerate(given))
        return _with_ownership(given, (field, None) in owned)

    changes = {field: marked(field, node.desc.values[field]) for field in node.desc.input_fields}
    return replace(node, desc=node.desc.replace(**changes))


def _with_ownership(tensor: Any, owned: bool) -> Any:
    return replace(tensor, flags=TensorFlags.OWNED_BY_DML) if tensor is not None and owned else tensor
