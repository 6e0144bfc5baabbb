"""Calls that are recorded once and repeated on other memory.

An operator of an eager call, a compiled function, a call of PyTorch's device, a graph of an ONNX model and a step of a
language model are ``RecordedCall``s. A device finds them in ``EagerSession.calls`` by the function and the layouts of
its arguments, and their work in ``EagerSession.recorded`` by the places of the arguments.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.executor import Dispatch, Executable, Range, Resources
from dmlgpu.tensors.memory import NOTHING

if TYPE_CHECKING:
    from dmlgpu.common.cache import Cache
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.operator import CompiledOperator
    from dmlgpu.runtime.state import DeviceState
    from dmlgpu.tensors.session import EagerSession, OwnedBuffer, PersistentBuffers
    from dmlgpu.tensors.strided import TensorBase

Bytes: TypeAlias = NDArray[np.uint8]

Place: TypeAlias = tuple[Any, int]
"""An executor's buffer, and the first byte in it: a multiple of 16."""

_RECENT = 2
"""Number of recent calls whose memory the next one prefers, and of bindings that it reuses: two, because results that
replace operands, such as updated weights, alternate between two buffers."""

_ids = itertools.count()


_SMALLEST = 256


def rounded(size: int) -> int:
    """Return the size in bytes of the buffer for a tensor: at most an eighth more, so that few sizes occur."""
    step = 1 << max(4, size.bit_length() - 4)
    return max(_SMALLEST, -(-size // step) * step)


@dataclass(eq=False)
class Prepared:
    """An operator that is compiled and initialized.

    Attributes:
        executable: The operator.
        inputs, outputs: The flat tensors, None for absent ones.
        clears: Whether outputs must be zeroed before, since the operator may leave elements unchanged.
        persistent: Memory that its initialization filled, or None.
        reserved: Key of the memory that is reserved for its outputs; None for operators of eager calls.
    """

    executable: Executable
    inputs: tuple[TensorDesc | None, ...]
    outputs: tuple[TensorDesc | None, ...]
    clears: bool
    persistent: OwnedBuffer | PersistentBuffers | None = None
    reserved: int | None = None

    @classmethod
    def of(cls, compiled: CompiledOperator, clears: bool) -> Prepared:
        """Return a compiled operator, to be initialized."""
        inputs, outputs = (tuple([port.desc for port in ports]) for ports in (compiled.inputs, compiled.outputs))
        return cls(compiled._executable, inputs, outputs, clears)

    @property
    def memory(self) -> int:
        """Estimated bytes of the operator itself: pipelines and constants; 0 if nothing is compiled."""
        size: int = getattr(self.executable, "memory", 0)
        return size

    def resources(
        self, inputs: Sequence[Place | None], outputs: Sequence[Place | None], scratch: Place | None
    ) -> Resources:
        """Return the bindings of an execution; ``scratch`` is the temporary resource."""
        executable, owned = self.executable, self.persistent
        return Resources(
            _ranges(inputs, self.inputs),
            _ranges(outputs, self.outputs),
            None if scratch is None else Range(*scratch, executable.temporary_size),
            None if owned is None else owned.resource,
        )


def _ranges(places: Sequence[Place | None], descs: Sequence[TensorDesc | None]) -> tuple[Range[Any] | None, ...]:
    return tuple(
        [
            None if place is None or desc is None else Range(place[0], place[1], desc.byte_size)
            for place, desc in zip(places, descs, strict=True)
        ]
    )


class ExecutedStep(NamedTuple):
    """An operator that ran while a call was recorded.

    Attributes:
        prepared: The operator.
        places: Memory of its inputs.
        owners: Object that keeps each of these alive.
        outputs: Memory of its outputs; None for absent ones, and for those in memory that exists.
        in_place: That memory, by number of the output; none if it is that of inputs.
    """

    prepared: Prepared
    places: Sequence[Place | None]
    owners: Sequence[Any]
    outputs: Sequence[Buffer | None]
    in_place: Mapping[int, Place] = NOTHING


_log: ContextVar[list[ExecutedStep | None] | None] = ContextVar("dmlgpu_executed", default=None)
"""Operators that run while a call is recorded; None marks work that must not be repeated."""


@contextmanager
def recording(is_active: bool = True) -> Iterator[list[ExecutedStep | None]]:
    """Log the operators that this thread runs inside the block, or none if ``is_active`` is False."""
    log: list[ExecutedStep | None] = []
    token = _log.set(log if is_active else None)
    try:
        yield log
    finally:
        _log.reset(token)


def steps_of_recording() -> list[ExecutedStep | None]:
    """Return the log of the innermost recording of this thread; an empty list if there is none."""
    log = _log.get()
    return [] if log is None else log


def refuse_repetition() -> None:
    """Mark the work that runs now as not repeatable: its operators alone would not have the same effects or results."""
    log = _log.get()
    if log is not None:
        log.append(None)


class CallPlace(NamedTuple):
    """Location of memory that a call reads: an argument, an output of an earlier step, or fixed memory.

    Attributes:
        offset: First byte there.
        argument: Index of the argument, or None.
        output: Number of the output, counted over all steps, or None.
        memory: The fixed memory, or None.
        owner: Object that keeps it alive.
    """

    offset: int
    argument: int | None = None
    output: int | None = None
    memory: Any = None
    owner: Any = None


CallStep: TypeAlias = tuple[Prepared, Sequence[int | None]]
"""An operator of a call, and the indices of its inputs among the places of the call; None for absent ones."""


class CallResult(NamedTuple):
    """A tensor that a call returns: a view of an output.

    Attributes:
        output: Number of the output, counted over all steps; None for a tensor without elements.
        kind: Class of the tensor.
        data_type, sizes, strides, offset, is_boolean: Arguments of ``TensorBase._set``.
    """

    output: int | None
    kind: type[TensorBase]
    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int | None
    is_boolean: bool


@dataclass(eq=False)
class BoundWork:
    """Work of a call on some memory.

    Attributes:
        identities: Those of the memory that it writes: outputs, then temporary resources.
        dispatches: Dispatches of each step.
        work: All of them, as the executor recorded them.
        memories: All memory, whose identities are unique as long as this refers to it.
    """

    identities: tuple[int, ...]
    dispatches: Sequence[Sequence[Dispatch]]
    work: Sequence[Dispatch]
    memories: tuple[Any, ...]


class RecordedCall:
    """Operators that run as one piece of work, some on outputs of earlier ones. Thread-safe.

    Args:
        session: Session of the device, whose work of the call is dropped with it.
        steps: The operators.
        places: Locations of the memory that they read; none for an operator that reads its arguments.
        results: Tensors that ``repeat`` returns, one or a tuple; numbers, and None for absent ones.
        in_place: Outputs that lie in the memory of a place, by number; the index of the place.
        returned: Numbers of the outputs that ``run`` returns; None for absent ones.

    Attributes:
        steps, places, results, returned: The arguments.
    """

    def __init__(
        self,
        session: EagerSession,
        steps: Sequence[CallStep],
        *,
        returned: Sequence[int | None],
        places: Sequence[CallPlace] = (),
        results: CallResult | tuple[CallResult | float | None, ...] | float | None = None,
        in_place: Mapping[int, int] = NOTHING,
    ):
        self.steps, self.places, self.results, self._in_place = steps, places, results, in_place
        self._id = next(_ids)
        outputs = [desc for prepared, _ in steps for desc in prepared.outputs if desc is not None]
        self._output_count = len(outputs)
        self._scratch = [prepared.executable.temporary_size for prepared, _ in steps]
        self._sizes = [desc.byte_size for desc in outputs] + [size for size in self._scratch if size]
        self._capacities = [rounded(size) for size in self._sizes]
        self.returned = returned
        self._internal = sorted({*range(len(self._sizes))} - {*returned})
        self._read = sorted({place.argument for place in places if place.argument is not None}) if places else None
        self._reserved = steps[0][0].reserved if len(steps) == 1 else None
        self._clears = any(prepared.clears for prepared, _ in steps)
        self._recent: list[tuple[int, ...]] = []
        self._latest: list[weakref.ref[BoundWork]] = []
        weakref.finalize(self, _forget, session.state, session.recorded, self._id).atexit = False

    @classmethod
    def of_operator(cls, session: EagerSession, prepared: Prepared) -> RecordedCall:
        """Return a call of an operator, which reads the places of its arguments and returns all outputs."""
        numbers = itertools.count()
        returned = [None if desc is None else next(numbers) for desc in prepared.outputs]
        return cls(session, [(prepared, range(len(prepared.inputs)))], returned=returned)

    @classmethod
    def of(
        cls,
        session: EagerSession,
        log: Sequence[ExecutedStep | None],
        arguments: Sequence[Place],
        result: Any,
        *,
        unchanged: Sequence[TensorBase] = (),
        max_fixed: float = math.inf,
    ) -> RecordedCall | None:
        """Return the call that repeats operators; None if it would not have the same effects or results.

        Args:
            session: Session of the device.
            log: The operators, as ``recording`` logged them.
            arguments: Memory of the arguments.
            result: The result: a tensor, or a tuple of tensors, numbers and None.
            unchanged: Tensors that the operators must not have moved to other memory.
            max_fixed: Maximum bytes of memory that is neither an argument nor computed, and that the call keeps alive.
        """
        recorded = _RecordedSteps(arguments)
        values = result if isinstance(result, tuple) else (result,)
        try:
            for entry in log:
                recorded.add(entry)
            results = [recorded.result(value) for value in values]
        except _NotRepeatable:
            return None
        outputs = recorded.outputs
        if recorded.fixed > max_fixed or any(_identity(tensor) in outputs for tensor in unchanged):
            return None
        return cls(
            session,
            recorded.steps,
            places=recorded.places,
            results=tuple(results) if isinstance(result, tuple) else results[0],
            in_place=recorded.in_place,
            returned=sorted(
                {result.output for result in results if isinstance(result, CallResult) and result.output is not None}
            ),
        )

    @property
    def prepared(self) -> Prepared:
        """The first operator."""
        return self.steps[0][0]

    @property
    def memory(self) -> int:
        """Estimated bytes of its operators."""
        return sum(prepared.memory for prepared, _ in self.steps)

    # ---- execution --------------------------------------------------------------------------------------------------

    def run(
        self,
        session: EagerSession,
        device: Device,
        arguments: Sequence[Place | None],
        label: str,
        *,
        owners: Sequence[Any] = (),
        in_place: Mapping[int, Place] = NOTHING,
        is_followed: bool = False,
    ) -> list[Buffer | None]:
        """Run the operators on memory, and return the memory of the outputs. Does not wait.

        Args:
            session: Session of the device.
            device: Device to run on.
            arguments: Memory of the arguments.
            label: For messages.
            owners: Object that keeps the memory of each argument alive.
            in_place: Memory of outputs, by number, that exists; it is not returned.
            is_followed: As of ``EagerSession.submit``.

        Raises:
            OutOfMemory: If there is no room for the outputs; names ``label``.
            NotSupported: If the adapter cannot bind so much at once.
            DeviceRemoved: If the device is removed.
        """
        if not self.steps:  # results have no elements
            return []
        pool, reserved = session.pool, self._reserved
        if self._in_place:
            places: Any = self._placed(arguments)
            in_place = {number: places[index] for number, index in self._in_place.items()}
        numbers = [number for number in range(len(self._sizes)) if number not in in_place]
        key = self._key(arguments, in_place)
        bound = session.recorded.get(key) or ()
        taken = self._run_again(session, bound, numbers, label, is_followed=is_followed)
        if taken is None:
            preferred = [
                [identities[number] for number in numbers]
                for identities in (*[work.identities for work in bound], *self._recent)
            ]
            new = pool.take_each([self._sizes[number] for number in numbers], label, reserved, preferred)
            taken = dict(zip(numbers, new, strict=True))
            try:
                written = [in_place.get(number) or (taken[number][0], 0) for number in range(len(self._sizes))]
                work = self._work(session, key, bound, arguments, written)
                self._used(work)
                if self._clears:
                    self._clear(session, written)
                session.submit(work.work, label, is_followed=is_followed)
            except BaseException:
                pool.give_back(new)
                raise
            # Later work on the same memory runs later.
            pool.give_back([taken[number] for number in self._internal if number in taken])
        buffers = [
            pool.buffer(device, *taken[number], label, reserved) if number in taken else None
            for number in self.returned
        ]
        log = _log.get()
        if log is not None:
            log.append(None if self.places else ExecutedStep(self.prepared, arguments, owners, buffers, in_place))
        return buffers

    def _run_again(
        self,
        session: EagerSession,
        bound: Sequence[BoundWork],
        numbers: Sequence[int],
        label: str,
        *,
        is_followed: bool,
    ) -> dict[int, tuple[Any, int]] | None:
        """Run work that is bound, if its memory is unused, and return that of the outputs that ``run`` returns; else
        None."""
        if not bound or self._clears:
            return None
        state, pool, capacities, internal = session.state, session.pool, self._capacities, self._internal
        with state.lock:
            state.deferred.run()
            for work in bound:
                identities = work.identities
                requests = [(number, identities[number], capacities[number]) for number in numbers]
                taken = pool.take_again(requests, internal, self._reserved)
                if taken is None:
                    continue
                try:
                    self._used(work)
                    session.submit(work.work, label, is_followed=is_followed)
                except BaseException:
                    pool.give_back(taken.values())
                    raise
                return taken
        return None

    def _used(self, work: BoundWork) -> None:
        """Prefer the memory of some work in the next calls."""
        recent = self._recent
        if not recent or recent[0] != work.identities:
            self._recent = [work.identities, *recent[: _RECENT - 1]]

    def repeat(
        self,
        session: EagerSession,
        device: Device,
        arguments: Sequence[Place],
        label: str,
        *,
        is_followed: bool = False,
    ) -> Any:
        """Run the operators on the memory of other arguments, and return the results. Does not wait. Raises as
        ``run``."""
        buffers = self.run(session, device, arguments, label, is_followed=is_followed)
        outputs: dict[Any, Any] = dict(zip(self.returned, buffers, strict=True))

        def tensor_of(result: CallResult | float | None) -> TensorBase | float | None:
            if not isinstance(result, CallResult):
                return result
            tensor = result.kind.__new__(result.kind)
            buffer = session.pool.take(device, 0, label) if result.output is None else outputs[result.output]
            tensor._set(buffer, *result[2:])
            return tensor

        results: Any = self.results
        return tuple(map(tensor_of, results)) if type(results) is tuple else tensor_of(results)

    def compute(
        self, session: EagerSession, operands: Sequence[Place | Bytes | None], label: str
    ) -> list[Bytes | None]:
        """Run the operators on bytes of the host, a multiple of 4, or on memory, and return the bytes of the outputs.

        Waits. It creates no objects that own memory, which take longer than small work.

        Raises:
            OutOfMemory, NotSupported, DeviceRemoved: As ``run``.
        """
        refuse_repetition()
        state, backend = session.state, session.state.backend
        arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
        count = len(self._sizes)
        taken = session.pool.take_each([*self._sizes, *(array.size for array in arrays)], label)
        try:
            uploaded = [(memory, 0) for memory, _ in taken[count:]]
            for (memory, _), array in zip(uploaded, arrays, strict=True):
                state.call(backend.write, memory, 0, array)
            remaining, written = iter(uploaded), [(memory, 0) for memory, _ in taken[:count]]
            places = [next(remaining) if isinstance(operand, np.ndarray) else operand for operand in operands]
            if self._clears:
                self._clear(session, written)
            key = self._key(places)
            work = self._work(session, key, session.recorded.get(key) or (), places, written)
            session.submit(work.work, label)
            return [
                None if number is None else state.call(backend.read, taken[number][0], 0, self._sizes[number])
                for number in self.returned
            ]
        finally:
            session.pool.give_back(taken)

    def _key(self, arguments: Sequence[Place | None], in_place: Mapping[int, Place] = NOTHING) -> tuple[Any, ...]:
        """Return the key of the work on the memory of arguments."""
        parts: list[Any] = [self._id]
        for place in arguments if self._read is None else [arguments[index] for index in self._read]:
            if place is None:
                parts.append(None)
            else:
                memory, start = place
                parts += (id(memory), start)
        for memory, start in in_place.values():
            parts += (id(memory), start)
        return tuple(parts)

    def _placed(self, arguments: Sequence[Place | None]) -> Sequence[Place | None]:
        """Return the places that the operators read, given those of the arguments; None for outputs."""
        if not self.places:
            return arguments
        places: list[Place | None] = []
        for offset, argument, output, memory, _ in self.places:
            if argument is not None:
                place = arguments[argument]
                assert place is not None
                places.append((place[0], place[1] + offset))
            else:
                places.append(None if output is not None else (memory, offset))
        return places

    def _work(
        self,
        session: EagerSession,
        key: Any,
        bound: Sequence[BoundWork],
        arguments: Sequence[Place | None],
        written: Sequence[Place],
    ) -> BoundWork:
        """Return the work on arguments, outputs and temporary resources, one of ``bound`` or recorded now."""
        identities = tuple([id(memory) for memory, _ in written])
        for work in bound:
            if work.identities == identities:
                return work
        places = self._placed(arguments)
        dispatches = self._bind(session, places, written)
        recorded = session.state.backend.record(list(itertools.chain(*dispatches)))
        work = BoundWork(identities, dispatches, recorded, (*places, *written))
        works = (work, *bound[: _RECENT - 1])
        self._latest = [weakref.ref(work), *self._latest[: _RECENT - 1]]
        session.bindings += 1
        session.recorded.discard(key)
        session.recorded.put(key, works, len(self.steps) * len(works))
        return work

    def _bind(
        self, session: EagerSession, places: Sequence[Place | None], written: Sequence[Place]
    ) -> list[Sequence[Dispatch]]:
        """Bind all operators; dispatches whose memory is that of a recent binding are reused."""
        latest = [work for reference in self._latest if (work := reference()) is not None]
        if self.places:
            places = [
                place if location.output is None else (written[location.output][0], location.offset)
                for place, location in zip(places, self.places, strict=True)
            ]
        dispatches: list[Sequence[Dispatch]] = []
        outputs, scratch = iter(written), iter(written[self._output_count :])
        for index, (prepared, sources) in enumerate(self.steps):
            inputs = [None if source is None else places[source] for source in sources]
            targets = [None if desc is None else next(outputs) for desc in prepared.outputs]
            resources = prepared.resources(inputs, targets, next(scratch) if self._scratch[index] else None)
            earlier = [work.dispatches[index] for work in latest]
            dispatches.append(session.state.call(prepared.executable.bind, resources, earlier))
        return dispatches

    def _clear(self, session: EagerSession, written: Sequence[Place]) -> None:
        """Zero the outputs of operators that may leave elements unchanged."""
        cleared = [prepared.clears for prepared, _ in self.steps for desc in prepared.outputs if desc is not None]
        for (memory, start), size, is_cleared in zip(written, self._sizes, cleared, strict=False):
            if is_cleared:
                session.state.call(session.state.backend.write, memory, start, np.zeros(size, np.uint8))


class _NotRepeatable(Exception):
    """Repeating the operators would not have the same effects or results."""


class _RecordedSteps:
    """The parts of a call, from operators that were logged.

    Args:
        arguments: Memory of the arguments.

    Attributes:
        steps, places, in_place: As of ``RecordedCall``.
        outputs: Numbers of the outputs, by the identity of their memory.
        fixed: Bytes of fixed memory.
    """

    def __init__(self, arguments: Sequence[Place]):
        self.steps: list[CallStep] = []
        self.places: list[CallPlace] = []
        self.in_place: dict[int, int] = {}
        self.outputs: dict[int, int] = {}
        self.fixed = self._count = 0
        self._arguments: dict[int, tuple[int, int]] = {}
        for index, (memory, start) in enumerate(arguments):
            self._arguments.setdefault(id(memory), (index, start))

    def add(self, entry: ExecutedStep | None) -> None:
        """Add an operator.

        Raises:
            _NotRepeatable: If it cannot be repeated, or writes to memory that was freed meanwhile.
        """
        if entry is None:
            raise _NotRepeatable
        prepared = entry.prepared
        inputs = [
            None if place is None or desc is None else self._input(place, owner, desc.byte_size)
            for place, owner, desc in zip(entry.places, entry.owners, prepared.inputs, strict=True)
        ]
        numbers = itertools.count()
        for index, buffer in enumerate(entry.outputs):
            if prepared.outputs[index] is None:
                continue
            target = entry.in_place.get(next(numbers))
            if buffer is None:
                inside = prepared.executable.in_place.get(index)
                if inside is not None and target in (None, entry.places[inside]):
                    source = inputs[inside]
                else:
                    source = self._target(target)
                if source is None or self.places[source].output is not None:
                    raise _NotRepeatable
                self.in_place[self._count] = source
            elif id(buffer._memory) in self.outputs or id(buffer._memory) in self._arguments:
                raise _NotRepeatable
            else:
                self.outputs[id(buffer._memory)] = self._count
            self._count += 1
        self.steps.append((prepared, inputs))

    def _target(self, place: Place | None) -> int | None:
        """Return the index of the place of an output that is written to the memory of an argument, else None."""
        if place is None or id(place[0]) not in self._arguments:
            return None
        return self._input(place, None, 0)

    def _input(self, place: Place, owner: Any, size: int) -> int:
        """Return the index of the place of an input; ``size`` is in bytes."""
        memory, offset = place
        if id(memory) in self.outputs:
            location = CallPlace(offset, output=self.outputs[id(memory)])
        elif id(memory) in self._arguments:
            index, start = self._arguments[id(memory)]
            location = CallPlace(offset - start, argument=index)
        else:
            location = CallPlace(offset, memory=memory, owner=owner)
            self.fixed += size
        self.places.append(location)
        return len(self.places) - 1

    def result(self, value: Any) -> CallResult | float | None:
        """Return a result as a view of an output; numbers and None as they are.

        A view that covers most of its memory in order is not marked as a view, so that it can own this memory.

        Raises:
            _NotRepeatable: If it is of another kind, or lies in other memory.
        """
        if value is None or type(value) in {int, float}:
            return value
        tensor, output = value, self.outputs.get(_identity(value))
        if output is None:
            if getattr(value, "size", None) != 0:
                raise _NotRepeatable
            return CallResult(None, type(value), value.data_type, value.sizes, value.strides, None, value.is_boolean)
        return CallResult(
            output,
            type(tensor),
            tensor.data_type,
            tensor.sizes,
            tensor.strides,
            tensor.offset if tensor.is_view and not covers_memory(tensor) else None,
            tensor.is_boolean,
        )


def covers_memory(tensor: Any) -> bool:
    """Return whether a tensor has most of the elements of its memory, in order."""
    size = tensor.size * tensor.data_type.bits // 8
    return not tensor.offset and tensor.signature[2] is None and tensor.buffer.size <= max(2 * size, 256)


def _identity(tensor: Any) -> int:
    """Return the identity of the memory of a tensor; 0 for other values."""
    return id(tensor.buffer._memory) if hasattr(tensor, "buffer") else 0


def _forget(state: DeviceState, recorded: Cache[Any, Any], call: int) -> None:
    """Drop the work of a call that was collected, because it refers to pipelines, which are large."""
    state.deferred.add(lambda: recorded.discard_if(lambda key: key[0] == call))
