"""Networks on host memory: node by node through the reference, nothing fused. What GPUs compute is compared with it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, aligned
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NodeResult, Value
from dmlgpu.compiler.plan import Allocation
from dmlgpu.compiler.schedule.memory import Use, lay_out
from dmlgpu.runtime.executor import Executable, Range, Resources
from dmlgpu.runtime.numpy.executable import Memory, NumPyExecutable, Work


class NumPyGraph(Executable):
    """A network; owned inputs lie in the persistent resource as they were given, results in the temporary one.

    Args:
        network: what is computed.
        room: says how many bytes of the memory budget are left to compute in.
    """

    def __init__(self, network: Network, room: Callable[[], int | None]):
        self._network = network
        self._constants = [np.frombuffer(data, np.uint8) for data in network.constants]
        self._nodes = [NumPyExecutable(_without_ownership(node.desc), room) for node in network.nodes]
        self._owned: dict[int, Range[None]] = {}
        self.persistent_size = 0
        for number, tensor in enumerate(network.inputs):
            if tensor is not None and tensor.owned_by_dml:
                self._owned[number] = Range(None, self.persistent_size, tensor.byte_size)
                self.persistent_size += aligned(tensor.byte_size)
        self._results, self.temporary_size = _temporaries(network)
        self._ends: dict[Value, int] = {}  # the first output of the graph that each value is
        for number, value in enumerate(network.outputs):
            self._ends.setdefault(value, number)

    def bind(self, resources: Resources) -> Sequence[Work]:
        """Return a unit of work per node, and one per output that repeats another or is a constant."""
        work: list[Work] = []
        for number, (node, executable) in enumerate(zip(self._network.nodes, self._nodes, strict=True)):
            inputs = tuple(None if value is None else self._value(value, resources) for value in node.inputs)
            outputs = tuple(
                None if slot.tensor is None else self._value(NodeResult(number, output), resources)
                for output, slot in enumerate(node.desc.outputs)
            )
            work += executable.bind(Resources(inputs, outputs))
        for number, value in enumerate(self._network.outputs):
            target = resources.outputs[number]
            assert target is not None
            if isinstance(value, Constant) or self._ends[value] != number:
                source, size = self._value(value, resources), self._network.output_tensors[number].byte_size
                work.append(functools.partial(_copy, source, target, size))
        return work

    def bind_initialization(self, resources: Resources) -> Sequence[Work]:
        """Return the copies of owned inputs into the persistent resource."""
        work = []
        for number, owned in self._owned.items():
            source = resources.inputs[number]
            assert source is not None
            work.append(functools.partial(_copy, source, self._kept(number, resources), owned.size))
        return work

    def _value(self, value: Value, resources: Resources) -> Range[Memory]:
        """Return where a value lies."""
        match value:
            case NetworkInput() if value.index in self._owned:
                return self._kept(value.index, resources)
            case NetworkInput():
                bound = resources.inputs[value.index]
                assert bound is not None
                return bound
            case Constant():
                data = self._constants[value.index]
                return Range(data, 0, data.size)
            case _ if value in self._ends:
                bound = resources.outputs[self._ends[value]]
                assert bound is not None
                return bound
            case _:
                return _within(resources.temporary, self._results[value])

    def _kept(self, number: int, resources: Resources) -> Range[Memory]:
        return _within(resources.persistent, self._owned[number])


def _temporaries(network: Network) -> tuple[dict[Value, Range[None]], int]:
    """Return where the results that are no outputs lie in the temporary resource, and its size."""
    ends = set(network.outputs)
    tensors = {
        NodeResult(number, output): (Allocation(node.name), slot.tensor)
        for number, node in enumerate(network.nodes)
        for output, slot in enumerate(node.desc.outputs)
        if slot.tensor is not None and NodeResult(number, output) not in ends
    }
    uses = []
    for number, node in enumerate(network.nodes):
        for value in (*node.inputs, *(NodeResult(number, output) for output in range(len(node.desc.outputs)))):
            if isinstance(value, NodeResult) and value in tensors:
                allocation, tensor = tensors[value]
                uses.append(Use(number, allocation, tensor.byte_size))
    arena = lay_out(uses, reuse=True)
    places = {value: Range(None, arena.offsets[one], tensor.byte_size) for value, (one, tensor) in tensors.items()}
    return places, arena.size  # type: ignore[return-value]


def _within(resource: Range[Memory] | None, part: Range[None]) -> Range[Memory]:
    assert resource is not None
    return Range(resource.buffer, resource.offset + part.offset, part.size)


def _copy(source: Range[Memory], target: Range[Memory], size: int) -> None:
    target.buffer[target.offset : target.offset + size] = source.buffer[source.offset : source.offset + size]


def _without_ownership(desc: OperatorDesc) -> OperatorDesc:
    """Return a description none of whose tensors is OWNED_BY_DML: the graph keeps what it owns."""

    def free(value: object) -> object:
        if isinstance(value, TensorDesc):
            return dataclasses.replace(value, flags=TensorFlags.NONE) if value.owned_by_dml else value
        return tuple(map(free, value)) if isinstance(value, tuple) else value

    return desc.replace(**{name: free(desc.values[name]) for name in desc.input_fields})
