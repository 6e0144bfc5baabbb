"""Operators and graphs on host memory, computed by the reference with which results of GPUs are compared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, aligned
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NodeResult, Value
from dmlgpu.compiler.plan import Allocation
from dmlgpu.compiler.schedule.memory import Use, lay_out
from dmlgpu.runtime.executor import Executable, PersistentRanges, Range, Resources

Memory: TypeAlias = NDArray[np.uint8]
Work: TypeAlias = Callable[[], None]


class _HostExecutable(Executable):
    """Base of executables that copy OWNED_BY_DML tensors into their persistent resource."""

    def _own(self, tensors: Sequence[TensorDesc | None]) -> None:
        """Lay out the tensors that the persistent resource holds, by index."""
        self._owned: dict[int, Range[None]] = {}
        self.persistent_size = 0
        for index, tensor in enumerate(tensors):
            if tensor is not None and tensor.owned_by_dml:
                self._owned[index] = Range(None, self.persistent_size, tensor.byte_size)
                self.persistent_size += aligned(tensor.byte_size)

    def bind_initialization(self, resources: Resources, kernels: Sequence[int] | None = None) -> Sequence[Work]:
        work = []
        for index, owned in self._owned.items():
            source = resources.inputs[index]
            assert source is not None
            work.append(functools.partial(_copy_range, source, self._owned_range(index, resources), owned.size))
        return work

    def _owned_range(self, index: int, resources: Resources) -> Range[Memory]:
        assert not isinstance(resources.persistent, PersistentRanges)
        return _within(resources.persistent, self._owned[index])


class NumPyExecutable(_HostExecutable):
    """One operator, computed by the reference; the persistent resource holds copies of owned inputs.

    Args:
        desc: The operator.
        room: Says how many bytes of the memory budget are left to compute in.
    """

    temporary_size = 0

    def __init__(self, desc: OperatorDesc, room: Callable[[], int | None], preserve_padding: bool = False):
        self._desc, self._room, self._preserve_padding = desc, room, preserve_padding
        self._inputs = tuple(tensor for _, _, tensor in desc.inputs)
        self._outputs = tuple(tensor for _, _, tensor in desc.outputs)
        self._own(self._inputs)

    def bind(self, resources: Resources, earlier: Sequence[Sequence[Work]] = ()) -> Sequence[Work]:
        sources = [
            self._owned_range(index, resources) if index in self._owned else source
            for index, source in enumerate(resources.inputs)
        ]

        reference.check_memory(self._desc, self._left())

        def execute() -> None:
            keeps = reference.keeps_outputs(self._desc.operator)
            before = _decoded(self._outputs, resources.outputs) if keeps else None
            results = reference.evaluate(self._desc, _decoded(self._inputs, sources), before, self._left())
            for tensor, target, result in zip(self._outputs, resources.outputs, results, strict=True):
                if tensor is not None and target is not None:
                    self._store(tensor, _view(target)[: tensor.byte_size], result)

        return (execute,)

    def _store(self, tensor: TensorDesc, memory: Memory, result: NDArray[Any]) -> None:
        content = tensor.encode(result)
        if self._preserve_padding:
            content |= memory & _padding(tensor)
        memory[:] = content

    def _left(self) -> int | None:
        """Return the bytes of the memory budget that remain after copies of the outputs."""
        room = self._room()
        copies = sum(tensor.byte_size for tensor in self._outputs if tensor is not None)
        return None if room is None else max(0, room - copies)


def _decoded(tensors: Sequence[TensorDesc | None], ranges: Sequence[Range[Memory] | None]) -> list[NDArray[Any] | None]:
    return [
        None if tensor is None or bound is None else tensor.decode(_view(bound))
        for tensor, bound in zip(tensors, ranges, strict=True)
    ]


def _padding(tensor: TensorDesc) -> Memory:
    """Return a mask over a tensor's bytes: ones for the bits that belong to no element."""
    element = np.full(max(tensor.data_type.bits // 8, 1), 0xFF, np.uint8).view(tensor.data_type.numpy)
    return ~tensor.encode(element[0])


def _view(source: Range[Memory]) -> Memory:
    return source.buffer[source.offset : source.end]


class NumPyGraph(_HostExecutable):
    """A network; the persistent resource holds copies of owned inputs, the temporary one intermediate results.

    Args:
        network: The network to compute.
        room: Says how many bytes of the memory budget are left to compute in.
    """

    def __init__(self, network: Network, room: Callable[[], int | None]):
        self._network = network
        self._constants = [np.frombuffer(data, np.uint8) for data in network.constants]
        self._nodes = [NumPyExecutable(_without_ownership(node.desc), room) for node in network.nodes]
        self._own(network.inputs)
        self._results, self.temporary_size = _temporaries(network)
        self._ends: dict[Value, int] = {}  # the first output of the graph that each value is
        for index, value in enumerate(network.outputs):
            self._ends.setdefault(value, index)

    def bind(self, resources: Resources, earlier: Sequence[Sequence[Work]] = ()) -> Sequence[Work]:
        """Return a unit of work per node, and one per output that repeats another or is a constant."""
        work: list[Work] = []
        for index, (node, executable) in enumerate(zip(self._network.nodes, self._nodes, strict=True)):
            inputs = tuple(None if value is None else self._value(value, resources) for value in node.inputs)
            outputs = tuple(
                None if slot.tensor is None else self._value(NodeResult(index, output), resources)
                for output, slot in enumerate(node.desc.outputs)
            )
            work += executable.bind(Resources(inputs, outputs))
        for index, value in enumerate(self._network.outputs):
            target = resources.outputs[index]
            assert target is not None
            if isinstance(value, Constant) or self._ends[value] != index:
                source, size = self._value(value, resources), self._network.output_tensors[index].byte_size
                work.append(functools.partial(_copy_range, source, target, size))
        return work

    def _value(self, value: Value, resources: Resources) -> Range[Memory]:
        """Return the memory range of a value."""
        match value:
            case NetworkInput() if value.index in self._owned:
                return self._owned_range(value.index, resources)
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


def _temporaries(network: Network) -> tuple[dict[Value, Range[None]], int]:
    """Return the ranges of intermediate results in the temporary resource, and its size."""
    ends = set(network.outputs)
    tensors = {
        NodeResult(index, output): (Allocation(node.name), slot.tensor)
        for index, node in enumerate(network.nodes)
        for output, slot in enumerate(node.desc.outputs)
        if slot.tensor is not None and NodeResult(index, output) not in ends
    }
    uses = []
    for index, node in enumerate(network.nodes):
        for value in (*node.inputs, *(NodeResult(index, output) for output in range(len(node.desc.outputs)))):
            if isinstance(value, NodeResult) and value in tensors:
                allocation, tensor = tensors[value]
                uses.append(Use(index, allocation, tensor.byte_size))
    arena = lay_out(uses, reuse=True)
    places = {
        value: Range(None, arena.offsets[allocation], tensor.byte_size)
        for value, (allocation, tensor) in tensors.items()
    }
    return places, arena.size  # type: ignore[return-value]


def _within(resource: Range[Memory] | None, part: Range[None]) -> Range[Memory]:
    assert resource is not None
    return Range(resource.buffer, resource.offset + part.offset, part.size)


def _copy_range(source: Range[Memory], target: Range[Memory], size: int) -> None:
    target.buffer[target.offset : target.offset + size] = source.buffer[source.offset : source.offset + size]


def _without_ownership(desc: OperatorDesc) -> OperatorDesc:
    """Return a description none of whose tensors is OWNED_BY_DML: the graph keeps what it owns."""

    def free(value: object) -> object:
        if isinstance(value, TensorDesc):
            return dataclasses.replace(value, flags=TensorFlags.NONE) if value.owned_by_dml else value
        return tuple(map(free, value)) if isinstance(value, tuple) else value

    return desc.replace(**{name: free(desc.values[name]) for name in desc.input_fields})
