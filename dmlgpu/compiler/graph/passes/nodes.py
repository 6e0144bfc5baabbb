"""Passes over the nodes of a network: what is known is computed once, what is equal is computed once, the dead go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import OutOfMemory
from dmlgpu.compiler.graph.network import Constant, Network, Node, Result, Value
from dmlgpu.compiler.graph.passes.rewriting import Note

MOST_FOLDED_BYTES = 1 << 26
"""Results of more bytes are computed on the device, so that a compiled graph stays small."""

ALWAYS_FOLDED_BYTES = 1 << 16
"""Results of more bytes than this and than the data behind them (fills, tiles) are made on the device, cheaply."""


def fold_constants(network: Network, notes: list[Note]) -> Network:
    """Compute nodes that read nothing but constants by the reference; their results become constants."""
    constants = list(network.constants)
    known: dict[Result, Constant] = {}
    for number, node in enumerate(network.nodes):
        inputs = [known.get(value, value) if isinstance(value, Result) else value for value in node.inputs]
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
                known[Result(number, output)] = Constant(len(constants))
                constants.append(result)
        notes.append(Note("constants", node.name, "computed when the graph is compiled"))
    return _kept(replace(network, constants=tuple(constants)), known) if known else network


def _is_foldable(node: Node, data: Sequence[bytes | None]) -> bool:
    made = sum(slot.tensor.byte_size for slot in node.desc.outputs if slot.tensor)
    most = max(sum(len(given) for given in data if given is not None), ALWAYS_FOLDED_BYTES)
    return made <= min(most, MOST_FOLDED_BYTES) and not reference.keeps_outputs(node.desc.operator)


def _evaluated(node: Node, data: Sequence[bytes | None]) -> list[bytes | None]:
    """Return the bytes of a node's outputs by the reference."""
    arrays = [
        None if slot.tensor is None or given is None else slot.tensor.decode(np.frombuffer(given, np.uint8))
        for slot, given in zip(node.desc.inputs, data, strict=True)
    ]
    return [
        None if slot.tensor is None else slot.tensor.encode(result).tobytes()
        for slot, result in zip(node.desc.outputs, reference.evaluate(node.desc, arrays), strict=True)
    ]


def merge_duplicates(network: Network, notes: list[Note]) -> Network:
    """Compute nodes of one description that read the same values once."""
    first: dict[tuple[OperatorDesc, tuple[Value | None, ...]], int] = {}
    merged: dict[Result, Result] = {}
    for number, node in enumerate(network.nodes):
        inputs = tuple(merged.get(value, value) if isinstance(value, Result) else value for value in node.inputs)
        other = first.setdefault((node.desc, inputs), number)
        if other != number:
            merged |= {Result(number, output): Result(other, output) for output in range(len(node.desc.outputs))}
            notes.append(Note("duplicates", node.name, f"the same as {network.nodes[other].name}"))
    return _kept(network, merged) if merged else network


def drop_dead(network: Network, notes: list[Note]) -> Network:
    """Leave out nodes none of whose outputs is read, and data that nobody reads."""
    needed = {value.node for value in network.outputs if isinstance(value, Result)}
    for number in reversed(range(len(network.nodes))):
        if number in needed:
            needed |= {value.node for value in network.nodes[number].inputs if isinstance(value, Result)}
    notes.extend(
        Note("dead", node.name, "nothing reads it") for number, node in enumerate(network.nodes) if number not in needed
    )
    kept = [network.nodes[number] for number in sorted(needed)]
    read = {value.index for node in kept for value in node.inputs if isinstance(value, Constant)}
    read |= {value.index for value in network.outputs if isinstance(value, Constant)}
    places = {old: new for new, old in enumerate(sorted(needed))}
    data = {old: new for new, old in enumerate(sorted(read))}

    def moved(value: Value | None) -> Value | None:
        match value:
            case Result():
                return replace(value, node=places[value.node])
            case Constant():
                return Constant(data[value.index])
            case _:
                return value

    return replace(
        network,
        nodes=tuple(replace(node, inputs=tuple(map(moved, node.inputs))) for node in kept),
        constants=tuple(network.constants[index] for index in data),
        outputs=tuple(map(moved, network.outputs)),  # type: ignore[arg-type]
    )


def _kept(network: Network, known: dict[Result, Constant] | dict[Result, Result]) -> Network:
    """Return a network in which values are read elsewhere; what they were computed by stays until ``drop_dead``."""

    def of(value: Value | None) -> Value | None:
        return known.get(value, value) if isinstance(value, Result) else value

    nodes = tuple(replace(node, inputs=tuple(map(of, node.inputs))) for node in network.nodes)
    return replace(network, nodes=nodes, outputs=tuple(map(of, network.outputs)))  # type: ignore[arg-type]
