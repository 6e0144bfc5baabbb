"""Iterations of a Loop or Scan that run on the device, many per submission.

The body is bound twice: each iteration reads the results of the previous one. If the host needs nothing that an
iteration computes on the device, it records many iterations at once. It computes iteration numbers, conditions and
states of few integers in advance, and uploads them together. Copies pass them to each iteration, and collect scan
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.frontends.onnx import watching
from dmlgpu.frontends.onnx.segments import (
    Held,
    HostOnly,
    OnDevice,
    Output,
    RunInput,
    RunStage,
    Segment,
    Slots,
)
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import Dispatch
from dmlgpu.tensors.recorded_call import refuse_repetition
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]

MAX_TRIPS = 256
"""Maximum number of iterations in one submission."""

MAX_GATHERED = 16 << 20
"""Maximum bytes of a scan output per submission, unless one iteration has more."""

MIN_TRIPS = 4
"""Minimum number of iterations for which binding the body twice pays off."""

WORD = 4
"""Granularity of copies between buffers, in bytes."""


class NotRecorded(Exception):
    """The iterations need host work between them."""


@dataclass(frozen=True)
class SequenceSlice:
    """A sequence along the first axis; each iteration reads one element."""

    sequence: Tensor
    backward: bool


@dataclass(eq=False)
class TripBatch:
    """Iterations submitted together.

    Attributes:
        trips: Number of iterations.
        gathered: Scan outputs, with iterations as first dimension.
        goes_on: Whether the body's condition allows another iteration.
    """

    trips: int
    gathered: list[RunInput]
    goes_on: bool


@dataclass(eq=False)
class RecordedTrips:
    """The body of a loop, bound to two sets of memory for its states.

    Attributes:
        device: Device to run on.
        stage: The body, compiled as a whole.
        condition: Output that says whether another iteration follows; None for a Scan.
        states: States of the body, with their values after the completed iterations.
        gathered: Scan outputs.
        inputs: Contents of the slots of the body before the first of these iterations.
        numbered: Whether the first slot is the iteration number.
        first_state: Slot of the first state.
        slices: Sequences of a Scan, by slot.
    """

    device: Device
    stage: RunStage
    condition: Output | None
    states: list[Output]
    gathered: list[Output]
    inputs: list[RunInput]
    numbered: bool
    first_state: int
    slices: dict[int, SequenceSlice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        segment = self.stage.segment
        changes = any(fill.node is not None for fill in self.stage.fills)
        if segment is None or changes or watching.current() is not None or segment.prepared.clears:
            raise NotRecorded
        self._segment: Segment = segment
        self._session = session_of(self.device)
        self._slots = self._slots_of([value.held for value in self.inputs])
        for fill in self.stage.fills:
            fill.run(self._slots)
        self._place_of_slot = {slot: index for index, slot in enumerate(segment.fills)}
        self._moving: dict[int, int] = {}
        """Slots of states to the place, among the segment's outputs, of their next values."""
        self._on_host: dict[int, Output | None] = {0: None} if self.numbered else {}
        """Slots that the host computes to the outputs that become their next values."""
        for slot, state in enumerate(self.states, self.first_state):
            if state.recipe is not None or state.slot in self._on_host:
                self._on_host[slot] = state
            elif state.slot in self._place_of_slot:
                self._moving[slot] = self._place_of_slot[state.slot]
            elif state.slot not in (None, slot):  # None: a constant, which the first iteration returned
                raise NotRecorded
        self._values = {slot: self._array(slot) for slot in self._on_host if slot or not self.numbered}
        self._check_outputs()
        self._turn = 0
        self._bind()

    def _slots_of(self, held: Sequence[Held]) -> Slots:
        """Return the slots of a trip, with its inputs."""
        slots = Slots(self.device, held)
        slots.sizes = self.stage.sizes
        return slots

    def _array(self, slot: int) -> Array:
        held = self.inputs[slot].held
        if isinstance(held, Tensor):
            raise NotRecorded
        return held

    def _is_on_host(self, output: Output) -> bool:
        return output.recipe is not None or output.slot is None or output.slot in self._on_host

    def _check_outputs(self) -> None:
        """Raise NotRecorded unless the host can compute its outputs, and copies can move the others."""
        host = HostOnly(self._slots)
        computed = [
            output for output in (*self._on_host.values(), self.condition, *self.gathered) if output is not None
        ]
        try:
            for output in computed:
                if output is self.condition or self._is_on_host(output):
                    _computed(output, host)
        except OnDevice:
            raise NotRecorded from None
        moved = [_bytes(output) for output in self.gathered if not self._is_on_host(output)]
        sliced = [_bytes(self.inputs[slot]) for slot in self.slices]
        if any(size == 0 or size % WORD for size in (*moved, *sliced)):
            raise NotRecorded

    def _bind(self) -> None:
        """Bind the body twice, to memory allocated for these iterations."""
        prepared, take = self._segment.prepared, self._session.pool.take
        outputs: list[list[Buffer | None]] = [[], []]
        for index, desc in enumerate(prepared.outputs):
            buffer = None if desc is None else take(self.device, desc.byte_size, "state of a loop")
            outputs[0].append(buffer)
            if desc is not None and index in self._moving.values():
                buffer = take(self.device, desc.byte_size, "state of a loop")
            outputs[1].append(buffer)
        self._outputs = outputs
        size = prepared.executable.temporary_size
        self._scratch = take(self.device, size, "temporary resource") if size else None
        self._own: dict[int, Buffer] = {}
        """Memory that copies fill before each trip, by slot."""
        read = {*self._segment.reads, *(output.slot for output in self.gathered if not self._is_on_host(output))}
        for slot in read:
            if slot is not None and (slot in self._on_host or slot in self.slices):
                self._own[slot] = take(self.device, _padded(self.inputs[slot]), "input of a trip")
        slots = {place: slot for slot, place in self._moving.items()}
        self._start = [
            self._copied(self._slots.tensor(slot).buffer, 0, self._output(0, place), 0, _padded(self.inputs[slot]))
            for place, slot in slots.items()
        ]
        self._work = [self._bound(turn) for turn in (0, 1)]

    def _bound(self, turn: int) -> Sequence[Dispatch]:
        """Return the work of a trip that reads the states of one turn and writes those of the other."""
        prepared = self._segment.prepared
        places = [None if slot is None else (self._memory(slot, turn)._memory, 0) for slot in self._segment.reads]
        targets = [None if buffer is None else (buffer._memory, 0) for buffer in self._outputs[1 - turn]]
        scratch = None if self._scratch is None else (self._scratch._memory, 0)
        resources = prepared.resources(places, targets, scratch)
        return self._session.state.call(prepared.executable.bind, resources)

    def _output(self, turn: int, place: int) -> Buffer:
        buffer = self._outputs[turn][place]
        assert buffer is not None
        return buffer

    def _memory(self, slot: int, turn: int) -> Buffer:
        """Return the memory of an input of the body in a turn."""
        if slot in self._own:
            return self._own[slot]
        if slot in self._moving:
            return self._output(turn, self._moving[slot])
        return self._slots.tensor(slot).buffer

    def _copied(self, source: Buffer, start: int, destination: Buffer, to: int, size: int) -> Dispatch:
        return self.device._state.backend.copy(source._memory, start, destination._memory, to, size)

    # ---- trips ------------------------------------------------------------------------------------------------------

    def batches(self, first: int, end: int) -> Iterator[TripBatch]:
        """Run iterations, and yield them batch by batch, until all are done or the condition ends the loop.

        At most two submissions are in flight, so memory is bounded and waits can be interrupted.
        """
        state, goes_on = self.device._state, True
        serials: list[int] = []
        start: Sequence[Dispatch] = self._start
        while first < end and goes_on:
            batch = self._batch(first, min(end - first, self._most_trips()), start, serials)
            start = ()
            yield batch
            first, goes_on = first + batch.trips, batch.goes_on
            if len(serials) > 1:
                state.call_unlocked(state.backend.wait, serials.pop(0))

    def _most_trips(self) -> int:
        largest = max((_bytes(output) for output in self.gathered), default=0)
        return max(1, min(MAX_TRIPS, MAX_GATHERED // max(largest, 1)))

    def _batch(self, first: int, count: int, start: Sequence[Dispatch], serials: list[int]) -> TripBatch:
        """Submit up to a number of iterations."""
        values: dict[int, list[Array]] = {slot: [] for slot in self._own if slot in self._on_host}
        on_host: list[list[Array]] = [[] for _ in self.gathered]
        goes_on, trips = True, 0
        while goes_on and trips < count:
            goes_on = self._host_part(first + trips, values, on_host)
            trips += 1
        feeds = {slot: self._uploaded(slot, arrays) for slot, arrays in values.items()}
        stacks = [
            None if arrays else self._session.pool.take(self.device, trips * _bytes(output), "results of trips")
            for output, arrays in zip(self.gathered, on_host, strict=True)
        ]
        work = list(start)
        for index in range(trips):
            for slot, buffer in self._own.items():
                source, at = (feeds[slot], index) if slot in feeds else self._element(slot, first + index)
                size = _padded(self.inputs[slot])
                work.append(self._copied(source, at * size, buffer, 0, size))
            work.extend(self._work[self._turn])
            for output, stack in zip(self.gathered, stacks, strict=True):
                if stack is not None:
                    size = _bytes(output)
                    work.append(self._copied(self._result(output, self._turn), 0, stack, index * size, size))
            self._turn = 1 - self._turn
        refuse_repetition()
        serials.append(self._session.submit(work))
        gathered = []
        for output, arrays, stack in zip(self.gathered, on_host, stacks, strict=True):
            shape = (trips, *output.shape)
            held: Any = np.stack(arrays).reshape(shape) if stack is None else None
            if stack is not None:
                held = Tensor._packed(stack, output.data_type, shape)
            gathered.append(RunInput(shape, output.data_type, output.coded, held))
        return TripBatch(trips, gathered, goes_on)

    def _host_part(self, trip: int, values: dict[int, list[Array]], on_host: list[list[Array]]) -> bool:
        """Compute the host part of an iteration; return whether another one follows."""
        held: list[Any] = [value.held for value in self.inputs]
        if self.numbered:
            held[0] = self._values[0] = np.array(trip, np.int64)
        for slot, value in self._values.items():
            held[slot] = value
        slots = self._slots_of(held)
        for check in self.stage.checks:
            check.run(slots)
        for slot, arrays in values.items():
            arrays.append(np.asarray(held[slot]))
        host = HostOnly(slots)
        for output, arrays in zip(self.gathered, on_host, strict=True):
            if self._is_on_host(output):
                arrays.append(_computed(output, host))
        following = {slot: _computed(output, host) for slot, output in self._on_host.items() if output is not None}
        goes_on = self.condition is None or bool(np.asarray(_computed(self.condition, host)).reshape(-1)[0])
        self._values.update(following)
        return goes_on

    def _uploaded(self, slot: int, arrays: list[Array]) -> Buffer:
        """Upload the values of a slot for a batch, one after the other."""
        size, kind = _padded(self.inputs[slot]), self.inputs[slot].data_type.numpy
        raw = np.zeros((len(arrays), size), np.uint8)
        for row, array in zip(raw, arrays, strict=True):
            encoded = np.frombuffer(array.astype(kind).tobytes(), np.uint8)
            row[: encoded.size] = encoded
        buffer = self._session.pool.take(self.device, raw.size, "inputs of trips")
        buffer.write(raw)
        return buffer

    def _element(self, slot: int, trip: int) -> tuple[Buffer, int]:
        """Return a sequence and the index of the element that an iteration reads."""
        sequence = self.slices[slot]
        return sequence.sequence.buffer, sequence.sequence.shape[0] - 1 - trip if sequence.backward else trip

    def _result(self, output: Output, turn: int) -> Buffer:
        """Return the memory of an output of an iteration that read the states of a turn."""
        assert output.slot is not None
        place = self._place_of_slot.get(output.slot)
        return self._memory(output.slot, turn) if place is None else self._output(1 - turn, place)

    def results(self) -> list[RunInput]:
        """Return the states after the last iteration."""
        results = []
        for slot, state in enumerate(self.states, self.first_state):
            held: Any = self._slots.held(slot)
            if slot in self._values:
                held = self._values[slot].reshape(state.shape)
            elif slot in self._moving:
                held = Tensor._packed(self._output(self._turn, self._moving[slot]), state.data_type, state.shape)
            results.append(RunInput(state.shape, state.data_type, state.coded, held))
        return results


def _computed(output: Output, host: HostOnly) -> Array:
    """Return an output that is known on the host.

    Raises:
        OnDevice: If it depends on results of the device.
    """
    if output.recipe is not None:
        return output.recipe(host)
    if output.slot is None:
        assert output.array is not None
        return output.array
    return host.array(output.slot)


def _bytes(tensor: Output | RunInput) -> int:
    return math.prod(tensor.shape) * tensor.data_type.bits // 8


def _padded(value: RunInput) -> int:
    """Return the bytes of a tensor's memory: whole words."""
    return -(-math.prod(value.shape) * value.data_type.bits // (8 * WORD)) * WORD
