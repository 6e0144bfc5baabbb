"""Eager state of a device: unused memory, compiled operators by description, dispatches bound to memory."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, as_elements
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import DeviceRemoved, OutOfMemory
from dmlgpu.common.memory import MemoryInfo
from dmlgpu.compiler.persistent_parts import PersistentPart
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.executor import Dispatch, PersistentRanges, Range
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.runtime.state import DeviceState
from dmlgpu.tensors import profiling
from dmlgpu.tensors.recorded_call import BoundWork, Place, Prepared, RecordedCall, rounded

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device


KEPT_BYTES = 256 << 20
"""Maximum bytes of unused buffers that a device keeps."""

MAX_RESERVED = 1 << 20
"""Maximum bytes of a buffer that stays reserved for the graph whose output it was."""

_RESERVED = 64
"""Maximum number of unused buffers of one size that stay reserved for a graph."""


class BufferPool:
    """A device's unused buffers. Thread-safe.

    Args:
        state: the device's; the pool does not keep the device itself alive.
        forget: called when memory is released to the executor, to drop the work recorded on it.

    Attributes:
        cached_bytes: those of unused buffers.
        allocations: number of allocations by the executor.
    """

    def __init__(self, state: DeviceState, forget: Callable[[], None]):
        self._state, self._forget = state, forget
        self.unused: dict[int, dict[int | None, Any]] = {}  # by size and identity, the latest one last
        self.reserved: dict[int | None, dict[int, dict[int | None, Any]]] = {}
        self.cached_bytes = self.allocations = 0
        for pools in ({0: self.unused}, self.reserved):
            weakref.finalize(self, _free, state, pools).atexit = False

    def take(self, device: Device, size: int, label: str) -> Buffer:
        """Return a buffer of at least ``size`` uninitialized bytes; releasing it returns it to the pool.

        Args:
            device: Device of the buffer.
            size: In bytes.
            label: For messages.

        Raises:
            OutOfMemory: the device has no room, even after all unused buffers went.
        """
        ((memory, capacity),) = self.take_each((size,), label)
        return self.buffer(device, memory, capacity, label)

    def buffer(self, device: Device, memory: Any, size: int, label: str, graph: int | None = None) -> Buffer:
        """Return memory that was taken for the output of a graph as a buffer."""
        return Buffer(
            device,
            self._state,
            size=size,
            memory=memory,
            identity=memory,
            name=label,
            free=functools.partial(self._give_later, memory, size, graph),
        )

    def _give_later(self, memory: Any, size: int, graph: int | None) -> None:
        """Return the memory of a buffer to the pool without waiting for the lock."""
        self._state.deferred.add(functools.partial(self._give, memory, size, graph))

    def take_again(
        self, requests: Sequence[tuple[int, int, int]], internal: Container[int], graph: int | None
    ) -> dict[int, tuple[Any, int]] | None:
        """Take unused memory that work is bound to, each with its size in bytes; None if any of it is used.

        The caller holds the lock until it has submitted the work.

        Args:
            requests: Number, identity and size in bytes of each memory.
            internal: Numbers of memory to leave in the pool, since nothing reads it after the work.
            graph: As of ``take_each``.
        """
        pools = (self.unused,) if graph is None else (self.reserved.get(graph, {}), self.unused)
        taken: dict[int, tuple[Any, int]] = {}
        for number, identity, size in requests:
            for pool in pools:
                unused = pool.get(size)
                if unused is not None and identity in unused:
                    if number not in internal:
                        taken[number] = unused.pop(identity), size
                        self.cached_bytes -= size
                    break
            else:
                for memory, capacity in taken.values():
                    self._give(memory, capacity, graph)
                return None
        return taken

    def take_each(
        self,
        sizes: Sequence[int],
        label: str,
        graph: int | None = None,
        preferred: Sequence[Sequence[int]] = (),
    ) -> list[tuple[Any, int]]:
        """Take memory of the executor for several sizes, each with its size in bytes.

        Args:
            sizes: In bytes.
            label: For messages.
            graph: Number of the graph whose outputs these are.
            preferred: Identities of memory to take if it is unused, by size; earlier ones first.

        Raises:
            OutOfMemory: As ``take``.
        """
        wholes = [rounded(size) for size in sizes]
        taken: list[Any] = [None] * len(wholes)
        with self._state.lock:  # reentrant: a collection of garbage within it may give buffers back
            self._state.deferred.run()
            reserved = self.reserved.get(graph, {})
            for identities in preferred:
                for index, (capacity, identity) in enumerate(zip(wholes, identities, strict=False)):
                    if taken[index] is None and (unused := reserved.get(capacity) or self.unused.get(capacity)):
                        taken[index] = unused.pop(identity, None)
            for index, capacity in enumerate(wholes):
                if taken[index] is None and (unused := reserved.get(capacity) or self.unused.get(capacity)):
                    _, taken[index] = unused.popitem()
            self.cached_bytes -= sum(
                [capacity for capacity, memory in zip(wholes, taken, strict=True) if memory is not None]
            )
        results = [(memory, capacity) for memory, capacity in zip(taken, wholes, strict=True)]
        for index, (memory, capacity) in enumerate(results):
            if memory is None:
                try:
                    results[index] = self._allocate(sizes[index], capacity, label)
                except OutOfMemory:
                    self.give_back([result for result in results if result[0] is not None])
                    raise
        return results

    def give_back(self, taken: Iterable[tuple[Any, int]]) -> None:
        """Return memory to the pool that ``take_each`` took. Submitted work may still use it, since later work runs
        later."""
        with self._state.lock:
            for memory, size in taken:
                self._give(memory, size)

    def _allocate(self, size: int, capacity: int, label: str) -> tuple[Any, int]:
        self.allocations += 1
        create = self._state.backend.create_buffer
        try:
            return self._state.call(create, capacity, label), capacity
        except OutOfMemory:
            self.clear()
        exact = -(-size // 16) * 16
        return self._state.call(create, exact, label), exact

    def reserve(self, prepared: Prepared) -> None:
        """Reserve released outputs of a graph for its next calls, so that its work, recorded for this memory, is
        reused."""
        prepared.reserved = graph = next(_graphs)
        self.reserved[graph] = {}
        free = functools.partial(self._state.deferred.add, functools.partial(self._free_reserved, graph))
        weakref.finalize(prepared, free).atexit = False

    def _free_reserved(self, graph: int) -> None:
        """Free the memory reserved for a graph for other uses. The caller holds the lock."""
        for size, memories in self.reserved.pop(graph, {}).items():
            self.unused.setdefault(size, {}).update(memories)

    def _give(self, memory: Any, size: int, graph: int | None = None) -> None:
        """Return a buffer to the pool; drop buffers if the pool is full. The caller holds the lock."""
        is_room = self._state.removed is None and size <= KEPT_BYTES // 2
        if is_room and self.cached_bytes + size <= KEPT_BYTES:
            reserved = self.reserved.get(graph) if size <= MAX_RESERVED else None
            unused = (self.unused if reserved is None else reserved).setdefault(size, {})
            if len(unused) >= _RESERVED and reserved is not None:
                unused = self.unused.setdefault(size, {})
            unused[id(memory)] = memory
            self.cached_bytes += size
            return
        if is_room:
            self.clear()
        self._forget()
        self._state.free(memory)

    def clear(self) -> None:
        """Release all unused buffers to the executor."""
        with self._state.lock:
            self._state.deferred.run()
            pools = {index: dict(pool) for index, pool in enumerate((self.unused, *self.reserved.values()))}
            for pool in (self.unused, *self.reserved.values()):
                pool.clear()
            self.cached_bytes = 0
        self._forget()
        _free(self._state, pools)


def _free(state: DeviceState, pools: Mapping[Any, dict[int, dict[int | None, Any]]]) -> None:
    """Release buffers to the executor."""
    for pool in pools.values():
        for memories in pool.values():
            for memory in memories.values():
                state.free(memory)


class OwnedBuffer:
    """Memory that is released to the executor when garbage-collected; unlike a buffer, it does not keep the device
    alive.

    Attributes:
        memory: the executor's.
        size: its bytes.

    Raises:
        OutOfMemory: the device has no room.
    """

    def __init__(self, state: DeviceState, size: int, label: str):
        self.size = -(-size // 16) * 16
        self.memory: Any = state.call(state.backend.create_buffer, self.size, label)
        weakref.finalize(self, state.free, self.memory).atexit = False

    @property
    def resource(self) -> Range[Any]:
        """The memory as a persistent resource."""
        return Range(self.memory, 0, self.size)


class PersistentBuffers:
    """A persistent resource whose parts have memory of their own.

    Attributes:
        buffers: Memory of each part.
        resource: All of it, as executables bind it.
    """

    def __init__(self, buffers: Mapping[PersistentPart, OwnedBuffer]):
        self.buffers = buffers
        self.resource = PersistentRanges(
            {part.begin: Range(buffer.memory, 0, part.size) for part, buffer in buffers.items()}
        )


CALLS = 2048
"""Maximum number of calls that a device caches: operators, and functions of PyTorch's device."""

CALL_BYTES = 512 << 20
"""Maximum estimated bytes of the pipelines of these calls; functions count those of their operators again."""

RECORDED = 8192
"""Maximum number of operators that a device caches with the memory to which they are bound."""

_graphs = itertools.count()
"""Keys of graphs for whose outputs memory is reserved."""

LEAVES_OUTPUT_UNTOUCHED = ("MULTIHEAD_ATTENTION1", "NONZERO_COORDINATES")
"""Operators that may leave elements of their outputs unchanged."""


def leaves_untouched(desc: OperatorDesc) -> bool:
    """Return whether an operator may leave elements of its outputs unchanged; False if caches start as copies of past
    ones."""
    if not isinstance(desc, descs.MultiheadAttention1):
        return desc.operator in LEAVES_OUTPUT_UNTOUCHED
    caches = (
        (desc.past_key_tensor, desc.output_present_key_tensor),
        (desc.past_value_tensor, desc.output_present_value_tensor),
    )
    return any(
        present is not None and (past is None or past.element_count != present.element_count)
        for past, present in caches
    )


_KEY = "dmlgpu.tensors"


class EagerSession:
    """One device's state of eager calls. Thread-safe. It does not keep the device alive.

    Attributes:
        state: State of the device.
        calls: Each a RecordedCall, or a function of PyTorch's device that has one, by function and layouts of the
            arguments; False if it cannot be repeated.
        recorded: Work of calls on the memory of their arguments, by call and places of the arguments: the latest first.
        numbers: Memory of scalars, by type and value.
        pool: Unused memory.
        bindings: Number of times that a call was bound to memory.
    """

    def __init__(self, state: DeviceState):
        self.state = state
        self.calls: Cache[Any, Any] = Cache(CacheLimits(CALLS, CALL_BYTES))
        self.recorded: Cache[Any, tuple[BoundWork, ...]] = Cache(CacheLimits(RECORDED, RECORDED))
        self.numbers: Cache[Any, OwnedBuffer] = Cache(CacheLimits(CALLS, CALLS))
        self.pool = BufferPool(state, self.recorded.clear)
        self.bindings = 0

    def compile(self, device: Device, desc: OperatorDesc) -> RecordedCall:
        """Compile and initialize an operator.

        Raises:
            InvalidDescription, NotSupported, OutOfMemory, ShaderError: as ``Device.compile_operator``.
        """
        clears = desc.operator in LEAVES_OUTPUT_UNTOUCHED
        return self.prepare(device.compile_operator(device.create_operator(desc)), clears)

    def prepare(
        self,
        compiled: CompiledOperator,
        clears: bool,
        owned: Sequence[Place | None] | None = None,
        *,
        is_graph: bool = False,
    ) -> RecordedCall:
        """Initialize a compiled operator, so that it can be called.

        Args:
            compiled: The operator or graph.
            clears: As in ``Prepared``.
            owned: Memory of the inputs that the initialization reads; defaults to None for no inputs.
            is_graph: Whether calls write to the memory of earlier calls, if it is unused.

        Raises:
            OutOfMemory: no room for the persistent resource.
        """
        prepared = Prepared.of(compiled, clears)
        self.initialize(prepared, owned or (None,) * len(compiled.inputs))
        if is_graph:
            self.pool.reserve(prepared)
        return RecordedCall.of_operator(self, prepared)

    def initialize(self, prepared: Prepared, owned: Sequence[Place | None]) -> None:
        """Fill the persistent resource of an operator, if it has one. Raises as ``prepare``.

        Args:
            prepared: The operator.
            owned: Memory of the inputs that the initialization reads.
        """
        executable = prepared.executable
        if executable.persistent_size:
            prepared.persistent = OwnedBuffer(self.state, executable.persistent_size, "persistent resource")
            resources = prepared.resources(owned, (None,) * len(prepared.outputs), None)
            self.submit(self.state.call(executable.bind_initialization, resources))

    def fill(
        self, prepared: Prepared, owned: Sequence[Place | None], parts: PersistentBuffers, kernels: Sequence[int]
    ) -> int:
        """Fill parts of the persistent resource of an operator; return the serial number. Raises as ``submit``.

        Args:
            prepared: The operator.
            owned: Memory of the inputs that the kernels read.
            parts: The parts that they fill.
            kernels: Indices of the kernels of the initialization.
        """
        resources = replace(prepared.resources(owned, (None,) * len(prepared.outputs), None), persistent=parts.resource)
        return self.submit(self.state.call(prepared.executable.bind_initialization, resources, kernels))

    def submit(self, work: Sequence[Dispatch], label: str | None = None, *, is_followed: bool = False) -> int:
        """Submit work to the executor, after all earlier work. Does not wait.

        Args:
            work: The work.
            label: Name in messages.
            is_followed: Other work or a read follows at once and may share its submission.

        Returns:
            The serial number of the submission.

        Raises:
            OutOfMemory: If memory for the work cannot be allocated; names ``label``.
            DeviceRemoved: If the device is removed.
        """
        state = self.state
        with state.lock:
            state.check()
            try:
                if profiling.active:
                    profiling.run_timed(state.backend, label or "initialization", work)
                    return state.last_serial or 0
                serial = state.last_serial = state.backend.enqueue(work, is_followed=is_followed)
            except DeviceRemoved as lost:
                state.remove(str(lost))
                raise
            except OutOfMemory as error:
                if label is None:
                    raise
                raise OutOfMemory(f"{label}: {error}") from error
            return serial

    def number(self, value: int | float, data_type: DataType) -> OwnedBuffer:
        """Return memory that holds a scalar, from a cache."""
        key = data_type, value.hex() if isinstance(value, float) else value

        def make() -> OwnedBuffer:
            raw = TensorDesc(data_type, (1,)).encode(as_elements(data_type, [value]))
            owned = OwnedBuffer(self.state, raw.size, "a number")
            self.state.call(self.state.backend.write, owned.memory, 0, raw)
            return owned

        return self.numbers.get_or_make(key, make, lambda _: 1)

    def memory_info(self) -> MemoryInfo:
        """Return the bytes of the device's buffers, and those of unused ones."""
        backend = self.state.backend
        with self.state.lock:
            # After buffers that were dropped are freed.
            allocated = self.state.call(lambda: getattr(backend, "allocated", 0))
            return MemoryInfo(allocated, self.pool.cached_bytes, getattr(backend, "memory_budget", None))

    def clear(self) -> None:
        """Release unused memory and compiled operators."""
        self.numbers.clear()
        self.calls.clear()
        self.pool.clear()


def session_of(device: Device) -> EagerSession:
    """Return a device's state of eager calls, created on first use."""
    session: EagerSession | None = device.get_private_data(_KEY)
    if session is None:
        with device._state.lock:
            session = device.get_private_data(_KEY)
            if session is None:
                session = EagerSession(device._state)
                device.set_private_data(_KEY, session)
    return session
