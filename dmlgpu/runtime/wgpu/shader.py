"""User-written compute shaders: compiled, bound to buffers, ready for the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import wgpu

from dmlgpu.common.errors import BindingError, NotSupported, ShaderError
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.wgpu import releases
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer, Guard
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.errors import reason_of
from dmlgpu.runtime.wgpu.queue import CopyWork, KernelWork, Work

_UNIFORM_BYTES = 16
"""Sizes of uniform buffers are multiples of this, as WGSL's structures are."""


class GpuShader:
    """A compute pipeline and the layout of its bindings, all in group 0 (see ``ShaderBackend.compile_shader``)."""

    def __init__(
        self,
        context: Context,
        allocator: Allocator,
        *,
        wgsl: str,
        entry_point: str,
        constants: Mapping[str, float],
        kinds: Mapping[int, str],
        label: str,
    ):
        self._context, self._allocator, self._kinds, self._label = context, allocator, dict(kinds), label
        device = context.device
        entries = [
            {"binding": binding, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for binding, kind in sorted(kinds.items())
        ]
        with context.lock:
            context.check()
            context.deferred.run()
            try:
                self._group_layout = device.create_bind_group_layout(label=label, entries=entries)
                layout = device.create_pipeline_layout(label=label, bind_group_layouts=[self._group_layout])
                module = context.library.create_module(device, label, wgsl)
                compute = {"module": module, "entry_point": entry_point, "constants": dict(constants)}
                pipeline = device.create_compute_pipeline(label=label, layout=layout, compute=compute)
            except wgpu.GPUValidationError as error:
                if "is lost" in str(error):
                    raise context.translate(error, label) from error
                raise ShaderError(f"{label} does not compile on {context.info}: {_compiler_message(error)}") from error
            except wgpu.GPUError as error:
                raise context.translate(error, label) from error
            self._pipeline = releases.adopt(context, pipeline)

    def bind(self, ranges: Mapping[int, Range[GpuBuffer]], groups: tuple[int, int, int]) -> Sequence[Work]:
        """Return one dispatch, preceded by the copies that fill uniform buffers (see ``CustomShader.bind``)."""
        limit = self._context.target.max_workgroups_per_dimension
        if max(groups) > limit:
            raise NotSupported(
                f"{self._label}: thread groups must be at most {limit} along an axis on {self._context.info}, "
                f"got {list(groups)}"
            )
        copies: list[Work] = []
        entries, buffers = [], []
        with self._context.lock:
            self._context.check()
            for binding, bound in sorted(ranges.items()):
                buffer, offset, size = bound.buffer.wgpu, bound.offset, bound.size
                if self._kinds[binding] == "uniform":
                    uniform = self._uniform(size)
                    guard = Guard((bound.buffer,), -1)
                    copies.append(CopyWork(buffer, offset, uniform, 0, size, guard, f"constants of {self._label}"))
                    buffer, offset, size = uniform, 0, uniform.size
                else:
                    self._check_storage(binding, bound)
                    buffers.append(bound.buffer)
                entries.append({"binding": binding, "resource": {"buffer": buffer, "offset": offset, "size": size}})
            guard = Guard(tuple(buffers), self._allocator.epoch)
            guard.check(self._allocator.epoch, self._label)
            with self._context.reporting(self._label):
                group = self._context.device.create_bind_group(
                    label=self._label, layout=self._group_layout, entries=entries
                )
                releases.adopt(self._context, group)
        return (*copies, KernelWork(self._pipeline, group, None, *groups, guard, self._label))

    def _check_storage(self, binding: int, bound: Range[GpuBuffer]) -> None:
        alignment = self._context.limits["min-storage-buffer-offset-alignment"]
        if bound.offset % alignment:
            raise BindingError(
                f"{self._label}: binding {binding} must begin at a multiple of {alignment} bytes on "
                f"{self._context.info}, got byte {bound.offset}"
            )
        limit = self._context.target.max_binding_size
        if bound.size > limit:
            raise NotSupported(
                f"{self._label}: binding {binding} takes {bound.size:,} bytes, more than the {limit:,} that "
                f"{self._context.info} allows; split the tensors, for example along axis 0"
            )

    def _uniform(self, size: int) -> Any:
        limit = self._context.limits["max-uniform-buffer-binding-size"]
        rounded = -(-size // _UNIFORM_BYTES) * _UNIFORM_BYTES
        if rounded > limit:
            raise NotSupported(
                f"{self._label}: a uniform buffer of {rounded:,} bytes is larger than the {limit:,} that "
                f"{self._context.info} allows"
            )
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        with self._context.reporting(self._label):
            buffer = self._context.device.create_buffer(label=self._label, size=rounded, usage=usage)
        return releases.adopt(self._context, buffer)


def _compiler_message(error: Exception) -> str:
    """Return naga's whole report on a shader, with the source lines: they are the user's own."""
    return str(error).strip() or reason_of(error)
