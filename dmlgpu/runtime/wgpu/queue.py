"""Recording, submission and completion of work."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.library import Completion, DispatchCalls, Library, dispatch_calls
from dmlgpu.runtime.wgpu.waiting import wait_until

if TYPE_CHECKING:
    from dmlgpu.runtime.wgpu.tiers import Tier, Tiers


class KernelWork(NamedTuple):
    """One dispatch of a pipeline, everything prepared.

    ``parameters`` is a ``Library.parameter_block``, or None if a uniform brings them. ``tier`` may bring another
    pipeline.
    """

    pipeline: Any
    group: Any
    parameters: Any
    x: int
    y: int
    z: int
    guard: Guard
    name: str
    tier: Tier | None = None

    @property
    def label(self) -> str:
        """The kernel's name, and whether it has constants."""
        return self.name if self.tier is None or self.tier.pipeline is None else f"{self.name} with constants"


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

MAX_TIMED = 4096
"""Maximum number of recordings between two waits whose time is measured."""

BATCH = 32
"""Minimum number of enqueued dispatches and copies that are submitted at once: the device starts while more are
recorded."""

STAGED_BYTES = 1 << 16
"""Bytes of the buffer through which enqueued writes reach others: at most those of the writes of one submission."""

MAX_STAGED = 1 << 12
"""Maximum bytes of a write that is enqueued instead of submitting what is enqueued before it."""


@dataclass(eq=False)
class DeviceTime:
    """Seconds that work has run on the device, measured only if a caller waited for its end."""

    seconds: float = 0.0


class RecordedWork(tuple[Work, ...]):
    """Work in order, with state cached between its submissions: the recording calls, computed on first use and when
    kernels have new pipelines, and the allocator's epoch when its buffers were last checked.

    Attributes:
        wrapped: Buffers created outside dmlgpu, with the labels of the work that uses them first.
        checked_epoch: The allocator's epoch at the last check.
        time: For which it has run, and other work that begins with the same kernel and sizes. Work that is recorded
            again, as after each change of a model's input shape, continues to count.
    """

    def __init__(self, work: Iterable[Work]):
        self.wrapped: dict[GpuBuffer, str] = {}
        for item in self:
            for buffer in item.guard.wrapped:
                self.wrapped.setdefault(buffer, item.label)
        self.checked_epoch = -1
        self.time = DeviceTime()
        self._parts: list[CopyWork | list[DispatchCalls]] | None = None
        self._tiers: list[Tier] = []
        self._epoch, self._due = -1, math.inf

    def record(self, library: Library, encoder: Any) -> None:
        """Record the work in an encoder of C, in one compute pass between copies."""
        record_all(library, encoder, (self,))

    @property
    def parts(self) -> list[CopyWork | list[DispatchCalls]]:
        """Copies, and the calls of the dispatches between them."""
        if self._parts is None:
            self._tiers = [item.tier for item in self if isinstance(item, KernelWork) and item.tier is not None]
        if self._tiers:
            self.time = self._tiers[0].time
            self._take_pipelines(self._tiers[0].tiers)
        if self._parts is None:
            self._parts = self._prepare()
        return self._parts

    def _take_pipelines(self, tiers: Tiers) -> None:
        """Record the work again if its kernels have new pipelines; request specialized ones once it is hot."""
        if self._epoch != tiers.epoch:
            self._epoch, self._parts = tiers.epoch, None
            lacking = [tier for tier in self._tiers if tier.pipeline is None and not tier.is_rejected]
            self._due = tiers.due(lacking) if lacking else math.inf
        if self.time.seconds > self._due:
            self._due = math.inf
            tiers.request(self._tiers)

    def _prepare(self) -> list[CopyWork | list[DispatchCalls]]:
        """Return copies and the calls of each compute pass, without redundant state changes."""
        parts: list[CopyWork | list[DispatchCalls]] = []
        calls: list[DispatchCalls] = []
        pipeline = group = parameters = None
        for item in self:
            if isinstance(item, CopyWork):
                parts.append(item)
                continue
            if not parts or parts[-1] is not calls:
                calls = []
                parts.append(calls)
                pipeline = group = parameters = None
            own = item.pipeline if item.tier is None else item.tier.pipeline or item.pipeline
            if own is not pipeline:
                parameters = None  # immediates belong to the pipeline on OpenGL
            calls.append(
                dispatch_calls(
                    None if own is pipeline else own,
                    None if item.group is group else item.group,
                    None if item.parameters is parameters else item.parameters,
                    item[3:6],
                )
            )
            pipeline, group, parameters = own, item.group, item.parameters
        return parts


def record_all(library: Library, encoder: Any, recordings: Iterable[RecordedWork]) -> None:
    """Record work in order in an encoder of C, in one compute pass between copies."""
    compute_pass: Any = None
    for recording in recordings:
        for part in recording.parts:
            if isinstance(part, CopyWork):
                if compute_pass is not None:
                    library.end_pass(compute_pass)
                    compute_pass = None
                library.copy(encoder, part[:2], part[2:4], part.size)
            else:
                if compute_pass is None:
                    compute_pass = library.begin_pass(encoder)
                library.dispatch(compute_pass, part)
    if compute_pass is not None:
        library.end_pass(compute_pass)


@dataclass(eq=False)
class DriverTranslation:
    """A submission during which the driver compiles pipelines.

    Attributes:
        serial: Its number.
        waited: Seconds spent waiting for it or for later submissions.
    """

    serial: int
    waited: float = 0.0


class GpuQueue:
    """The device's queue. Submissions have serial numbers from 1 on and finish in order.

    Attributes:
        has_writes: Whether wgpu holds buffer writes back until the next submission.
        translated: Seconds for which callers waited while the driver compiled pipelines.

    Enqueued work becomes one submission with what is enqueued after it: at the next submission, write, read or wait,
    or when there are ``BATCH`` dispatches and no other work follows at once.
    """

    def __init__(self, context: Context, allocator: Allocator):
        self._context, self._allocator = context, allocator
        self._submitted = 0
        self._enqueued: list[RecordedWork] = []
        self._enqueued_count = 0
        self._staging: Any = None
        self._staged: list[NDArray[np.uint8]] = []
        self._staged_bytes = 0
        self._completion = Completion(context.library, context.queue)
        self.has_writes = False
        self.translations: list[DriverTranslation] = []
        self.translated = 0.0
        self._running: list[tuple[DeviceTime, int]] = []
        self._running_since, self._has_translated = 0.0, False
        self._waited_until = 0.0

    @property
    def submitted(self) -> int:
        """Serial number of the latest submission; 0 before the first."""
        return self._submitted

    def submit(self, *work: Sequence[Work]) -> int:
        """Run work in order as one submission and return its serial number. Frequent work is cheaper as a
        ``RecordedWork``.

        Raises:
            InvalidState: If a buffer of the work was released, or mapped or destroyed by its maker; nothing runs.
            DeviceRemoved: If the device is gone.
            DmlError: If the driver rejects a dispatch; its label is in the message and nothing runs.
        """
        recordings = [part if isinstance(part, RecordedWork) else RecordedWork(part) for part in work]
        with self._context.lock:
            self._context.deferred.run()
            self._context.check()
            for recording in recordings:
                self.check(recording)
            self.send_enqueued()
            return self._submit(recordings)

    def _submit(self, recordings: Sequence[RecordedWork]) -> int:
        """Record and send checked work. Call with the lock held."""
        try:
            library = self._context.library
            encoder = library.create_encoder(self._context.device)
            record_all(library, encoder, recordings)
            commands = library.finish(encoder)
        except wgpu.GPUError as error:
            raise self._blame(itertools.chain(*recordings), error) from error
        serial = self._send(commands)
        if not self._running:
            self._running_since = time.perf_counter()
        if len(self._running) < MAX_TIMED:
            self._running += [(recording.time, len(recording)) for recording in recordings]
        return serial

    def _count_run(self, is_measured: bool) -> None:
        """Add the time since the device was idle to that of the completed work, if a caller waited for its end."""
        running, self._running = self._running, []
        has_translated, self._has_translated = self._has_translated, False
        total = sum(count for _, count in running)
        if total and is_measured and not has_translated:
            each = (time.perf_counter() - self._running_since) / total
            for device_time, count in running:
                device_time.seconds += each * count

    def enqueue(self, work: Sequence[Work], *, is_followed: bool = False) -> int:
        """Run work in order after all work before, in a submission with later work; return its serial number.

        Args:
            work: The work.
            is_followed: Whether other work or a read follows at once.

        Raises:
            InvalidState, DeviceRemoved: As ``submit``.
            DmlError: As ``submit``, of this or earlier enqueued work, which the message names.
        """
        recording = work if isinstance(work, RecordedWork) else RecordedWork(work)
        with self._context.lock:
            self._context.deferred.run()
            self._context.check()
            self.check(recording)
            if recording.wrapped:  # their maker may destroy them
                return self.submit(recording)
            self._allocator.has_enqueued = True
            self._enqueued.append(recording)
            self._enqueued_count += len(recording)
            is_full = not is_followed and self._enqueued_count >= BATCH
            return self.send_enqueued() if is_full else self._submitted + 1

    def enqueue_write(self, buffer: GpuBuffer, offset: int, data: NDArray[np.uint8]) -> bool:
        """Write contiguous bytes after enqueued work, without submitting it; return False if there is none, or they are
        too many. Call with the lock held.

        wgpu's own writes come before the next submission. These are a copy in it, from a buffer that it fills.

        Raises:
            DmlError: As ``send_enqueued``.
        """
        if not self._enqueued or data.nbytes > MAX_STAGED or not buffer.owned:
            return False
        if self._staging is None:
            self._staging = self._allocator.create(STAGED_BYTES, "dmlgpu writes", charged=False)
        copy = CopyWork(
            self._staging.wgpu, self._staged_bytes, buffer.wgpu, offset, data.nbytes, Guard((buffer,), -1), "write"
        )
        self._staged.append(data.copy())
        self._staged_bytes += data.nbytes
        self._enqueued.append(RecordedWork((copy,)))
        if self._staged_bytes > STAGED_BYTES - MAX_STAGED:
            self.send_enqueued()
        return True

    def send_enqueued(self) -> int:
        """Submit enqueued work; return the serial number after which it is done. Call with the lock held.

        Raises:
            DmlError: If the driver rejects a dispatch; all other work runs.
        """
        recordings, self._enqueued, self._enqueued_count = self._enqueued, [], 0
        if not recordings:
            return self._submitted
        try:
            self._fill_staging()
            return self._submit(recordings)
        except DeviceRemoved:
            raise
        except DmlError:
            self._submit_each(recordings)
            return self._submitted
        finally:
            self._allocator.sent()

    def _fill_staging(self) -> None:
        """Write the bytes of enqueued writes where their copies read."""
        staged, self._staged, self._staged_bytes = self._staged, [], 0
        if not staged:
            return
        self._context.end_mapping()
        try:
            self._context.library.write(self._context.queue, self._staging.wgpu, 0, np.concatenate(staged))
        except wgpu.GPUError as error:
            raise self._context.translate(error, "write") from error

    def _submit_each(self, recordings: Sequence[RecordedWork]) -> None:
        """Submit recordings one by one; raises for the first that the driver rejects."""
        failures = []
        for recording in recordings:
            try:
                self._submit([recording])
            except DmlError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def check(self, work: RecordedWork) -> None:
        """Raise InvalidState if work uses a released buffer, or a wrapped one that its creator mapped or destroyed."""
        epoch = self._allocator.epoch
        if work.checked_epoch != epoch:
            for item in work:
                if item.guard.epoch != epoch:
                    item.guard.check(epoch, item.label)
            work.checked_epoch = epoch
        for buffer, label in work.wrapped.items():
            buffer.check_maker(label)

    def send(self, commands: Any) -> int:
        """Submit finished commands of C, once, after enqueued work; return their serial number. Call with the lock
        held."""
        self.send_enqueued()
        return self._send(commands)

    def _send(self, commands: Any) -> int:
        # wgpu-native aborts the process if it rejects work here; that commands could be finished just now shows that
        # the device is still there.
        self._context.end_mapping()
        start = time.perf_counter()
        try:
            self._context.library.submit(self._context.queue, commands)
        except wgpu.GPUError as error:
            raise self._context.translate(error, "submission") from error
        if self.translations:  # some drivers accept no work before the last submission is done
            self._poll()
            self.count_waiting(start)
        # An exception may occur between any two lines: counted work is submitted.
        self._submitted = serial = self._submitted + 1
        self.has_writes = False
        self._completion.track(serial)
        return serial

    def send_copy(self, copy: CopyWork) -> int:
        """Submit enqueued work and a copy after it; return the serial number. Call with the lock held.

        Raises:
            DmlError: As ``send_enqueued``.
        """
        self._enqueued.append(RecordedWork((copy,)))
        return self.send_enqueued()

    def flush(self) -> int:
        """Submit enqueued work and pending writes; return the serial number after which all is done."""
        if self._enqueued:
            with self._context.lock:
                self._context.check()
                self.send_enqueued()
        return self.submit() if self.has_writes else self._submitted

    def is_done(self, serial: int) -> bool:
        """Return whether a submission has finished."""
        if serial > self._submitted and self._enqueued:
            self.flush()
        if self._completion.done() < serial:
            self._poll()
        return self._completion.done() >= serial

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        """Wait for a submission; return False after ``timeout`` seconds.

        An exception of a signal handler ends the wait, and changes nothing else.

        Raises:
            DeviceRemoved: If the device is gone and the submission with it.
            InvalidArgument: If there was no such submission.
        """
        if self._completion.done() >= serial:
            if self._running and serial >= self._submitted:
                self._count_run(is_measured=False)
            return True
        self._context.check()
        if serial > self._submitted and self._enqueued:
            self.flush()
        if serial > self._submitted:
            raise InvalidArgument(f"wait: submission {serial} was never made, the latest is {self._submitted}")

        since = time.perf_counter()

        def is_done() -> bool:
            nonlocal since
            finished = self.is_done(serial)
            if self.translations:
                since = self.count_waiting(since)
            if not finished:
                self._context.check()
            return finished

        is_over = wait_until(is_done, timeout)
        if is_over and serial >= self._submitted:
            self._count_run(is_measured=True)
        return is_over

    def translating(self, serial: int) -> DriverTranslation:
        """Start to measure the time spent waiting for a submission."""
        translation, self._has_translated = DriverTranslation(serial), True
        self.translations.append(translation)
        return translation

    def count_waiting(self, since: float) -> float:
        """Add the waiting time since ``since`` to the current translation; return the current time."""
        now, done = time.perf_counter(), self._completion.done()
        since, self._waited_until = max(since, self._waited_until), now
        if self.translations:
            self.translations[0].waited += now - since
            self.translated += now - since
            self.translations = [translation for translation in self.translations if translation.serial > done]
        return now

    def _poll(self) -> None:
        if self._context.removed_reason is not None:
            return
        if self._completion.tracked < self._submitted:  # an exception came in ``send``, or another thread is there
            with self._context.lock:
                self._context.check()
                if self._completion.tracked < self._submitted:
                    self._completion.track(self._submitted)
        if self._context.info.backend == "OpenGL":
            with self._context.lock:
                self._context.library.poll(self._context.device)
        else:
            self._context.library.poll(self._context.device)

    def _blame(self, work: Iterable[Work], error: Exception) -> DmlError:
        """Return the exception for a rejected list, which names the first piece of work that is rejected on its own."""
        failure = self._context.translate(error, "command list")
        if isinstance(failure, DeviceRemoved):
            return failure
        library = self._context.library
        for item in work:
            try:
                encoder = library.create_encoder(self._context.device)
                RecordedWork([item]).record(library, encoder)
                library.finish(encoder)
            except wgpu.GPUError as own:
                return self._context.translate(own, item.label)
        return failure
