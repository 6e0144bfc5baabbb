"""The NumPy reference as an adapter: everything runs without any driver."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import OperatorNotImplemented, OutOfMemory
from dmlgpu.common.memory import check_budget, host_budget
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.target import Policies, Profile, Target
from dmlgpu.runtime.executor import Backend, Reading
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.numpy.executable import Memory, NumPyExecutable, NumPyGraph, Work
from dmlgpu.runtime.specialization import Specializer


class HostReading(Reading):
    """A read that is complete from the start."""

    def __init__(self, data: Memory):
        self._data = data

    def is_done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Memory:
        return self._data


class NumPyBackend(Backend):
    """An executor on host memory. Work is done by the time ``submit`` returns.

    Attributes:
        memory_budget: Maximum bytes of buffers and of an operator's temporary memory; None if unknown.
    """

    def __init__(self, deterministic: bool = False, precise: bool = False, memory_budget: int | None = None):
        self.info = NUMPY_ADAPTER
        self.specializer = Specializer()
        self.target = Target(self.info.name, Profile.CPU, policies=Policies(deterministic, precise))
        self.memory_budget = host_budget() if memory_budget is None else memory_budget
        self.allocated = 0
        self._serial = 0

    def check(self, desc: OperatorDesc) -> None:
        """Raise OperatorNotImplemented when the operator has no reference; every type is computed."""
        if desc.operator not in reference.implemented():
            raise OperatorNotImplemented(desc.operator)

    def compile(
        self, desc: OperatorDesc, half_precision: bool = False, preserve_padding: bool = False
    ) -> NumPyExecutable:
        """Prepare an operator; half precision is never used."""
        return NumPyExecutable(desc, self._room, preserve_padding)

    def _room(self) -> int | None:
        """Return the free bytes of the memory budget; None if there is no budget."""
        return None if self.memory_budget is None else max(0, self.memory_budget - self.allocated)

    def compile_graph(
        self, network: Network, half_precision: bool = False, disabled: Collection[str] = ()
    ) -> NumPyGraph:
        """Prepare a network node by node; there are no passes to disable.

        Raises:
            InvalidArgument: If a name is that of no pass.
            OperatorNotImplemented: If an operator has no reference.
        """
        if disabled:
            from dmlgpu.compiler.graph.passes import check_names  # noqa: PLC0415 - it loads the compiler

            check_names(disabled)
        for node in network.nodes:
            self.check(node.desc)
        return NumPyGraph(network, self._room)

    def create_buffer(self, size: int, label: str) -> Memory:
        """Allocate zeroed memory, aligned for every data type.

        Raises:
            OutOfMemory: Beyond the memory budget, or when the host has no more.
        """
        check_budget(label, size, self.allocated, self.memory_budget)
        try:
            memory = np.zeros(-(-size // 8), np.uint64).view(np.uint8)[:size]
        except (MemoryError, ValueError) as error:  # the latter where no address reaches so far
            raise OutOfMemory(f"buffer {label!r}: the host has no memory for {size:,} bytes") from error
        self.allocated += size
        return memory

    def destroy_buffer(self, buffer: Memory) -> None:
        """Subtract a buffer from the memory budget; its memory is freed with the last reference."""
        self.allocated -= buffer.size

    def write(self, buffer: Memory, offset: int, data: Memory) -> None:
        buffer[offset : offset + data.size] = data

    def read(self, buffer: Memory, offset: int, size: int) -> Memory:
        return buffer[offset : offset + size].copy()

    def read_async(self, buffer: Memory, offset: int, size: int) -> HostReading:
        return HostReading(self.read(buffer, offset, size))

    def copy(self, source: Memory, source_offset: int, destination: Memory, destination_offset: int, size: int) -> Work:
        def copy() -> None:
            destination[destination_offset : destination_offset + size] = source[source_offset : source_offset + size]

        return copy

    def submit(self, *work: Sequence[Work]) -> int:
        return self.enqueue(list(itertools.chain(*work)))

    def enqueue(self, work: Sequence[Work], *, is_followed: bool = False) -> int:
        for unit in work:
            unit()
        self._serial += 1
        return self._serial

    def is_done(self, serial: int) -> bool:
        return True

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the adapter holds no resources."""
