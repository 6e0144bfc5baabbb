"""Programs made ready to run: pipelines at hand, bound to resources on request."""

from __future__ import annotations

import functools
import itertools
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import wgpu

from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, aligned
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import BindingError, NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import aliasing
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import MAX_SLOTS, Kernel, Program, Slot, parameter_bytes
from dmlgpu.compiler.target import PARAMETER_BYTES
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import native, releases
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.runtime.wgpu.queue import CopyWork, GpuQueue, KernelWork, Work

LEAST_COPY: Final = 64 << 10
"""Bytes below which a copy between buffers, which ends a compute pass, is no faster than a kernel that copies."""

MOST_PROCESSORS: Final = 4
"""Processors beyond which a software adapter's kernels copy faster than its copies, which one thread makes."""

_UNIFORM_LIMITS: Final = CacheLimits(entries=1024, size=1024 * PARAMETER_BYTES)


class Binder:
    """Makes bind groups and parameter blocks."""

    def __init__(self, context: Context, allocator: Allocator, pipelines: GpuPipelines):
        self.context, self.allocator, self.pipelines = context, allocator, pipelines
        self._alignment = context.limits["min-storage-buffer-offset-alignment"]
        self._uniforms: Cache[tuple[int, ...], Any] = Cache(_UNIFORM_LIMITS)
        self._copies = context.info.is_software and (os.cpu_count() or 1) <= MOST_PROCESSORS

    def bind(self, operator: str, kernel: Kernel, pipeline: Any, resources: Resources, immediates: bool) -> Work:
        """Return one dispatch of a kernel on resources, or a copy that does the same faster. Where ranges meet of which
        that was not known, the kernel is rendered and compiled anew, once, for slots that share a binding.

        Raises:
            BindingError: when a resource that the kernel uses is missing or too small.
            NotSupported: when a binding, grown to the offset alignment and to all that it is shared for, exceeds the
                adapter's limit; or when what meets cannot be shared.
        """
        bound = [self._range(operator, kernel, slot, resources) for slot in kernel.slots]
        copy = self._copy(kernel, bound)
        if copy is not None:
            return copy
        ranges = [(buffer.wgpu, start, size) for buffer, start, size in bound]
        layout = aliasing.layout(ranges, kernel.bindings, self._alignment)
        self._check_sizes(operator, kernel, layout)
        if layout.bindings != kernel.bindings:
            from dmlgpu.compiler.wgsl.sharing import share  # noqa: PLC0415 - slow to import, and seldom needed

            kernel = share(operator, kernel, layout.bindings)
            pipeline = self.pipelines.get(operator, kernel, immediates)
        entries = [
            {"binding": binding, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for binding, (buffer, offset, size) in enumerate(layout.bound)
        ]
        bases, context = layout.bases, self.context
        with context.lock:
            context.check()
            group_layout = self.pipelines.layout(len(entries), immediates)
            guard = Guard(tuple([buffer for buffer, _, _ in bound]), self.allocator.epoch)
            guard.check(self.allocator.epoch, kernel.label)
            with context.reporting(f"{operator}: kernel {kernel.label!r}"):
                if not immediates:
                    entries.append({"binding": len(entries), "resource": {"buffer": self._uniform(bases)}})
                group = context.device.create_bind_group(label=kernel.label, layout=group_layout, entries=entries)
                releases.adopt(context, group)  # which may hold the last reference to a uniform
        parameters = _block(bases) if immediates else None
        return KernelWork(pipeline, group, parameters, *kernel.grid, guard, kernel.label)

    def _copy(self, kernel: Kernel, ranges: Sequence[tuple[GpuBuffer, int, int]]) -> CopyWork | None:
        """Return what does a kernel's work as a copy between buffers, where that is possible and faster."""
        copy = kernel.copy
        if copy is None or not self._copies or copy.size < LEAST_COPY:
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

    def check(self, program: Program) -> None:
        """Refuse what the driver would refuse only at submission, or not notice at all.

        Raises:
            NotSupported: when the program needs immediates, more buffers, a larger grid or larger bindings than the
                adapter has.
        """
        target, info = self.context.target, self.context.info
        for kernel in (*program.kernels, *program.initialization):
            what = f"{program.operator}: kernel {kernel.label!r}"
            if program.immediates and not target.has("immediates"):
                raise NotSupported(f"{what} is rendered for immediates, which {info} lacks")
            slots = min(target.max_storage_buffers, MAX_SLOTS)
            if len(kernel.slots) > slots:
                raise NotSupported(
                    f"{what} binds {len(kernel.slots)} buffers, more than the {slots} possible on {info}"
                )
            if max(kernel.grid) > target.max_workgroups_per_dimension:
                raise NotSupported(
                    f"{what} has a grid of {kernel.grid}, more than the {target.max_workgroups_per_dimension}"
                    f" workgroups that {info} allows along an axis"
                )
            ranges = [((slot.role, slot.index), slot.offset, slot.size) for slot in kernel.slots]
            self._check_sizes(program.operator, kernel, aliasing.layout(ranges, kernel.bindings, TENSOR_ALIGNMENT))

    def _check_sizes(self, operator: str, kernel: Kernel, layout: aliasing.Layout) -> None:
        limit = self.context.target.max_binding_size
        for binding, (_, _, size) in enumerate(layout.bound):
            if size > limit:
                numbers = layout.bindings or range(len(kernel.slots))
                slots = [slot for slot, number in zip(kernel.slots, numbers, strict=True) if number == binding]
                raise NotSupported(
                    f"{operator}: kernel {kernel.label!r} binds {size:,} bytes of"
                    f" {' and '.join(f'{slot.role} {slot.index}' for slot in slots)},"
                    f" more than the {limit:,} that {self.context.info} allows in one binding"
                )

    def _range(self, operator: str, kernel: Kernel, slot: Slot, resources: Resources) -> tuple[Any, int, int]:
        bound = _resource(slot, resources)
        if bound is None:
            raise BindingError(
                f"{operator}: kernel {kernel.label!r} needs {slot.role} {slot.index}, which is not bound"
            )
        if slot.offset + slot.size > bound.size:
            raise BindingError(
                f"{operator}: kernel {kernel.label!r} needs {slot.offset + slot.size:,} bytes of"
                f" {slot.role} {slot.index}, got {bound.size:,}"
            )
        return bound.buffer, bound.offset + slot.offset, slot.size

    def close(self) -> None:
        """Let go of what is kept for the next dispatch."""
        self._uniforms.clear()

    def _uniform(self, bases: tuple[int, ...]) -> Any:
        """Return a buffer that holds a parameter block. Bind groups keep theirs when it is no longer kept here."""
        return self._uniforms.get_or_make(bases, lambda: self._new_uniform(bases), lambda _: PARAMETER_BYTES)

    def _new_uniform(self, bases: tuple[int, ...]) -> Any:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        buffer = self.context.device.create_buffer(label="dmlgpu parameters", size=PARAMETER_BYTES, usage=usage)
        self.context.queue.write_buffer(buffer, 0, parameter_bytes(bases))
        return releases.adopt(self.context, buffer)


@functools.lru_cache(maxsize=4096)
def _block(bases: tuple[int, ...]) -> Any:
    """Return a parameter block. Equal ones are one object, so that recording sees by identity that nothing changed."""
    return native.parameter_block(parameter_bytes(bases))


class GpuExecutable:
    """A program with its pipelines (see ``backend.Executable``).

    Attributes:
        program: what it runs.
        temporary_size, persistent_size: bytes of these resources.
        new: kernels whose pipelines nobody had made before.
        memory: bytes of its pipelines, as estimated, and of its constants.
    """

    def __init__(self, program: Program, binder: Binder):
        self.program = program
        self.temporary_size, self.persistent_size = program.temporary_size, program.persistent_size
        self._binder = binder
        binder.check(program)
        start = time.perf_counter()
        self._constants = self._uploaded(program.constants)
        uploaded = time.perf_counter()
        # The driver translates first what runs first.
        kernels = (*program.initialization, *program.kernels)
        pipelines, self.new = binder.pipelines.get_all(program.operator, kernels, program.immediates)
        texts = {kernel.wgsl for kernel in kernels}
        self.memory = sum(map(binder.pipelines.size_of, texts)) + sum(map(len, program.constants))
        compiled, count = list(zip(kernels, pipelines, strict=True)), len(program.initialization)
        self._initialization, self._kernels = compiled[:count], compiled[count:]
        self._made = time.perf_counter()
        self._timings = replace(program.timings, driver=self._made - uploaded, upload=uploaded - start)
        self._translation: tuple[GpuQueue, int] | None = None

    def bind(self, resources: Resources) -> Sequence[Work]:
        """Return the dispatches of one execution on these resources. Raises as ``Binder.bind``."""
        return self._bound(self._kernels, resources)

    def bind_initialization(self, resources: Resources) -> Sequence[Work]:
        """Return the dispatches that fill the persistent resource. Raises as ``Binder.bind``."""
        return self._bound(self._initialization, resources)

    @property
    def timings(self) -> Timings:
        """How long making it took. Waits for ``translated_by`` once, and counts how long, if that is under way."""
        if self._translation is not None:
            (queue, serial), self._translation = self._translation, None
            if not queue.is_done(serial):
                queue.wait(serial)
                self._timings = replace(self._timings, driver=self._timings.driver + time.perf_counter() - self._made)
        return self._timings

    def translated_by(self, queue: GpuQueue, serial: int) -> None:
        """Note the submission within which the driver translates pipelines that it has not translated before."""
        self._translation = queue, serial

    def _bound(self, kernels: Sequence[tuple[Kernel, Any]], resources: Resources) -> Sequence[Work]:
        bind, program = self._binder.bind, self.program
        resources = replace(resources, constants=self._constants) if self._constants else resources
        return tuple(
            bind(program.operator, kernel, pipeline, resources, program.immediates) for kernel, pipeline in kernels
        )

    def _uploaded(self, constants: Sequence[bytes]) -> tuple[Range[GpuBuffer], ...]:
        """Return where the data of the program lie: in one buffer that lives as long as the executable."""
        if not constants:
            return ()
        starts = [0, *itertools.accumulate(aligned(len(data)) for data in constants)]
        buffer = self._binder.allocator.create(starts[-1], f"{self.program.operator} constants")
        weakref.finalize(self, self._binder.allocator.destroy, buffer)
        for start, data in zip(starts, constants, strict=False):
            self._binder.context.queue.write_buffer(buffer.wgpu, start, data)
        return tuple(Range(buffer, start, len(data)) for start, data in zip(starts, constants, strict=False))


def _resource(slot: Slot, resources: Resources) -> Range | None:
    match slot.role:
        case Role.INPUT:
            return resources.inputs[slot.index] if slot.index < len(resources.inputs) else None
        case Role.OUTPUT:
            return resources.outputs[slot.index] if slot.index < len(resources.outputs) else None
        case Role.TEMPORARY:
            return resources.temporary
        case Role.PERSISTENT:
            return resources.persistent
        case Role.CONSTANT:
            return resources.constants[slot.index]
