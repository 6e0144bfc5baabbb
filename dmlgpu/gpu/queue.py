"""Recording and submitting work, and knowing when it is done."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import wgpu

from dmlgpu.errors import DeviceRemoved, DmlError, InvalidArgument
from dmlgpu.gpu import native
from dmlgpu.gpu.buffers import Allocator, Guard
from dmlgpu.gpu.context import Context

_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3


class KernelWork(NamedTuple):
    """One dispatch of a pipeline, everything prepared.

    ``parameters`` is a ``native.parameter_block``, or None where a uniform brings them.
    """

    pipeline: Any
    group: Any
    parameters: Any
    x: int
    y: int
    z: int
    guard: Guard
    label: str


class CopyWork(NamedTuple):
    """One copy between two buffers."""

    source: Any
    source_offset: int
    destination: Any
    destination_offset: int
    size: int
    guard: Guard
    label: str


Work: TypeAlias = KernelWork | CopyWork


class Queue:
    """The device's queue. Submissions have serial numbers from 1 on and finish in order.

    Attributes:
        has_writes: whether wgpu holds buffer writes back until the next submission.
    """

    def __init__(self, context: Context, allocator: Allocator):
        self._context, self._allocator = context, allocator
        self._submitted = 0
        self._completed = 0
        self._completion = native.Completion(context.queue)
        self._completion_lock = threading.Lock()
        self._indices: dict[int, Any] = {}
        # Work that nobody waits for must not keep a device alive that is dropped.
        self._weak = weakref.ref(self)
        self.has_writes = False

    @property
    def submitted(self) -> int:
        """Serial number of the latest submission; 0 before the first."""
        return self._submitted

    def submit(self, work: Sequence[Work]) -> int:
        """Run work in order and return its serial number.

        Raises:
            InvalidState: when a buffer of the work was released; nothing runs.
            DeviceRemoved: when the device is gone.
            DmlError: when the driver refuses a dispatch; its label is in the message and nothing runs.
        """
        with self._context.lock:
            self._context.check()
            self.check(work)
            try:
                encoder = self._context.device.create_command_encoder()
                record(encoder, work)
                commands = encoder.finish()
            except wgpu.GPUError as error:
                raise self._blame(work, error) from error
            return self.send(commands)

    def check(self, work: Sequence[Work]) -> None:
        """Raise InvalidState when work uses a released buffer."""
        epoch = self._allocator.epoch
        for item in work:
            if item.guard.epoch != epoch:
                item.guard.check(epoch, item.label)

    def send(self, commands: wgpu.GPUCommandBuffer) -> int:
        """Submit finished commands, once; returns their serial number. Call with the lock held."""
        # wgpu aborts the process when it refuses here; that commands could be finished just now is what tells that
        # the device is still there.
        index = native.submit(self._context.queue, commands)
        self.has_writes = False
        self._submitted = serial = self._submitted + 1
        self._indices[serial] = index
        self._completion.after(functools.partial(_completed, self._weak, serial))
        return serial

    def flush(self) -> int:
        """Send writes that are held back on their way; returns the serial number after which all is done."""
        return self.submit(()) if self.has_writes else self._submitted

    def is_done(self, serial: int) -> bool:
        """Return whether a submission has finished."""
        if self._completed < serial:
            self._poll()
        return self._completed >= serial

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        """Wait for a submission; False when ``timeout`` seconds pass first.

        Raises:
            DeviceRemoved: when the device is gone and the submission with it.
            InvalidArgument: when there was no such submission.
        """
        if self._completed >= serial:
            return True
        self._context.check()
        if serial > self._submitted:
            raise InvalidArgument(f"wait: submission {serial} was never made, the latest is {self._submitted}")
        # A blocking poll would keep other threads from OpenGL's one context, and knows no time limit.
        if timeout is not None or self._context.info.backend == "OpenGL":
            return self._wait_in_steps(serial, timeout)
        while self._completed < serial:
            self._context.check()
            index = self._indices.get(serial)
            if index is not None:
                native.poll(self._context.device, index)
        return True

    def _wait_in_steps(self, serial: int, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while not self.is_done(serial):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._context.check()
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return True

    def _poll(self) -> None:
        if self._context.removed_reason is not None:
            return
        if self._context.info.backend == "OpenGL":
            with self._context.lock:
                native.poll(self._context.device)
        else:
            native.poll(self._context.device)

    def _complete(self, serial: int) -> None:
        with self._completion_lock:  # two threads may poll at once, and the later one may finish first
            for done in range(self._completed + 1, serial + 1):
                self._indices.pop(done, None)
            self._completed = max(self._completed, serial)

    def _blame(self, work: Sequence[Work], error: Exception) -> DmlError:
        """Return the exception for a refused list, naming the first piece of work that is refused by itself too."""
        failure = self._context.translate(error, "command list")
        if isinstance(failure, DeviceRemoved):
            return failure
        for item in work:
            try:
                encoder = self._context.device.create_command_encoder()
                record(encoder, [item])
                encoder.finish()
            except wgpu.GPUError as own:
                return self._context.translate(own, item.label)
        return failure


def _completed(queue: weakref.ref[Queue], serial: int, _success: bool) -> None:
    """Note that a submission is done, unless its queue is gone."""
    found = queue()
    if found is not None:
        found._complete(serial)


def record(encoder: wgpu.GPUCommandEncoder, work: Sequence[Work]) -> None:
    """Record work in order, in one compute pass between copies; state that is already set is not set again."""
    current = None
    pipeline = group = parameters = None
    for item in work:
        if isinstance(item, CopyWork):
            if current is not None:
                current.end()
                current = pipeline = group = parameters = None
            encoder.copy_buffer_to_buffer(*item[:5])
            continue
        if current is None:
            current = encoder.begin_compute_pass()
            set_pipeline, set_bind_group = current.set_pipeline, current.set_bind_group
            dispatch = current.dispatch_workgroups
        new_pipeline, new_group, new_parameters, x, y, z, _, _ = item
        if new_pipeline is not pipeline:
            pipeline = new_pipeline
            set_pipeline(pipeline)
            parameters = None  # immediates belong to the pipeline on OpenGL
        if new_group is not group:
            group = new_group
            set_bind_group(0, group)
        if new_parameters is not parameters:
            parameters = new_parameters
            native.set_immediates(current, parameters)
        dispatch(x, y, z)
    if current is not None:
        current.end()
