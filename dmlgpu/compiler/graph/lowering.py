"""From a network to one plan: the plans of its nodes in turn, on the tensors that the edges name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Constant, GraphInput, Network, Node, Result, Value
from dmlgpu.compiler.plan import Allocation, Binding, Map, Plan, Role, Step, Tensor, View
from dmlgpu.compiler.plan.parts import replace_parts
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.scheduling import in_plain_steps
from dmlgpu.compiler.target import Target

_APART = 16
"""Bytes from one small constant to the next where they lie together, and the most that one has."""


def lower_nodes(network: Network, target: Target) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each node, nothing fused; behind them the copies into outputs of the graph that no node
    writes. ``as_plan`` puts them together.

    Raises:
        NotSupported: when the adapter lacks what an operator needs; the message names the node.
    """
    places = _places(network)
    found = []
    for number, node in enumerate(network.nodes):
        inputs = [None if value is None else places[value] for value in node.inputs]
        outputs = [places.get(Result(number, output)) for output in range(len(node.desc.outputs))]
        found.append(tuple(_with_numbers(step, network) for step in _steps(node, inputs, outputs, target)))
    return (*found, tuple(_copies(network, places)))


def as_plan(network: Network, lowered: Sequence[Sequence[Step]]) -> Plan:
    """Return the plan of a network from the steps of its nodes, those of initial nodes executed once."""
    places: dict[bool, list[Step]] = {True: [], False: []}
    for number, steps in enumerate(lowered):
        places[number in network.initial] += steps
    return Plan(network.name, tuple(places[False]), tuple(places[True]))


def all_constants(network: Network) -> tuple[bytes, ...]:
    """Return the constants that steps bind: those of the network, then the small ones once more, together."""
    together = b"".join(network.constants[number].ljust(_APART, b"\0") for number in _numbers(network))
    return (*network.constants, together) if together else network.constants


def _numbers(network: Network) -> list[int]:
    """Return which constants are small."""
    return [number for number, data in enumerate(network.constants) if len(data) <= _APART]


def _with_numbers(step: Step, network: Network) -> Step:
    """Return a map that reads small constants where they lie together, so that they take one binding, however many."""
    if not isinstance(step, Map):
        return step
    order = {number: place for place, number in enumerate(_numbers(network))}

    def together(tensor: Tensor) -> Tensor:
        binding = tensor.binding
        if binding.role is not Role.CONSTANT or binding.index not in order:
            return tensor
        begin = order[binding.index] * _APART * 8 // tensor.data_type.bits
        return replace(tensor, binding=Binding(Role.CONSTANT, len(network.constants)), offset=begin + tensor.offset)

    return replace_parts(step, Tensor, together)


def _places(network: Network) -> dict[Value, Binding]:
    """Return where each value lies: what an edge leads to an output of the graph is written there at once."""
    places: dict[Value, Binding] = {}
    for number in range(len(network.inputs)):
        places[GraphInput(number)] = Binding(Role.INPUT, number)
    for number in range(len(network.constants)):
        places[Constant(number)] = Binding(Role.CONSTANT, number)
    for number, value in enumerate(network.outputs):
        if isinstance(value, Result):
            places.setdefault(value, Binding(Role.OUTPUT, number))
    lasting = {value for number, _, value in network.reads() if number not in network.initial}
    for number, node in enumerate(network.nodes):
        for output, slot in enumerate(node.desc.outputs):
            value = Result(number, output)
            role = Role.PERSISTENT if number in network.initial and value in lasting else Role.TEMPORARY
            if slot.tensor is not None:
                places.setdefault(value, Binding(role, Allocation(node.name)))
    return places


def _steps(node: Node, inputs: list[Binding | None], outputs: list[Binding | None], target: Target) -> tuple[Step, ...]:
    """Return a node's steps where its tensors lie."""

    def place(binding: Binding) -> Binding:
        given = {Role.INPUT: inputs, Role.OUTPUT: outputs}.get(binding.role)
        if given is None or not isinstance(binding.index, int):
            return binding
        lies = given[binding.index]
        assert lies is not None
        return replace(lies, offset=lies.offset + binding.offset)

    try:
        plan = in_plain_steps(operators.lower(node.desc), target)
    except NotSupported as error:
        raise NotSupported(f"{node.name} ({node.desc.operator}): {error}") from None
    label = f"{node.name} {plan.operator.lower()}"
    return tuple(
        replace(replace_parts(step, Binding, place), label=f"{label} {step.label}".rstrip()) for step in plan.steps
    )


def _copies(network: Network, places: dict[Value, Binding]) -> list[Step]:
    """Return the copies into outputs of the graph whose value another output has, or data."""
    copies: list[Step] = []
    for number, (value, tensor) in enumerate(zip(network.outputs, network.output_tensors, strict=True)):
        binding = Binding(Role.OUTPUT, number)
        if places[value] != binding:
            words = (tensor.byte_size // 4,)
            source = Tensor(places[value], DataType.UINT32, words, (1,), View.RAW)
            output = Tensor(binding, DataType.UINT32, words, (1,))
            copies.append(Map(f"output {number}", identity(source), output))
    return copies
