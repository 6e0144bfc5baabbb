"""The executor in a page (see ``dmlgpu.runtime.executor.Backend``)."""

from __future__ import annotations

import collections
import itertools
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.cache import Cache
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument, OutOfMemory
from dmlgpu.common.memory import check_budget
from dmlgpu.compiler import aliasing
from dmlgpu.compiler.program import Program, RenderedKernel, uniform_bytes
from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo
from dmlgpu.runtime.browser import facts, frames
from dmlgpu.runtime.browser.executable import BrowserExecutable, PageBuffer, PagePipelines, PageShader, PageWork
from dmlgpu.runtime.browser.link import Link
from dmlgpu.runtime.browser.matrices import with_matrix_units
from dmlgpu.runtime.executor import Reading, Resources, Timing
from dmlgpu.runtime.rendered import RenderedBackend, Tell, bound_range, check_binding_sizes, kernels_of
from dmlgpu.runtime.specialization import Specializer

Memory = NDArray[np.uint8]

SURE_BYTES = 1 << 20
"""Buffers of at least this size are created synchronously, so that a failed allocation is reported at once."""

_HELD_BYTES = 4 << 20
"""Maximum bytes of writes that are held back for the next frame."""

_MAX_TIMED = 1024
"""Maximum pieces of work timed separately: a query set holds 4,096 timestamps."""


class BrowserReading(Reading):
    """An asynchronous read from a page."""

    def __init__(self, parts: Sequence[Future[tuple[list[Any], memoryview]]], size: int, label: str):
        self._parts, self._size, self._label = parts, size, label
        self._data: Memory | None = None

    def is_done(self) -> bool:
        return all(part.done() for part in self._parts)

    def result(self, timeout: float | None = None) -> Memory | None:
        """Return the bytes; None after ``timeout`` seconds. Raises errors of the page."""
        if self._data is None:
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                parts = []
                for part in self._parts:
                    remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                    parts.append(part.result(remaining)[1])
            except TimeoutError:
                return None
            data = np.frombuffer(b"".join(parts), np.uint8).copy()
            if data.size != self._size:
                raise DmlError(f"{self._label}: the page sent {data.size:,} bytes instead of {self._size:,}")
            self._data = data
        return self._data


class BrowserBackend(RenderedBackend):
    """Executor on the adapter of a page. Thread-safe.

    Args:
        info: Adapter of the page.
        borrowing: Address of the server for executors.
        index: 1-based index of the page on the server.
        deterministic, precise, memory_budget, disabled_features: As of ``Device``.
        tell: Called with the kernels of each program and their WGSL before the page compiles them.

    Raises:
        DeviceRemoved: If the page is disconnected, or cannot create a device.
    """

    lost_by_fork: str | None = "it was created before this process was forked"

    def __init__(
        self,
        info: AdapterInfo,
        borrowing: str,
        index: int,
        *,
        deterministic: bool = False,
        precise: bool = False,
        memory_budget: int | None = None,
        disabled_features: Collection[str] = (),
        tell: Tell = lambda kernels, texts: None,
    ):
        self.info = info
        self.target = facts.target_of(
            info, deterministic=deterministic, precise=precise, disabled_features=disabled_features
        )
        self.specializer = Specializer()
        self.alignment = info.limits["min-storage-buffer-offset-alignment"]
        self.memory_budget = memory_budget
        self._tell = tell
        self._link = Link(borrowing, index, str(info))
        self._buffer_ids = itertools.count(1)
        self._lock = threading.RLock()
        self._held: list[list[Any]] = []
        self._blobs: list[bytes] = []
        self._held_bytes = 0
        # Finalizers append to it at any time, on any thread.
        self._dropped: collections.deque[list[Any]] = collections.deque()
        self._unanswered: dict[int, Future[Any]] = {}
        self._allocated = 0
        self.pipelines = PagePipelines(self._link, str(info), lambda request: self._dropped.append(["forget", request]))
        if not {COOPERATIVE, "shader-f16"} & set(disabled_features):
            self.target = with_matrix_units(self, facts.units_of(info))

    @property
    def pipeline_cache(self) -> Cache[Any, Any]:
        """The cache of pipelines (see ``Device.pipeline_cache``)."""
        return self.pipelines.cache

    # ---- programs ---------------------------------------------------------------------------------------------------

    def prepare(self, program: Program) -> BrowserExecutable:
        """Compile a rendered program. Raises as ``RenderedBackend.prepare``."""
        self._tell(program.summaries, tuple(kernel.wgsl for kernel in kernels_of(program)))
        return BrowserExecutable(self, program)

    def compile_shader(
        self, wgsl: str, entry_point: str, constants: Mapping[str, float], kinds: Mapping[int, str], label: str
    ) -> PageShader:
        """Compile a shader of the user (see ``ShaderBackend.compile_shader``)."""
        self._tell((), (wgsl,))
        self._link.check()
        return PageShader(self, self.pipelines.compile_shader(wgsl, entry_point, constants, kinds, label), label)

    def bind(
        self, operator: str, kernel: RenderedKernel, pipeline: Any, resources: Resources, immediates: bool
    ) -> PageWork:
        """Return one dispatch of a kernel, which is linked again once if slots must share a binding."""
        bound = [bound_range(operator, kernel, slot, resources, self.alignment) for slot in kernel.slots]
        ranges = [(buffer.id, start, size) for buffer, start, size in bound]
        layout = aliasing.layout(ranges, kernel.bindings, self.alignment)
        check_binding_sizes(operator, kernel, layout, self.target.max_binding_size, self.info)
        if layout.bindings != kernel.bindings:
            (pipeline,) = self.pipelines.get_all(operator, [aliasing.with_bindings(operator, kernel, layout.bindings)])
        words = memoryview(uniform_bytes(layout.bases, kernel.given, immediates)).cast("I").tolist()
        return PageWork(kernel.label, [pipeline, [list(part) for part in layout.bound], words, list(kernel.grid)])

    # ---- buffers ----------------------------------------------------------------------------------------------------

    @property
    def allocated(self) -> int:
        """Bytes of allocated buffers."""
        return self._allocated

    def create_buffer(self, size: int, label: str) -> PageBuffer:
        """Allocate ``size`` bytes (a multiple of 4), zeroed. Small buffers are created with the next frame.

        Raises:
            OutOfMemory: If the memory budget, the adapter's limit or the browser's memory is exceeded.
        """
        limit = self.info.limits["max-buffer-size"]
        if size > limit:
            raise OutOfMemory(f"buffer {label!r}: {size:,} bytes exceed the {limit:,} that {self.info} allows")
        with self._lock:
            check_budget(label, size, self._allocated, self.memory_budget)
            self._link.check()
            buffer = PageBuffer(next(self._buffer_ids), size)
            self._held.append(["create", buffer.id, size])
            request = self._send([]) if size >= SURE_BYTES else None
            self._allocated += size
        if request is not None:
            try:
                self._answered(request)
            except OutOfMemory:
                self.destroy_buffer(buffer)
                raise
        return buffer

    def destroy_buffer(self, buffer: PageBuffer) -> None:
        """Free a buffer, with the next frame."""
        self._allocated -= buffer.size
        self._dropped.append(["destroy", buffer.id])

    def write(self, buffer: PageBuffer, offset: int, data: Memory) -> None:
        self.write_bytes(buffer, offset, np.ascontiguousarray(data).data.cast("B"))

    def write_bytes(self, buffer: PageBuffer, offset: int, data: memoryview) -> None:
        """Put bytes (offset and length multiples of 4) into a buffer, after all submitted work."""
        for start in range(0, len(data), frames.CHUNK_BYTES):
            chunk = bytes(data[start : start + frames.CHUNK_BYTES])
            with self._lock:
                if self._held_bytes and self._held_bytes + len(chunk) > _HELD_BYTES:
                    self._send([])
                self._held.append(["write", buffer.id, offset + start, self._held_bytes, len(chunk)])
                self._blobs.append(chunk)
                self._held_bytes += len(chunk)
                request = self._send([]) if self._held_bytes > _HELD_BYTES else None
            if request is not None:
                self._answered(request)  # the page takes no more in advance than this

    def read(self, buffer: PageBuffer, offset: int, size: int) -> Memory:
        data = self.read_async(buffer, offset, size).result()
        assert data is not None
        return data

    def read_async(self, buffer: PageBuffer, offset: int, size: int) -> BrowserReading:
        """Begin to read the bytes of a buffer (offset and size multiples of 4), after all submitted work."""
        self._raise_failures()
        starts = range(0, size, frames.CHUNK_BYTES)
        with self._lock:
            requests = [
                self._send([["read", buffer.id, offset + start, min(frames.CHUNK_BYTES, size - start)]])
                for start in starts
            ]
            parts = [self._unanswered.pop(request) for request in requests]
        return BrowserReading(parts, size, str(self.info))

    # ---- work -------------------------------------------------------------------------------------------------------

    def copy(
        self, source: PageBuffer, source_offset: int, destination: PageBuffer, destination_offset: int, size: int
    ) -> PageWork:
        """Return a copy of ``size`` bytes (all three numbers multiples of 4) as a unit of work.

        Raises:
            InvalidArgument: If source and destination are one buffer, which WebGPU forbids.
        """
        if source is destination:
            raise InvalidArgument(f"copy on {self.info}: source and destination must be different buffers")
        return PageWork("copy", ["copy", source.id, source_offset, destination.id, destination_offset, size])

    def submit(self, *work: Sequence[PageWork]) -> int:
        """Send units of work as one submission; return its serial number for ``is_done`` and ``wait``. Does not
        wait: errors are raised by the next call that waits."""
        self._raise_failures()
        with self._lock:
            return self._send([["submit", list(itertools.chain(*work))]])

    def is_done(self, serial: int) -> bool:
        self._link.check()
        with self._lock:
            answer = self._unanswered.get(serial)
        return answer is None or answer.done()

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        """Wait for a submission; return False after ``timeout`` seconds. Raises its errors."""
        with self._lock:
            answer = self._unanswered.get(serial)
        if answer is None:
            self._link.check()
            return True
        try:
            answer.result(timeout)
        except TimeoutError:
            return False
        finally:
            if answer.done():
                self._unanswered.pop(serial, None)
        return True

    def time(self, work: Sequence[PageWork], parts: bool = False) -> Timing:
        """Run work once, wait, and return the time taken: by timestamps of the page if the browser has valid ones (many
        round to 0.1 ms), else by wall clock.

        Raises: As ``submit`` and ``wait``.
        """
        if not work or not self.target.has("timestamp-query") or (parts and len(work) > _MAX_TIMED):
            return super().time(work)
        self._raise_failures()
        groups = [[item] for item in work] if parts else [list(work)]
        start = time.perf_counter()
        with self._lock:
            request = self._send([["time", groups]])
            answer = self._unanswered.pop(request)
        results, _ = answer.result()
        seconds = time.perf_counter() - start
        stamps = _stamps(next((each for each in results if isinstance(each, list)), None), len(groups))
        if stamps is None:
            raise DmlError(f"{self.info}: the page sent invalid times")
        return Timing.of_timestamps(stamps, seconds, parts)

    def close(self) -> None:
        """Release the page."""
        self._link.close()

    # ---- frames -----------------------------------------------------------------------------------------------------

    def _send(self, commands: list[list[Any]]) -> int:
        """Send pending writes, commands and releases in one frame; return its number. Hold the lock."""
        pending, blobs = [*self._held, *commands], self._blobs
        self._held, self._blobs, self._held_bytes = [], [], 0
        while self._dropped:
            pending.append(self._dropped.popleft())
        request = self._link.send(pending, blobs)
        self._unanswered[request] = self._link.answer(request)
        self._link.forget_when_done(request)
        return request

    def _answered(self, request: int) -> None:
        """Wait for the answer to a frame; raise its errors."""
        with self._lock:
            answer = self._unanswered.pop(request, None)
        if answer is not None:
            answer.result()

    def _raise_failures(self) -> None:
        """Raise errors of frames that nothing waits for, once; discard completed frames."""
        with self._lock:
            done = [request for request, answer in self._unanswered.items() if answer.done()]
            answers = [self._unanswered.pop(request) for request in done]
        for answer in answers:
            error = answer.exception()
            if error is not None and not isinstance(error, DeviceRemoved):
                raise error
        self._link.check()


def _stamps(stamps: object, count: int) -> list[tuple[float, float]] | None:
    """Return the start and end of each group of work in seconds; None if the page's answer is malformed."""
    if not isinstance(stamps, list) or len(stamps) != 2 * count:
        return None
    if not all(isinstance(each, int | float) and abs(each) < 2**63 for each in stamps):
        return None
    seconds = [each * 1e-9 for each in stamps]
    return list(zip(seconds[::2], seconds[1::2], strict=True))
