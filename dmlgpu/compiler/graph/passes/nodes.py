"""Passes over the nodes of a network: constant folding, common subexpressions, dead code, nodes computed at
initialization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import validation
from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription, OutOfMemory
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NetworkNode, NodeResult, Value
from dmlgpu.compiler.graph.passes.rewriting import NodePass, NoteTaker
from dmlgpu.compiler.sizes.arithmetic import is_symbolic

AnyDesc = TypeVar("AnyDesc", bound=OperatorDesc)


def rewritten(network: Network, change: Callable[[int, int], Sequence[NetworkNode] | None]) -> Network:
    """Return a network with some nodes replaced.

    Args:
        network: The network.
        change: Given the index of a node, and the index of its first replacement in the new network, returns
            replacements, the last of which has the node's outputs, or None to keep the node. Replacements refer to
            results by indices of the network, and to each other (``Inner``) by those of the new one.
    """
    places: dict[int, int] = {}
    nodes: list[NetworkNode] = []

    def moved(value: Value | None) -> Value | None:
        if isinstance(value, NodeResult) and not isinstance(value, Inner):
            return NodeResult(places[value.node], value.output)
        return NodeResult(value.node, value.output) if isinstance(value, Inner) else value

    for index, node in enumerate(network.nodes):
        for changed_node in change(index, len(nodes)) or (node,):
            nodes.append(replace(changed_node, inputs=tuple(map(moved, changed_node.inputs))))
        places[index] = len(nodes) - 1
    return replace(network, nodes=tuple(nodes), outputs=tuple(map(moved, network.outputs)))  # type: ignore[arg-type]


class Inner(NodeResult):
    """The result of a node that a pass inserts into the network, by its index there."""


def changed(desc: AnyDesc, **fields: Any) -> AnyDesc | None:
    """Return a description with some fields replaced; None if the operator does not accept them."""
    try:
        other = desc.replace(**fields)
        validation.validate(other)
        operators.check(other)
    except InvalidDescription:
        return None
    return other


def is_same(first: TensorDesc, second: TensorDesc) -> bool:
    """Return whether two tensors at the ends of an edge have equal elements at equal coordinates."""
    return (
        first.data_type is second.data_type
        and first.sizes == second.sizes
        and first.element_strides == second.element_strides
    )


MAX_FOLDED_BYTES = 1 << 26
"""Maximum bytes of a folded result, so that a compiled graph stays small."""

ALWAYS_FOLDED_BYTES = 1 << 16
"""Maximum bytes of folded results that are larger than their inputs (fills, tiles)."""


def fold_constants(network: Network, note: NoteTaker) -> Network:
    """Compute nodes that read only constants by the reference; their results become constants."""
    constants = list(network.constants)
    known: dict[Value, Value] = {}
    for index, node in enumerate(network.nodes):
        inputs = [known.get(value, value) if isinstance(value, NodeResult) else value for value in node.inputs]
        if any(value is not None and not isinstance(value, Constant) for value in inputs):
            continue
        data = [constants[value.index] if isinstance(value, Constant) else None for value in inputs]
        if not _is_foldable(node, data):
            continue
        try:
            results = _evaluated(node, data)
        except OutOfMemory:
            continue
        for output, result in enumerate(results):
            if result is not None:
                known[NodeResult(index, output)] = Constant(len(constants))
                constants.append(result)
        note(node.name, "computed when the graph is compiled")
    return _replace_values(replace(network, constants=tuple(constants)), known) if known else network


CONSTANTS = NodePass("constants", fold_constants)


def _is_foldable(node: NetworkNode, data: Sequence[bytes | None]) -> bool:
    tensors = [slot.tensor for slot in node.desc.outputs if slot.tensor]
    if any(is_symbolic(size) for tensor in tensors for size in tensor.sizes):
        return False  # results differ with sizes
    size = sum(tensor.byte_size for tensor in tensors)
    limit = max(sum(len(content) for content in data if content is not None), ALWAYS_FOLDED_BYTES)
    return size <= min(limit, MAX_FOLDED_BYTES) and not reference.keeps_outputs(node.desc.operator)


def _evaluated(node: NetworkNode, data: Sequence[bytes | None]) -> list[bytes | None]:
    """Compute the bytes of a node's outputs by the reference."""
    arrays = [
        None if slot.tensor is None or content is None else slot.tensor.decode(np.frombuffer(content, np.uint8))
        for slot, content in zip(node.desc.inputs, data, strict=True)
    ]
    return [
        None if slot.tensor is None else slot.tensor.encode(result).tobytes()
        for slot, result in zip(node.desc.outputs, reference.evaluate(node.desc, arrays), strict=True)
    ]


MAX_COMPARED_BYTES = 1 << 12
"""Maximum bytes of constants that are compared."""


def merge_duplicates(network: Network, note: NoteTaker) -> Network:
    """Merge nodes with equal descriptions that read the same values; small constants of equal bytes count as equal."""
    first: dict[tuple[type[OperatorDesc], tuple[Value | None, ...]], list[int]] = {}
    equal: dict[bytes, int] = {}
    merged: dict[Value, Value] = {}
    for index, data in enumerate(network.constants):
        if len(data) <= MAX_COMPARED_BYTES and (same := equal.setdefault(data, index)) != index:
            merged[Constant(index)] = Constant(same)
    for index, node in enumerate(network.nodes):
        inputs = tuple(None if value is None else merged.get(value, value) for value in node.inputs)
        others = first.setdefault((type(node.desc), inputs), [])
        other = next((other for other in others if network.nodes[other].desc == node.desc), None)
        if other is None:
            others.append(index)
        else:
            merged |= {NodeResult(index, output): NodeResult(other, output) for output in range(len(node.desc.outputs))}
            note(node.name, f"the same as {network.nodes[other].name}")
    return _replace_values(network, merged) if merged else network


DUPLICATES = NodePass("duplicates", merge_duplicates)


def drop_dead(network: Network, note: NoteTaker) -> Network:
    """Remove nodes with unused outputs, and unused constants."""
    needed = {value.node for value in network.outputs if isinstance(value, NodeResult)}
    for index in reversed(range(len(network.nodes))):
        if index in needed:
            needed |= {value.node for value in network.nodes[index].inputs if isinstance(value, NodeResult)}
    for index, node in enumerate(network.nodes):
        if index not in needed:
            note(node.name, "nothing reads it")
    nodes = [network.nodes[index] for index in sorted(needed)]
    read = {value.index for node in nodes for value in node.inputs if isinstance(value, Constant)}
    read |= {value.index for value in network.outputs if isinstance(value, Constant)}
    places = {old: new for new, old in enumerate(sorted(needed))}
    data = {old: new for new, old in enumerate(sorted(read))}

    def moved(value: Value | None) -> Value | None:
        match value:
            case NodeResult():
                return replace(value, node=places[value.node])
            case Constant():
                return Constant(data[value.index])
            case _:
                return value

    return replace(
        network,
        nodes=tuple(replace(node, inputs=tuple(map(moved, node.inputs))) for node in nodes),
        constants=tuple(network.constants[index] for index in data),
        outputs=tuple(map(moved, network.outputs)),  # type: ignore[arg-type]
    )


DEAD = NodePass("dead", drop_dead)


def _replace_values(network: Network, known: Mapping[Value, Value]) -> Network:
    """Return a network in which values have other sources; unused nodes remain until ``drop_dead``."""

    def of(value: Value | None) -> Value | None:
        return None if value is None else known.get(value, value)

    nodes = tuple(replace(node, inputs=tuple(map(of, node.inputs))) for node in network.nodes)
    return replace(network, nodes=nodes, outputs=tuple(map(of, network.outputs)))  # type: ignore[arg-type]


Place: TypeAlias = tuple[str, int | None]
"""Field and position of an input."""

MAX_BYTES = 1 << 16
"""Results larger than this and their inputs (4-bit integers as floats, tiles) are computed at each execution:
storing them would take more memory and more time to read."""


def initialize_early(network: Network, note: NoteTaker) -> Network:
    """Compute nodes that read only data and OWNED_BY_DML inputs at initialization.

    Readers of such values get OWNED_BY_DML: filters and matrices are repacked at initialization.
    """
    known: set[Value] = {Constant(index) for index in range(len(network.constants))}
    known |= {NetworkInput(index) for index, tensor in enumerate(network.inputs) if tensor and tensor.owned_by_dml}
    ends = {value.node for value in network.outputs if isinstance(value, NodeResult)}
    initial: set[int] = set()
    for index, node in enumerate(network.nodes):
        if _is_initial(network, index, known, ends):
            initial.add(index)
            known |= {NodeResult(index, output) for output in range(len(node.desc.outputs))}
            note(node.name, "computed when the graph is initialized")
    marked: dict[tuple[int, frozenset[Place]], OperatorDesc] = {}  # equal nodes share descriptions afterwards, too
    nodes = []
    for node in network.nodes:
        slots = zip(node.desc.inputs, node.inputs, strict=True)
        owned = frozenset([(slot.field, slot.position) for slot, value in slots if value in known])
        key = id(node.desc), owned
        if key not in marked:
            marked[key] = _marked(node.desc, owned) if owned else node.desc
        nodes.append(replace(node, desc=marked[key]))
    return replace(network, nodes=tuple(nodes), initial=frozenset(initial))


INITIALIZATION = NodePass("initialization", initialize_early)


def _is_initial(network: Network, index: int, known: set[Value], ends: set[int]) -> bool:
    node = network.nodes[index]
    result_bytes = sum(slot.tensor.byte_size for slot in node.desc.outputs if slot.tensor)
    operand_bytes = sum(slot.tensor.byte_size for slot in node.desc.inputs if slot.tensor)
    return (
        operand_bytes > 0
        and all(value is None or value in known for value in node.inputs)
        and index not in ends
        and result_bytes <= max(operand_bytes, MAX_BYTES)
        and not reference.keeps_outputs(node.desc.operator)
    )


def _marked(desc: OperatorDesc, owned: frozenset[Place]) -> OperatorDesc:
    """Return a description that marks the inputs that are known at initialization."""

    def marked(field: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(_with_ownership(tensor, (field, index) in owned) for index, tensor in enumerate(value))
        return _with_ownership(value, (field, None) in owned)

    return desc.replace(**{field: marked(field, desc.values[field]) for field in desc.input_fields})


def _with_ownership(tensor: Any, owned: bool) -> Any:
    return replace(tensor, flags=TensorFlags.OWNED_BY_DML) if tensor is not None and owned else tensor
