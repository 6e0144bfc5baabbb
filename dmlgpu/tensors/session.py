"""Eager state of a device: unused memory, compiled operators by description, dispatches bound to memory."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import DeviceRemoved, OutOfMemory
from dmlgpu.common.memory import MemoryInfo
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.executor import Dispatch, Executable, Range, Resources
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.runtime.state import DeviceState
from dmlgpu.tensors import profiling

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device


KEPT_BYTES = 256 << 20
"""Maximum bytes of unused buffers that a device keeps."""

_SMALLEST = 256

MAX_RESERVED = 1 << 20
"""Maximum bytes of a buffer that stays reserved for the graph whose output it was."""

_RESERVED = 64
"""Maximum number of unused buffers of one size that stay reserved for a graph."""


def rounded(size: int) -> int:
    """Return the size in bytes of the buffer for a tensor: at most an eighth more, so that few sizes occur."""
    step = 1 << max(4, size.bit_length() - 4)
    return max(_SMALLEST, -(-size // step) * step)


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
        return self.buffer(device, *self.take_memory(size, label), label)

    def buffer(self, device: Device, memory: Any, size: int, label: str, graph: int | None = None) -> Buffer:
        """Return memory that was taken for the output of a graph as a buffer."""
        return Buffer(
            device,
            self._state,
            size=size,
            memory=memory,
            identity=memory,
            name=label,
            free=lambda freed: self._state.deferred.add(lambda: self._give(freed, size, graph)),
        )

    def take_memory(self, size: int, label: str) -> tuple[Any, int]:
        """Take memory of the executor and its size in bytes, to be returned by ``give_back``. Raises as ``take``."""
        (taken,) = self.take_each((size,), label)
        return taken

    def take_each(
        self,
        sizes: Sequence[int],
        label: str,
        graph: int | None = None,
        preferred: Sequence[Sequence[int | None]] = (),
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
        """Return memory to the pool that ``take_memory`` took. Submitted work may still use it, since later work runs
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

    def reserve(self, graph: int) -> None:
        """Reserve released outputs of a graph for its next calls, so that its work, recorded for this memory, is
        reused."""
        self.reserved[graph] = {}

    def free_reserved(self, graph: int) -> None:
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


COMPILED = 1024
"""Maximum number of compiled operators that a device caches for eager calls."""

COMPILED_BYTES = 256 << 20
"""Maximum estimated bytes of the pipelines of these operators."""

RECORDED = 8192
"""Maximum number of dispatches that a device caches with the memory to which they are bound."""

LEAVES_OUTPUT_UNTOUCHED = ("MULTIHEAD_ATTENTION1", "NONZERO_COORDINATES")
"""Operators that may leave elements of their outputs unchanged."""

executed: ContextVar[list[Any] | None] = ContextVar("dmlgpu_executed", default=None)
"""Log of the operators that ``call_op`` executes, for functions that are replayed: tuples of the operator, the
locations and owners of its inputs, and the buffers of its outputs; None marks work that must not be replayed."""


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

Bytes: TypeAlias = NDArray[np.uint8]

Place: TypeAlias = tuple[Any, int]
"""An executor's buffer, and the first byte in it: a multiple of 16."""


_RECENT = 2
"""Number of recent calls whose memory the next one prefers: two, because results that replace operands, such as updated
weights, alternate between two buffers."""


_numbers = itertools.count()
"""Unique ids of operators and sequences."""


@dataclass(eq=False)
class Prepared:
    """An operator that can be called.

    Attributes:
        executable: the operator.
        inputs, outputs: the flat tensors, None for absent ones.
        persistent: memory that its initialization filled, or None.
        clears: True if outputs must be zeroed before, since the operator may leave elements unchanged.
        number: unique in the process; unlike ``id``, never used again.
        recent: identities of the memory of the outputs and the temporary resource in the last calls, which the next one
            takes again if it is unused.
        graph: the number if it is a graph, for which memory of its outputs is reserved; else None.
    """

    executable: Executable
    inputs: tuple[TensorDesc | None, ...]
    outputs: tuple[TensorDesc | None, ...]
    persistent: OwnedBuffer | None
    clears: bool
    number: int = field(default_factory=_numbers.__next__)
    recent: list[list[int | None]] = field(default_factory=list)
    graph: int | None = None

    @property
    def memory(self) -> int:
        """Estimated bytes of the operator itself: pipelines and constants; 0 if nothing is compiled."""
        size: int = getattr(self.executable, "memory", 0)
        return size


class StepInput(NamedTuple):
    """Location of an input of a step.

    Attributes:
        output: Number of an earlier output, counted over all steps; None for an input of the sequence.
        offset: First byte in that output, or number of the input of the sequence.
    """

    output: int | None
    offset: int


@dataclass(eq=False)
class StepSequence:
    """Operators that are executed as one piece of work, some on outputs of earlier ones.

    Attributes:
        steps: The operators and their inputs, None for absent ones.
        results: Numbers of the outputs that are returned, counted over all steps.
        number: Unique among sequences and operators.
        recent: As of ``Prepared``, with the temporary resources after the outputs.
    """

    steps: Sequence[tuple[Prepared, Sequence[StepInput | None]]]
    results: Sequence[int]
    number: int = field(default_factory=_numbers.__next__)
    recent: list[list[int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outputs = [desc for prepared, _ in self.steps for desc in prepared.outputs if desc is not None]
        self.scratch = [prepared.executable.temporary_size for prepared, _ in self.steps]
        self.sizes = [desc.byte_size for desc in self.outputs] + [size for size in self.scratch if size]


class EagerSession:
    """One device's state of eager calls. Thread-safe. It does not keep the device alive."""

    def __init__(self, state: DeviceState):
        self._state = state
        self.recorded: Cache[Any, tuple[Sequence[Dispatch], tuple[Any, ...]]] = Cache(CacheLimits(RECORDED, RECORDED))
        self._written: Cache[Any, list[int | None]] = Cache(CacheLimits(RECORDED, RECORDED))
        self.compiled: Cache[Any, Prepared] = Cache(CacheLimits(COMPILED, COMPILED_BYTES))
        self.numbers: Cache[Any, OwnedBuffer] = Cache(CacheLimits(COMPILED, COMPILED))
        self.plans: Cache[Any, Any] = Cache(CacheLimits(COMPILED, COMPILED_BYTES))
        self.pool = BufferPool(state, self.recorded.clear)

    def compile(self, device: Device, desc: OperatorDesc) -> Prepared:
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
    ) -> Prepared:
        """Initialize a compiled operator, so that it can be called.

        Args:
            compiled: The operator or graph.
            clears: As in ``Prepared``.
            owned: Memory of the inputs that the initialization reads; defaults to None for no inputs.
            is_graph: Whether calls write to the memory of earlier calls, if it is unused.

        Raises:
            OutOfMemory: no room for the persistent resource.
        """
        executable, persistent = compiled._executable, None
        if executable.persistent_size:
            persistent = OwnedBuffer(self._state, executable.persistent_size, "persistent resource")
            bound = Range(persistent.memory, 0, executable.persistent_size)
            inputs = tuple(
                None if place is None or port.desc is None else Range(place[0], place[1], port.desc.byte_size)
                for place, port in zip(owned or (None,) * len(compiled.inputs), compiled.inputs, strict=True)
            )
            resources = Resources(inputs, (None,) * len(compiled.outputs), None, bound)
            self.submit(self._state.call(executable.bind_initialization, resources))
        prepared = self.prepared(compiled, persistent, clears)
        if is_graph:
            prepared.graph = prepared.number
            self.pool.reserve(prepared.number)
        return prepared

    def prepared(self, compiled: CompiledOperator, persistent: OwnedBuffer | None, clears: bool) -> Prepared:
        """Return a compiled and initialized operator in the form that ``execute`` and ``compute`` take.

        Its recorded work is dropped with it, because it refers to pipelines, which are large.
        """
        prepared = Prepared(
            compiled._executable,
            tuple(port.desc for port in compiled.inputs),
            tuple(port.desc for port in compiled.outputs),
            persistent,
            clears,
        )
        weakref.finalize(prepared, _forget, self._state, self.recorded, self.pool, prepared.number).atexit = False
        return prepared

    def execute(
        self,
        device: Device,
        prepared: Prepared,
        inputs: Sequence[Place | None],
        label: str,
        in_place: Mapping[int, Buffer] = MappingProxyType({}),
    ) -> list[Buffer | None]:
        """Run an operator on memory, and return the memory of its outputs. Does not wait.

        Args:
            device: Device to run on.
            prepared: The operator.
            inputs: Memory of the inputs.
            label: For messages.
            in_place: Memory of the outputs that lie in the memory of an input.

        Raises:
            OutOfMemory: no room for the outputs; names ``label``.
            NotSupported: the adapter cannot bind so much at once.
            DeviceRemoved: the device is gone.
        """
        pool, executable, graph, descs_of = self.pool, prepared.executable, prepared.graph, prepared.outputs
        numbers = [index for index, desc in enumerate(descs_of) if desc is not None and index not in in_place]
        scratch_size = executable.temporary_size
        sizes = [descs_of[index].byte_size for index in numbers]  # type: ignore[union-attr]
        key = _key(prepared, inputs)
        last = self._written.get(key)
        preferred = prepared.recent if last is None else [last, *prepared.recent]
        taken = pool.take_each([*sizes, scratch_size] if scratch_size else sizes, label, graph, preferred)
        self._remember(prepared, key, last, [id(memory) for memory, _ in taken])
        outputs: list[Buffer | None] = [in_place.get(index) for index in range(len(descs_of))]
        for index, (memory, capacity) in zip(numbers, taken, strict=False):
            outputs[index] = pool.buffer(device, memory, capacity, label, graph)
        if prepared.clears:
            for buffer in outputs:
                if buffer is not None:
                    buffer.write(bytes(buffer.size))
        written = [None if buffer is None else buffer._memory for buffer in outputs]
        written.append(taken[-1][0] if scratch_size else None)
        try:
            self.submit(self._recorded_work(prepared, inputs, written, key), label)
        finally:
            if scratch_size:
                pool.give_back(taken[-1:])  # later work on the same memory runs later
        return outputs

    def sequence(
        self, steps: Sequence[tuple[Prepared, Sequence[StepInput | None]]], results: Sequence[int]
    ) -> StepSequence:
        """Return operators that ``execute_all`` takes, whose recorded work is dropped with them."""
        sequence = StepSequence(steps, results)
        weakref.finalize(sequence, _forget, self._state, self.recorded, self.pool, sequence.number).atexit = False
        return sequence

    def execute_all(self, device: Device, sequence: StepSequence, inputs: Sequence[Place], label: str) -> list[Buffer]:
        """Run operators as one piece of work, and return the memory of its results. Does not wait. Raises as
        ``execute``.

        Args:
            device: Device to run on.
            sequence: The operators.
            inputs: Memory of the inputs of the sequence.
            label: For messages.
        """
        pool = self.pool
        key = _key(sequence, inputs)
        last = self._written.get(key)
        preferred = sequence.recent if last is None else [last, *sequence.recent]
        taken = pool.take_each(sequence.sizes, label, None, preferred)
        unused = dict(enumerate(taken))
        try:
            memories = [memory for memory, _ in taken]
            self._remember(sequence, key, last, list(map(id, memories)))
            written = tuple(map(id, memories))
            entry = self.recorded.get((*key, written))
            if entry is None:
                units = self._bind_all(sequence, inputs, memories)
                entry = self._state.backend.record(units), (*[place[0] for place in inputs], *memories)
                self.recorded.put((*key, written), entry, len(sequence.steps))
            first = 0
            for prepared, _ in sequence.steps:
                outputs = [desc for desc in prepared.outputs if desc is not None]
                for memory, capacity in taken[first : first + len(outputs)] if prepared.clears else ():
                    self._state.call(self._state.backend.write, memory, 0, np.zeros(capacity, np.uint8))
                first += len(outputs)
            self.submit(entry[0], label)
            buffers = []
            for index in sequence.results:
                buffers.append(pool.buffer(device, *taken[index], label))
                del unused[index]
            return buffers
        finally:
            pool.give_back(unused.values())  # later work on the same memory runs later

    def _bind_all(self, sequence: StepSequence, inputs: Sequence[Place], memories: Sequence[Any]) -> list[Dispatch]:
        """Return the work of a sequence on memory of its inputs, its outputs, and its temporary resources."""
        units: list[Dispatch] = []
        first, scratch = 0, iter(memories[len(sequence.outputs) :])
        for (prepared, sources), size in zip(sequence.steps, sequence.scratch, strict=True):
            places = [
                None
                if source is None
                else inputs[source.offset]
                if source.output is None
                else (memories[source.output], source.offset)
                for source in sources
            ]
            written: list[Any] = []
            for desc in prepared.outputs:
                written.append(None if desc is None else memories[first])
                first += desc is not None
            written.append(next(scratch) if size else None)
            units += self._recorded_work(prepared, places, written)  # most steps lie where they lay before
        return units

    def _remember(
        self, work: Prepared | StepSequence, key: Any, last: list[int | None] | None, written: list[int | None]
    ) -> None:
        """Make the next call on the same memory, and the next call on any, prefer the memory that is written now."""
        work.recent = [written, *work.recent[: _RECENT - 1]]
        if last != written:
            self._written.discard(key)
            self._written.put(key, written, 1)

    def execute_into(
        self, device: Device, prepared: Prepared, inputs: Sequence[Place | None], outputs: Sequence[Place], label: str
    ) -> None:
        """Run an operator on memory, and write its outputs into memory that may begin anywhere a tensor can be bound.

        Does not wait. Nothing of the call is kept, since such places seldom recur.

        Raises:
            NotSupported, DeviceRemoved: As ``execute``.
        """
        executable = prepared.executable
        scratch = self.pool.take(device, executable.temporary_size, label) if executable.temporary_size else None
        resources = self._resources(prepared, inputs, [*(place[0] for place in outputs), scratch and scratch._memory])
        targets = tuple(
            None if target is None else replace(target, offset=offset)
            for target, (_, offset) in zip(resources.outputs, outputs, strict=True)
        )
        self.submit(self._state.call(executable.bind, replace(resources, outputs=targets)), label)
        if scratch is not None:
            scratch.release()

    def compute(self, prepared: Prepared, inputs: Sequence[Place | Bytes | None], label: str) -> list[Bytes | None]:
        """Run an operator on bytes of the host, whole words of them, or on memory, and return the bytes of its outputs.

        Waits. Memory is taken for this call alone, of which nothing is made that would have to look after it: what this
        takes besides the work counts where that is short.

        Raises:
            OutOfMemory, NotSupported, DeviceRemoved: as ``execute``.
        """
        refuse_repetition()
        state, executable = self._state, prepared.executable
        taken: list[tuple[Any, int]] = []

        def take(size: int) -> Any:
            taken.append(self.pool.take_memory(size, label))
            return taken[-1][0]

        try:
            places: list[Place | None] = []
            for operand in inputs:
                if isinstance(operand, np.ndarray):
                    memory = take(operand.size)
                    state.call(state.backend.write, memory, 0, operand)
                    places.append((memory, 0))
                else:
                    places.append(operand)
            outputs = [None if desc is None else take(desc.byte_size) for desc in prepared.outputs]
            if prepared.clears:
                for memory, desc in zip(outputs, prepared.outputs, strict=True):
                    if desc is not None:
                        state.call(state.backend.write, memory, 0, np.zeros(desc.byte_size, np.uint8))
            scratch = take(executable.temporary_size) if executable.temporary_size else None
            self.submit(self._recorded_work(prepared, places, (*outputs, scratch)), label)
            return [
                None if desc is None else state.call(state.backend.read, memory, 0, desc.byte_size)
                for memory, desc in zip(outputs, prepared.outputs, strict=True)
            ]
        finally:
            self.pool.give_back(taken)

    def _recorded_work(
        self, prepared: Prepared, inputs: Sequence[Place | None], written: Sequence[Any], key: Any = None
    ) -> Sequence[Dispatch]:
        """Return an operator's work, recorded once for this memory of its inputs, outputs and temporary resource."""
        key = (*(key or _key(prepared, inputs)), tuple(map(id, written)))
        entry = self.recorded.get(key)
        if entry is None:
            units = self.bind(prepared, inputs, written)
            # The key has identities of memory, which lives as long as the entry.
            memories = [None if place is None else place[0] for place in inputs]
            entry = self._state.backend.record(units), (*memories, *written)
            self.recorded.put(key, entry, 1)
        return entry[0]

    def bind(self, prepared: Prepared, inputs: Sequence[Place | None], written: Sequence[Any]) -> Sequence[Dispatch]:
        """Return an operator's work on memory of its inputs, and of its outputs and temporary resource."""
        return self._state.call(prepared.executable.bind, self._resources(prepared, inputs, written))

    def _resources(self, prepared: Prepared, inputs: Sequence[Place | None], written: Sequence[Any]) -> Resources:
        """Return the bindings of an operator."""
        executable, owned = prepared.executable, prepared.persistent
        ranges = [
            None if place is None or desc is None else Range(place[0], place[1], desc.byte_size)
            for place, desc in zip(inputs, prepared.inputs, strict=True)
        ]
        targets = [
            None if memory is None or desc is None else Range(memory, 0, desc.byte_size)
            for memory, desc in zip(written[:-1], prepared.outputs, strict=True)
        ]
        temporary = None if written[-1] is None else Range(written[-1], 0, executable.temporary_size)
        persistent = None if owned is None else Range(owned.memory, 0, executable.persistent_size)
        return Resources(tuple(ranges), tuple(targets), temporary, persistent)

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
        state = self._state
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
            raw = TensorDesc(data_type, (1,)).encode(np.array([value], data_type.numpy))
            owned = OwnedBuffer(self._state, raw.size, "a number")
            self._state.call(self._state.backend.write, owned.memory, 0, raw)
            return owned

        return self.numbers.get_or_make(key, make, lambda _: 1)

    def memory_info(self) -> MemoryInfo:
        """Return the bytes of the device's buffers, and those of unused ones."""
        backend = self._state.backend
        with self._state.lock:
            # After buffers that were dropped are freed.
            allocated = self._state.call(lambda: getattr(backend, "allocated", 0))
            return MemoryInfo(allocated, self.pool.cached_bytes, getattr(backend, "memory_budget", None))

    def clear(self) -> None:
        """Release unused memory and compiled operators."""
        self.numbers.clear()
        self.plans.clear()
        self._written.clear()
        self.compiled.clear()
        self.pool.clear()


def _key(work: Prepared | StepSequence, inputs: Sequence[Place | None]) -> tuple[Any, ...]:
    """Return the cache key of calls of an operator on the same memory."""
    memories = tuple([0 if place is None else id(place[0]) for place in inputs])
    return work.number, memories, tuple([0 if place is None else place[1] for place in inputs])


def refuse_repetition() -> None:
    """Mark the work that runs now as not repeatable: replaying its operators would not have the same effects or
    results."""
    log = executed.get()
    if log is not None:
        log.append(None)


def _forget(state: DeviceState, recorded: Cache[Any, Any], pool: BufferPool, owner: int) -> None:
    """Drop the work recorded for an operator that was collected, and the memory reserved for it."""

    def forget() -> None:
        recorded.discard_if(lambda key: key[0] == owner)
        pool.free_reserved(owner)

    state.deferred.add(forget)


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
