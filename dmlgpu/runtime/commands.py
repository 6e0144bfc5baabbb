"""Recording, submission and synchronization (DirectML: IDMLCommandRecorder; Direct3D 12: command list, queue,
fence)."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, InvalidState, shown
from dmlgpu.runtime.binding import BindingTable
from dmlgpu.runtime.buffer import Buffer, check_range
from dmlgpu.runtime.child import DeviceChild, as_tuple, expect_child
from dmlgpu.runtime.executor import WORD_BYTES, Dispatch, Duration, Range, measure
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, OperatorInitializer
from dmlgpu.runtime.recording import Bindings, CommandBatch, RecordedCommand

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState

FENCE_VALUE = coercion.between(0, coercion.UINT64_MAX)


class CommandList(DeviceChild):
    """A sequence of recorded dispatches and copies (Direct3D 12: ID3D12GraphicsCommandList).

    Later commands see the writes of earlier ones; no barriers are needed. A list is open when it is created, is filled
    by ``CommandRecorder.record_dispatch`` and ``copy_buffer``, must be closed, and can then be executed any number of
    times by ``Device.queue``.
    """

    _kind = "command list"

    def __init__(self, device: Device, state: DeviceState):
        super().__init__(device, state)
        self._open = True
        self._entries: list[RecordedCommand | Bindings] = []
        self._volatile = False
        self._batch: CommandBatch | None = None
        self._serial: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether commands can be recorded."""
        return self._open

    def close(self) -> None:
        """End recording.

        Raises:
            InvalidState: If the list is closed.
        """
        self._state.check()
        self._check_open("close")
        if not self._volatile:
            entries = [entry for entry in self._entries if isinstance(entry, RecordedCommand)]
            self._batch = CommandBatch.of(entries, self._state.backend)
        self._open = False

    def reset(self) -> None:
        """Discard the recorded commands and open the list again.

        Raises:
            InvalidState: If an execution of the list is in flight.
        """
        self._state.check()
        if self._state.is_in_flight(self._serial):
            raise InvalidState(f"{self.description}: reset while its execution is in flight; wait on a fence first")
        self._open, self._volatile, self._batch, self._entries = True, False, None, []

    def copy_buffer(
        self, destination: Buffer, destination_offset: int, source: Buffer, source_offset: int, size: int
    ) -> None:
        """Record a copy between buffers (ID3D12GraphicsCommandList::CopyBufferRegion).

        Args:
            destination, source: Two different buffers.
            destination_offset, source_offset, size: In bytes, multiples of 4.

        Raises:
            InvalidArgument: If an offset or size is no multiple of 4 or out of range, or both buffers are the same.
            InvalidState: If the list is closed or a buffer is released.
        """
        self._state.check()
        self._check_open("copy_buffer")
        caller = f"{self.description}: copy_buffer"
        target, count = self._check_words(caller, "destination", destination, destination_offset, size)
        origin, _ = self._check_words(caller, "source", source, source_offset, size)
        if destination.identity is source.identity:
            raise InvalidArgument(
                f"{caller}: one buffer cannot be both source and destination, got {source.description}"
            )
        if count:
            copy = self._state.backend.copy
            unit = self._state.call(copy, source._memory, origin, destination._memory, target, count)
            self._entries.append(RecordedCommand(caller, (unit,), (destination, source)))

    def _check_words(self, caller: str, argument: str, buffer: Buffer, offset: int, size: int) -> tuple[int, int]:
        """Return offset and size of a range of whole words, checked against the buffer."""
        expect_child(caller, argument, buffer, Buffer, self._state)
        buffer.check_usable(caller, argument)
        begin, count = check_range(f"{caller}: {argument}", buffer, offset, size)
        for what, value in ((f"{argument}_offset", begin), ("size", count)):
            if value % WORD_BYTES:
                raise InvalidArgument(f"{caller}: {what} must be a multiple of {WORD_BYTES}, got {value}")
        return begin, count

    def _check_open(self, verb: str) -> None:
        if not self._open:
            raise InvalidState(f"{self.description}: {verb} on a closed list; reset it first")

    def _add_initialization(self, recorded: RecordedCommand) -> None:
        """Record an initialization; each operator is initialized once."""
        present = {
            id(compiled)
            for entry in self._entries
            if isinstance(entry, RecordedCommand)
            for compiled, _ in entry.initializes
        }
        for compiled, _ in recorded.initializes:
            if compiled.is_initialized or id(compiled) in present:
                raise _second_initialization(recorded.label, compiled)
        self._entries.append(recorded)

    def _ready(self) -> CommandBatch:
        """Return the commands of the list, with volatile bindings resolved."""
        if self._batch is not None:
            return self._batch
        entries = [entry.recorded() if isinstance(entry, Bindings) else entry for entry in self._entries]
        return CommandBatch.of(entries, self._state.backend)


class CommandRecorder(DeviceChild):
    """Records dispatches into command lists (DirectML: IDMLCommandRecorder). Stateless."""

    _kind = "command recorder"

    def record_dispatch(self, command_list: CommandList, dispatchable: Dispatchable, bindings: BindingTable) -> None:
        """Record one execution of a dispatchable (IDMLCommandRecorder::RecordDispatch).

        Bindings are read now, or when the list is executed if the operator was compiled with DESCRIPTORS_VOLATILE.
        Whether the operator is initialized is checked when the list is executed.

        Args:
            command_list: An open list.
            dispatchable: A compiled operator or an initializer.
            bindings: A binding table for `dispatchable`.

        Raises:
            BindingError: If a binding is missing, or ranges overlap illegally.
            InvalidArgument: If an object belongs to another device, or the table binds for another dispatchable.
            InvalidState: If the list is closed, a buffer is released, or an operator would be initialized twice.
        """
        state = self._state
        if state.removed is not None:
            state.check()
        if not (
            isinstance(command_list, CommandList)
            and isinstance(bindings, BindingTable)
            and command_list._state is state
            and bindings._state is state
        ):
            expect_child("record_dispatch", "command_list", command_list, CommandList, state)
            expect_child("record_dispatch", "bindings", bindings, BindingTable, state)
        target = bindings._bindings
        if target is None or target.dispatchable is not dispatchable:
            raise self._wrong_table(dispatchable, bindings)
        if not command_list._open:
            command_list._check_open("record_dispatch")
        if isinstance(dispatchable, OperatorInitializer):
            target.check_operators()
            command_list._add_initialization(target.recorded())
        elif dispatchable._flags & ExecutionFlags.DESCRIPTORS_VOLATILE:
            command_list._volatile = True
            command_list._entries.append(target)
        else:
            command_list._entries.append(target.recorded())

    def _wrong_table(self, dispatchable: Dispatchable, bindings: BindingTable) -> InvalidArgument:
        cls = OperatorInitializer if isinstance(dispatchable, OperatorInitializer) else CompiledOperator
        expect_child("record_dispatch", "dispatchable", dispatchable, cls, self._state)
        target = bindings.dispatchable
        bound = (
            "nothing"
            if target is None
            else target.description
            + (", another object of the same kind" if target.description == dispatchable.description else "")
        )
        return InvalidArgument(
            f"record_dispatch: {bindings.description} must bind for {dispatchable.description}, it binds for {bound}; "
            "reset the table to the dispatchable first"
        )


class Queue(DeviceChild):
    """Runs command lists in order (Direct3D 12: ID3D12CommandQueue). Thread-safe.

    A queue does not keep its device alive. The reference cycle would survive until the next garbage collection, which
    does not know how much device memory is at stake.
    """

    _kind = "queue"

    def __init__(self, device: Device, state: DeviceState):
        super().__init__(device, state)
        del self._device
        self._owner = weakref.ref(device)

    @property
    def device(self) -> Device:
        """The device of the queue.

        Raises:
            InvalidState: If the device was garbage-collected.
        """
        device = self._owner()
        if device is None:
            raise InvalidState(f"queue of {self._state.label}: its device was dropped")
        return device

    def execute(self, command_lists: Sequence[CommandList]) -> None:
        """Submit closed command lists as one unit, without waiting (ID3D12CommandQueue::ExecuteCommandLists).

        Args:
            command_lists: Closed lists of this device.

        Raises:
            InvalidState: If a list is open, a buffer is released, or an operator is not initialized or would be
                initialized twice. Nothing is executed then.
            InvalidArgument: If a list belongs to another device.
            BindingError: If volatile bindings are incomplete.
        """
        self._run(command_lists, self._state.backend.submit)

    def measure(self, command_lists: Sequence[CommandList]) -> Duration:
        """Execute as ``execute``, wait, and return the time taken. Blocks other threads meanwhile.

        Raises: As ``execute``.
        """
        durations: list[Duration] = []
        self._run(command_lists, lambda *work: durations.append(measure(self._state.backend, *work)))
        return durations[0] if durations else Duration(0.0, None)

    def _run(self, command_lists: Sequence[CommandList], submit: Callable[..., int | None]) -> None:
        state = self._state
        with state.lock:
            state.check()
            pending: dict[CompiledOperator, Range[Buffer] | None] = {}
            work: list[Sequence[Dispatch]] = []
            initializers = []
            command_lists = as_tuple("execute", "command_lists", command_lists, "command lists")
            for index, command_list in enumerate(command_lists):
                expect_child("execute", f"command_lists[{index}]", command_list, CommandList, state)
                if command_list._open:
                    raise InvalidState(f"{command_list.description}: executed while it is open; close it first")
                batch = command_list._ready()
                batch.check_buffers(state.release_epoch)
                for step in batch.steps:
                    _check_step(step, pending)
                    if step.initializer is not None:
                        initializers.append(step.initializer)
                if batch.work:
                    work.append(batch.work)
            if work:
                serial = state.call_unlocked(submit, *work)
                state.last_serial = state.last_serial if serial is None else serial
            for compiled, persistent in pending.items():
                compiled._is_initialized, compiled._persistent = True, persistent
            for command_list in command_lists:
                command_list._serial = state.last_serial
            for initializer in initializers:
                initializer._serial = state.last_serial

    def signal(self, fence: Fence, value: int) -> None:
        """Set a fence to a value when all work executed so far is done (ID3D12CommandQueue::Signal).

        Args:
            fence: A fence of this device.
            value: Integer above the last signaled value of the fence.

        Raises:
            InvalidArgument: If the fence belongs to another device, or `value` is not above its last value.
        """
        expect_child("signal", "fence", fence, Fence, self._state)
        with self._state.lock:
            self._state.check()
            fence._signal(value, self._state.last_serial)


class Fence(DeviceChild):
    """A counter that advances as submitted work completes (Direct3D 12: ID3D12Fence). Thread-safe."""

    _kind = "fence"

    def __init__(self, device: Device, state: DeviceState, initial_value: int = 0):
        super().__init__(device, state)
        self._completed = self._last = initial_value
        self._signals: list[tuple[int, int | None]] = []

    @property
    def completed_value(self) -> int:
        """The highest value whose work is done."""
        self._state.check()
        with self._state.lock:
            while self._signals and not self._state.is_in_flight(self._signals[0][1]):
                self._reached(self._signals[0][0])
            return self._completed

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait until the fence reaches a value. An exception in a signal handler, such as KeyboardInterrupt, ends the
        wait.

        Args:
            value: Value to wait for, an integer from 0 to 2^64 - 1.
            timeout: Seconds; None (the default) waits without limit. With a timeout, the value may be signaled later
                by another thread.

        Returns:
            True if the value was reached in time.

        Raises:
            InvalidArgument: If `value` or `timeout` is out of range.
            InvalidState: If the value was not signaled and there is no timeout: the wait would never end.
            DeviceRemoved: If the device is or becomes removed.
        """
        self._state.check()
        value = coercion.argument(self.description, "value", FENCE_VALUE, value)
        if timeout is not None:
            timeout = min(
                coercion.argument(self.description, "timeout", coercion.seconds, timeout), threading.TIMEOUT_MAX
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        if value > self._last and deadline is None:
            raise InvalidState(
                f"{self.description}: wait for {value} would never end, the last signal is {self._last}; "
                "call queue.signal first, or give a timeout"
            )
        if deadline is not None and not self._wait_for_signal(value, deadline):
            return False
        with self._state.lock:
            if value <= self._completed:
                return True
            reached, serial = next(signal for signal in self._signals if signal[0] >= value)
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        # The lock is not held: other threads go on submitting.
        if serial is not None and not self._state.call_unlocked(self._state.backend.wait, serial, remaining):
            return False
        with self._state.lock:
            self._reached(reached)
        return True

    def _wait_for_signal(self, value: int, deadline: float) -> bool:
        """Wait until a value is signaled, whose work may still be in flight; return False at the deadline."""
        # Conditions of threading are written in Python, and may keep their lock if a signal handler raises in them.
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._state.waiters.add(woken)
        try:
            while value > self._last:
                self._state.check()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                with contextlib.suppress(queue.Empty):
                    woken.get(timeout=min(remaining, threading.TIMEOUT_MAX))
            return True
        finally:
            self._state.waiters.discard(woken)

    def _reached(self, value: int) -> None:
        self._completed = max(self._completed, value)
        self._signals = [signal for signal in self._signals if signal[0] > self._completed]

    def _signal(self, value: int, serial: int | None) -> None:
        integer = coercion.as_index(value)
        if integer is None or not self._last < integer <= coercion.UINT64_MAX:
            raise InvalidArgument(
                f"{self.description}: signal: value must be an integer above the last one, {self._last}, "
                f"got {shown(value)}"
            )
        self._signals.append((integer, serial))
        self._last = integer
        self._state.wake()


def _check_step(step: RecordedCommand, pending: dict[CompiledOperator, Range[Buffer] | None]) -> None:
    """Check a recorded command against initializations executed, or pending in this submission."""
    for compiled, persistent in step.initializes:
        if compiled.is_initialized or compiled in pending:
            raise _second_initialization(step.label, compiled)
        pending[compiled] = persistent
    if step.needs is None:
        return
    compiled, bound = step.needs
    if not compiled.is_initialized and compiled not in pending:
        raise InvalidState(
            f"{compiled.description}: executed before its initialization; execute an initializer for it first"
        )
    written = pending.get(compiled, compiled._persistent)
    if bound is None or written is None:
        return
    if bound.buffer.identity is not written.buffer.identity or bound.offset != written.offset:
        raise InvalidState(
            f"{compiled.description}: the persistent resource is bound at offset {bound.offset}, "
            f"its initialization wrote another range (offset {written.offset}); it cannot be copied or moved"
        )


def _second_initialization(label: str, compiled: CompiledOperator) -> InvalidState:
    return InvalidState(
        f"{label}: {compiled.description} is initialized already; an operator is initialized exactly once"
    )
