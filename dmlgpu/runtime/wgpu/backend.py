"""The executor on wgpu (see ``dmlgpu.runtime.executor.Backend``)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.cache import Cache
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel, Slot
from dmlgpu.compiler.target import MAX_BINDINGS, AdapterInfo, Target
from dmlgpu.runtime.executor import Range, Resources, Timing
from dmlgpu.runtime.progress import counter
from dmlgpu.runtime.rendered import RenderedBackend, Tell, kernels_of
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import forks
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.executable import Binder, GpuExecutable, is_compiled
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.runtime.wgpu.queue import CopyWork, GpuQueue, RecordedWork, Work
from dmlgpu.runtime.wgpu.shader import GpuShader
from dmlgpu.runtime.wgpu.tiers import Tiers
from dmlgpu.runtime.wgpu.timestamps import Timestamps
from dmlgpu.runtime.wgpu.transfers import StagedReading, Transfers

_WARM_UP_BYTES = 256


class GpuBackend(RenderedBackend):
    """Executor on an adapter. Thread-safe.

    Args:
        adapter: One of ``dmlgpu.runtime.wgpu.adapters()``.
        deterministic: Whether results must not depend on the order in which threads run.
        precise: Whether to exclude schedules that trade accuracy for speed.
        memory_budget: Maximum bytes of buffers at a time; None as in ``buffers.Allocator``.
        disabled_features: Features not to use.
        tell: Called with the kernels of each program (``Program.summaries``) and their WGSL before the driver compiles
            them, which may crash; for a shader of the user with its WGSL alone.

    Attributes:
        info: Facts about the adapter.
        target: Compile target.
        lost_by_fork: Reason why a forked child cannot use it.

    Raises:
        AdapterNotFound: If the adapter is not of this machine.
        NotSupported: If the driver cannot create a device.
        InvalidState: In a process forked from one that had used or listed GPUs.
    """

    lost_by_fork: str | None = forks.MADE_BEFORE_FORK

    def __init__(
        self,
        adapter: AdapterInfo,
        *,
        deterministic: bool = False,
        precise: bool = False,
        memory_budget: int | None = None,
        disabled_features: Collection[str] = (),
        tell: Tell = lambda kernels, texts: None,
    ):
        self._set_up(Context.open(adapter, deterministic, precise, disabled_features), memory_budget, tell)

    @classmethod
    def from_wgpu(
        cls,
        device: wgpu.GPUDevice,
        *,
        deterministic: bool = False,
        precise: bool = False,
        memory_budget: int | None = None,
        disabled_features: Collection[str] = (),
    ) -> GpuBackend:
        """Return an executor on an existing wgpu device, with its features and limits; never destroys it."""
        backend = cls.__new__(cls)
        backend._set_up(Context.wrap(device, deterministic, precise, disabled_features), memory_budget)
        return backend

    def _set_up(
        self,
        context: Context,
        memory_budget: int | None,
        tell: Tell = lambda kernels, texts: None,
    ) -> None:
        self.context = context
        self.info: AdapterInfo = context.info
        self.target: Target = context.target
        self.allocator = Allocator(context, memory_budget)
        self.queue = GpuQueue(context, self.allocator)
        self.pipelines = GpuPipelines(context, self.queue)
        self._transfers = Transfers(context, self.queue)
        self._timestamps = Timestamps(context, self.allocator, self.queue, self._transfers)
        self.tiers = Tiers(self.pipelines, self._translate)
        self.binder = Binder(context, self.allocator, self.pipelines, self.tiers)
        self.specializer = Specializer()
        self._warm_up_buffer: GpuBuffer | None = None
        self._tell = tell

    @property
    def specializer(self) -> Specializer:
        """Specialization of programs by their sizes; under ``auto``, hot kernels are specialized later."""
        return self._specializer

    @specializer.setter
    def specializer(self, specializer: Specializer) -> None:
        self._specializer = specializer
        # OpenGL's one context would make other threads wait for the compiler.
        self.tiers.is_enabled = specializer.policy is Specialize.AUTO and self.info.backend != "OpenGL"

    @property
    def wgpu_device(self) -> wgpu.GPUDevice:
        """The wgpu device."""
        return self.context.device

    @property
    def removed_reason(self) -> str | None:
        """Reason of the removal; None if the device is not removed."""
        return self.context.removed_reason

    @property
    def allocated(self) -> int:
        """Bytes of allocated buffers."""
        return self.allocator.allocated

    @property
    def pipeline_cache(self) -> Cache[Any, Any]:
        """The cache of compiled pipelines (see ``Device.pipeline_cache``)."""
        return self.pipelines.cache

    @property
    def memory_budget(self) -> int | None:
        """Maximum bytes of buffers at a time, or None."""
        return self.allocator.budget

    # ---- programs ---------------------------------------------------------------------------------------------------

    def prepare(self, program: Program) -> GpuExecutable:
        """Compile a rendered program. Raises as ``RenderedBackend.prepare``."""
        compiled = filter(is_compiled, kernels_of(program))
        self._tell(program.summaries, tuple(kernel.wgsl for kernel in compiled))
        self.context.check()
        executable = GpuExecutable(program, self.binder)
        if executable.new and self.info.api == "Vulkan":
            count = counter(executable.new) if self.pipelines.translates_late else None
            if count is None:
                serial = self._warm_up(program.operator, executable.new, program.immediates)
                executable.translated_by(self.queue, serial)
            else:
                start = time.perf_counter()
                for kernel in executable.new:
                    self._translate(program.operator, [kernel], program.immediates)
                    count(kernel)
                executable.translated_in(time.perf_counter() - start)
        return executable

    def compile_kernel(self, program: Program, kernel: RenderedKernel) -> None:
        """Compile one kernel of a program and drop the result, for tools that read the compiler's output. Submits
        nothing.

        Raises:
            ShaderError: If it does not compile.
            DeviceRemoved: If the device is gone.
        """
        self.pipelines.compile_uncached(program.operator, kernel, program.immediates)

    def compile_shader(
        self, wgsl: str, entry_point: str, constants: Mapping[str, float], kinds: Mapping[int, str], label: str
    ) -> GpuShader:
        """Compile a shader of the user (see ``ShaderBackend.compile_shader``)."""
        self._tell((), (wgsl,))
        self.context.check()
        return GpuShader(
            self.context,
            self.allocator,
            wgsl=wgsl,
            entry_point=entry_point,
            constants=constants,
            kinds=kinds,
            label=label,
        )

    def _translate(self, operator: str, kernels: Sequence[RenderedKernel], immediates: bool) -> None:
        """Make the driver compile pipelines, and wait."""
        if self.info.api == "Vulkan":
            serial = self._warm_up(operator, kernels, immediates)
            self.queue.translating(serial)
            self.queue.wait(serial)

    def _warm_up(self, operator: str, kernels: Sequence[RenderedKernel], immediates: bool) -> int:
        """Make the driver compile new pipelines now: some drivers do so at the first dispatch, for which an empty one
        suffices.

        Does not wait: the driver works while Python prepares the next operator. Returns the serial number of the
        submission.
        """
        with self.context.lock:
            if self._warm_up_buffer is None:
                self._warm_up_buffer = self.allocator.create(MAX_BINDINGS * _WARM_UP_BYTES, "warm-up", charged=False)
        scratch = tuple(Range(self._warm_up_buffer, n * _WARM_UP_BYTES, _WARM_UP_BYTES) for n in range(MAX_BINDINGS))
        work: list[Work] = []
        for kernel in kernels:
            numbers = kernel.bindings or range(len(kernel.slots))
            slots = tuple(Slot(Role.INPUT, index, 0, _WARM_UP_BYTES) for index in numbers)
            empty = dataclasses.replace(kernel, slots=slots, grid=(0, 1, 1), copy=None)
            pipeline = self.pipelines.get(operator, kernel, immediates)
            dispatch = self.binder.bind(operator, empty, pipeline, Resources(scratch, ()), immediates)
            assert dispatch is not None
            work.append(dispatch)
        return self.queue.submit(work)

    # ---- buffers ----------------------------------------------------------------------------------------------------

    def create_buffer(self, size: int, label: str) -> GpuBuffer:
        return self.allocator.create(size, label)

    def wrap_buffer(self, buffer: wgpu.GPUBuffer, label: str = "") -> GpuBuffer:
        """Use an existing buffer of the same wgpu device. Raises InvalidArgument if it lacks a usage."""
        return self.allocator.wrap(buffer, label or getattr(buffer, "label", ""))

    def destroy_buffer(self, buffer: GpuBuffer) -> None:
        """Free a buffer (a wrapped one belongs to its creator). Work bound to it is rejected from now on."""
        self.allocator.destroy(buffer)

    def write(self, buffer: GpuBuffer, offset: int, data: NDArray[np.uint8]) -> None:
        self._transfers.write(buffer, offset, data)

    def read(self, buffer: GpuBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        return self._transfers.read(buffer, offset, size)

    def read_async(self, buffer: GpuBuffer, offset: int, size: int) -> StagedReading:
        return self._transfers.read_async(buffer, offset, size)

    # ---- work -------------------------------------------------------------------------------------------------------

    def copy(
        self, source: GpuBuffer, source_offset: int, destination: GpuBuffer, destination_offset: int, size: int
    ) -> CopyWork:
        """Return a copy of ``size`` bytes (all three numbers multiples of 4) as a unit of work.

        Raises:
            InvalidArgument: If source and destination are one buffer, which WebGPU forbids.
        """
        label = f"copy {source.label!r} to {destination.label!r}"
        if source is destination or source.wgpu is destination.wgpu:
            raise InvalidArgument(f"{label}: source and destination must be different buffers")
        guard = Guard((source, destination), -1)
        return CopyWork(source.wgpu, source_offset, destination.wgpu, destination_offset, size, guard, label)

    def record(self, work: Sequence[Work]) -> RecordedWork:
        return RecordedWork(work)

    def submit(self, *work: Sequence[Work]) -> int:
        return self.queue.submit(*work)

    def enqueue(self, work: Sequence[Work], *, is_followed: bool = False) -> int:
        return self.queue.enqueue(work, is_followed=is_followed)

    def is_done(self, serial: int) -> bool:
        return self.queue.is_done(serial)

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        return self.queue.wait(serial, timeout)

    def time(self, work: Sequence[Work], parts: bool = False) -> Timing:
        """Run work once, wait, and return the time taken on the device."""
        return self._timestamps.time(work, parts)

    def close(self) -> None:
        """Wait for all work, then destroy the device (unless it is from ``from_wgpu``) and free all pipelines,
        including those of executables. Idempotent."""
        try:
            self.context.close(lambda: self.queue.wait(self.queue.flush()))
        finally:
            self.pipelines.close()
            self.binder.close()
