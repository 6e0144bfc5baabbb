"""Compiled programs: pipelines that are bound to resources."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import wgpu

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import aliasing
from dmlgpu.compiler.program import Program, RenderedKernel, parameter_bytes, uniform_bytes
from dmlgpu.runtime.executor import Resources
from dmlgpu.runtime.rendered import (
    ProgramExecutable,
    bound_range,
    check_binding_sizes,
    check_limits,
    kernels_of,
    upload_constants,
)
from dmlgpu.runtime.wgpu import releases
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.library import Library
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.runtime.wgpu.queue import CopyWork, DriverTranslation, GpuQueue, KernelWork, Work
from dmlgpu.runtime.wgpu.tiers import Tiers

_UNIFORM_LIMITS: Final = CacheLimits(entries=4096, size=1 << 20)
"""Limits of the cache of uniforms, in bytes; on lavapipe a uniform takes 1.5 to 2 KiB more of the process, at most
about 8 MiB in all."""


class Binder:
    """Makes bind groups and parameter blocks."""

    def __init__(self, context: Context, allocator: Allocator, pipelines: GpuPipelines, tiers: Tiers):
        self.context, self.allocator, self.pipelines, self.tiers = context, allocator, pipelines, tiers
        self._alignment = context.limits["min-storage-buffer-offset-alignment"]
        self.uniforms: Cache[bytes, Any] = Cache(_UNIFORM_LIMITS)

    def bind(
        self, operator: str, kernel: RenderedKernel, pipeline: Any, resources: Resources, immediates: bool
    ) -> Work | None:
        """Return one dispatch of a kernel on resources, or a copy in its place; None if it would copy bytes onto
        themselves. If ranges overlap unexpectedly, the kernel is linked and compiled again, for slots that share a
        binding.

        Args:
            operator, kernel, resources, immediates: As of ``rendered.Binding``.
            pipeline: That of the kernel; None if it is compiled only for buffers that WebGPU does not copy between.

        Raises:
            BindingError: If a resource that the kernel uses is missing or too small.
            NotSupported: If a binding, grown to the offset alignment and to all that it is shared for, exceeds the
                adapter's limit, or if overlapping ranges cannot share a binding.
            ShaderError: If a kernel that is compiled for these resources does not compile.
        """
        bound = [bound_range(operator, kernel, slot, resources, self._alignment) for slot in kernel.slots]
        if _is_in_place(kernel, bound):
            return None
        if (copy := self._copy(kernel, bound)) is not None:
            return copy
        ranges = [(buffer.wgpu, start, size) for buffer, start, size in bound]
        context = self.context
        layout = aliasing.layout(ranges, kernel.bindings, self._alignment)
        check_binding_sizes(operator, kernel, layout, context.target.max_binding_size, context.info)
        if layout.bindings != kernel.bindings:
            kernel, pipeline = aliasing.with_bindings(operator, kernel, layout.bindings), None
        if pipeline is None:
            pipeline = self.pipelines.get(operator, kernel, immediates)
        bindings, bases = list(layout.bound), layout.bases
        with context.lock:
            context.check()
            has_uniform = kernel.needs_uniform(immediates)
            group_layout = self.pipelines.layout(len(bindings), immediates, has_uniform)
            guard = Guard(tuple([buffer for buffer, _, _ in bound]), self.allocator.epoch)
            guard.check(self.allocator.epoch, kernel.label)
            with context.reporting(f"{operator}: kernel {kernel.label!r}"):
                if has_uniform:
                    # Bind groups keep a uniform alive when it is no longer cached here.
                    data = uniform_bytes(bases, kernel.given, immediates)
                    uniform = self.uniforms.get_or_make(data, lambda: self._new_uniform(data), lambda _: len(data))
                    bindings.append((uniform, 0, len(data)))
                group = context.library.create_bind_group(context.device, kernel.label, group_layout, bindings)
                releases.adopt(context, group)  # which may hold the last reference to a uniform
        parameters = _block(context.library, bases) if immediates else None
        tier = self.tiers.of(operator, kernel, immediates)
        return KernelWork(pipeline, group, parameters, *kernel.grid, guard, kernel.label, tier)

    def _copy(self, kernel: RenderedKernel, ranges: Sequence[tuple[GpuBuffer, int, int]]) -> CopyWork | None:
        """Return the buffer copy that replaces a kernel, if there is one and WebGPU allows it."""
        if (copy := kernel.copy) is None or is_compiled(kernel):
            return None
        (source, start, _), (destination, there, _) = ranges[copy.source], ranges[copy.destination]
        if source.wgpu is destination.wgpu:  # WebGPU forbids it
            return None
        if not (source.wgpu.usage & wgpu.BufferUsage.COPY_SRC and destination.wgpu.usage & wgpu.BufferUsage.COPY_DST):
            return None
        guard = Guard((source, destination), self.allocator.epoch)
        guard.check(self.allocator.epoch, kernel.label)
        start, there = start + copy.source_offset, there + copy.destination_offset
        return CopyWork(source.wgpu, start, destination.wgpu, there, copy.size, guard, kernel.label)

    def close(self) -> None:
        """Drop cached parameter blocks."""
        self.uniforms.clear()

    def _new_uniform(self, data: bytes) -> Any:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        buffer = self.context.device.create_buffer(label="dmlgpu parameters", size=len(data), usage=usage)
        self.context.queue.write_buffer(buffer, 0, data)
        return releases.adopt(self.context, buffer)


def is_compiled(kernel: RenderedKernel) -> bool:
    """Return whether a kernel is compiled, not replaced by a copy between buffers that allow one."""
    return kernel.copy is None or not kernel.copy.preferred


def _is_in_place(kernel: RenderedKernel, ranges: Sequence[tuple[GpuBuffer, int, int]]) -> bool:
    """Return whether a kernel copies bytes onto themselves."""
    if (copy := kernel.copy) is None:
        return False
    (source, start, _), (destination, there, _) = ranges[copy.source], ranges[copy.destination]
    return source.wgpu is destination.wgpu and start + copy.source_offset == there + copy.destination_offset


@functools.lru_cache(maxsize=4096)
def _block(library: Library, bases: tuple[int, ...]) -> Any:
    """Return a parameter block. Equal blocks are one object, so that recording compares by identity."""
    return library.parameter_block(parameter_bytes(bases))


class GpuExecutable(ProgramExecutable):
    """A program with its pipelines on the device: those of all kernels but copies.

    Attributes:
        new: Kernels whose pipelines were not cached.
    """

    def __init__(self, program: Program, binder: Binder):
        check_limits(program, binder.context.target, binder.context.info)
        start = time.perf_counter()
        allocator, pipelines, queue = binder.allocator, binder.pipelines, binder.context.queue
        constants = upload_constants(
            self,
            program,
            allocator.create,
            allocator.destroy,
            lambda buffer, start, data: queue.write_buffer(buffer.wgpu, start, data),
        )
        uploaded = time.perf_counter()
        kernels = kernels_of(program)
        dispatched = list(filter(is_compiled, kernels))
        handles, self.new = pipelines.get_all(program.operator, dispatched, program.immediates)
        remaining = iter(handles)
        compiled = [next(remaining) if is_compiled(kernel) else None for kernel in kernels]
        driver = time.perf_counter() - uploaded
        timings = replace(program.timings, driver=driver, upload=uploaded - start)
        size = sum(pipelines.size_of(kernel.wgsl) for kernel in self.new)
        super().__init__(program, compiled, constants, bind=binder.bind, pipeline_size=size, timings=timings)
        # Kept, so that the kernels find them when they are bound again.
        self._tiers = [binder.tiers.of(program.operator, kernel, program.immediates) for kernel in program.kernels]
        self.translation: tuple[GpuQueue, DriverTranslation] | None = None

    @property
    def timings(self) -> Timings:
        """Seconds per stage of compilation, including waits for the submission ``translated_by``, for which this
        waits."""
        if self.translation is not None:
            queue, translation = self.translation
            if not queue.is_done(translation.serial):
                queue.wait(translation.serial)
            self.translation = None
            self._timings = replace(self._timings, driver=self._timings.driver + translation.waited)
        return self._timings

    def translated_in(self, seconds: float) -> None:
        """Record the time that the driver took to compile pipelines."""
        self._timings = replace(self._timings, driver=self._timings.driver + seconds)

    def translated_by(self, queue: GpuQueue, serial: int) -> None:
        """Record the submission during which the driver compiles new pipelines."""
        self.translation = queue, queue.translating(serial)
