"""The NumPy reference as an adapter: everything runs without any driver."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.backend import Backend, Executable, Range, Resources
from dmlgpu.errors import OperatorNotImplemented, OutOfMemory
from dmlgpu.host.adapter import NUMPY_ADAPTER
from dmlgpu.memory import host_budget
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import PERSISTENT_ALIGNMENT, TensorDesc

Memory: TypeAlias = NDArray[np.uint8]
Work: TypeAlias = Callable[[], None]


class NumPyExecutable(Executable):
    """One operator, computed by the reference; owned inputs lie in the persistent resource as they were given.

    Args:
        desc: the operator.
        room: says how many bytes of the memory budget are left to compute in.
    """

    temporary_size = 0

    def __init__(self, desc: OperatorDesc, room: Callable[[], int | None], preserve_padding: bool = False):
        self._desc, self._room, self._preserve_padding = desc, room, preserve_padding
        self._inputs = tuple(tensor for _, _, tensor in desc.inputs)
        self._outputs = tuple(tensor for _, _, tensor in desc.outputs)
        self._owned: dict[int, Range[None]] = {}
        self.persistent_size = 0
        for index, tensor in enumerate(self._inputs):
            if tensor is not None and tensor.owned_by_dml:
                self._owned[index] = Range(None, self.persistent_size, tensor.byte_size)
                self.persistent_size += -(-tensor.byte_size // PERSISTENT_ALIGNMENT) * PERSISTENT_ALIGNMENT

    def bind(self, resources: Resources) -> Sequence[Work]:
        sources = [
            self._kept(index, resources) if index in self._owned else source
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
        """Return the bytes to compute in, less those in which results are laid out as their tensors lie."""
        room = self._room()
        copies = sum(tensor.byte_size for tensor in self._outputs if tensor is not None)
        return None if room is None else max(0, room - copies)

    def bind_initialization(self, resources: Resources) -> Sequence[Work]:
        def copy(index: int) -> None:
            source = resources.inputs[index]
            assert source is not None
            _view(self._kept(index, resources))[:] = _view(source)[: self._owned[index].size]

        return tuple(functools.partial(copy, index) for index in self._owned)

    def _kept(self, index: int, resources: Resources) -> Range[Memory]:
        """Return where the persistent resource keeps an owned input."""
        persistent, owned = resources.persistent, self._owned[index]
        assert persistent is not None
        return Range(persistent.buffer, persistent.offset + owned.offset, owned.size)


class NumPyBackend(Backend):
    """An executor on host memory. Work is done by the time ``submit`` returns.

    Attributes:
        memory_budget: most bytes of buffers, and of what operators need to compute, at a time; None where unknown.
    """

    def __init__(self, deterministic: bool = False, memory_budget: int | None = None):
        self.info = NUMPY_ADAPTER
        self.target = Target(name=self.info.name, profile=Profile.CPU, deterministic=deterministic)
        self.memory_budget = host_budget() if memory_budget is None else memory_budget
        self._allocated = 0
        self._serial = 0

    def check(self, desc: OperatorDesc) -> None:
        """Raise OperatorNotImplemented when the operator has no reference; every type is computed."""
        if desc.operator not in reference.implemented():
            raise OperatorNotImplemented(desc.operator)

    def compile(
        self, desc: OperatorDesc, half_precision: bool = False, preserve_padding: bool = False
    ) -> NumPyExecutable:
        """Make an operator ready; half precision is never used."""
        return NumPyExecutable(desc, self._room, preserve_padding)

    def _room(self) -> int | None:
        """Return the bytes of the memory budget that no buffer takes; None where there is no budget."""
        return None if self.memory_budget is None else max(0, self.memory_budget - self._allocated)

    def create_buffer(self, size: int, label: str) -> Memory:
        """Allocate zeroed memory, aligned for every data type.

        Raises:
            OutOfMemory: beyond the memory budget, or when the host has no more.
        """
        if self.memory_budget is not None and self._allocated + size > self.memory_budget:
            raise OutOfMemory(
                f"buffer {label!r}: {size:,} bytes exceed the memory budget of {self.memory_budget:,} bytes,"
                f" of which {self._allocated:,} are in use"
            )
        try:
            memory = np.zeros(-(-size // 8), np.uint64).view(np.uint8)[:size]
        except (MemoryError, ValueError) as error:  # the latter where no address reaches so far
            raise OutOfMemory(f"buffer {label!r}: the host has no {size:,} bytes left") from error
        self._allocated += size
        return memory

    def destroy_buffer(self, buffer: Memory) -> None:
        """Take a buffer out of the memory budget; the memory goes with its last reference."""
        self._allocated -= buffer.size

    def write(self, buffer: Memory, offset: int, data: Memory) -> None:
        buffer[offset : offset + data.size] = data

    def read(self, buffer: Memory, offset: int, size: int) -> Memory:
        return buffer[offset : offset + size].copy()

    def copy(self, source: Memory, source_offset: int, destination: Memory, destination_offset: int, size: int) -> Work:
        def copy() -> None:
            destination[destination_offset : destination_offset + size] = source[source_offset : source_offset + size]

        return copy

    def submit(self, work: Sequence[Work]) -> int:
        for unit in work:
            unit()
        self._serial += 1
        return self._serial

    def is_done(self, serial: int) -> bool:
        return True

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _decoded(tensors: Sequence[TensorDesc | None], ranges: Sequence[Range[Memory] | None]) -> list[NDArray[Any] | None]:
    return [
        None if tensor is None or one is None else tensor.decode(_view(one))
        for tensor, one in zip(tensors, ranges, strict=True)
    ]


def _padding(tensor: TensorDesc) -> Memory:
    """Return a tensor's bytes with the bits set that belong to no element."""
    element = np.full(max(tensor.data_type.bits // 8, 1), 0xFF, np.uint8).view(tensor.data_type.numpy)
    return ~tensor.encode(element[0])


def _view(source: Range[Memory]) -> Memory:
    return source.buffer[source.offset : source.end]
