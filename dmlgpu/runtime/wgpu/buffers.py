"""Buffers: allocation within the adapter's limits and a memory budget."""

from __future__ import annotations

import functools
from typing import Any

import wgpu

from dmlgpu.common.errors import InvalidArgument, InvalidState, OutOfMemory
from dmlgpu.common.memory import check_budget, host_budget
from dmlgpu.runtime.executor import WORD_BYTES
from dmlgpu.runtime.wgpu.context import Context

_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_USAGE_NAMES = (
    "MAP_READ",
    "MAP_WRITE",
    "COPY_SRC",
    "COPY_DST",
    "UNIFORM",
    "VERTEX",
    "INDEX",
    "INDIRECT",
    "QUERY_RESOLVE",
)


class GpuBuffer:
    """A buffer on the device.

    Attributes:
        wgpu: The wgpu buffer.
        size: Size in bytes.
        label: Name in messages.
        charge: Bytes charged to the memory budget.
        owned: Whether destroying it destroys the wgpu buffer.
        mappable: Whether its memory can be read in place.
        destroyed: Whether its memory was freed.
    """

    __slots__ = ("charge", "destroyed", "label", "mappable", "owned", "size", "wgpu")

    def __init__(self, buffer: Any, size: int, label: str, *, charge: int, owned: bool, mappable: bool):
        self.wgpu, self.size, self.label, self.charge = buffer, size, label, charge
        self.owned, self.mappable = owned, mappable
        self.destroyed = False

    def check(self, what: str) -> None:
        """Raise InvalidState if the memory was freed: submitting such a buffer would abort the process."""
        if self.destroyed:
            raise InvalidState(f"{what}: buffer {self.label!r} was released")

    def check_maker(self, what: str) -> None:
        """Raise InvalidState if another creator mapped or destroyed the buffer: submitting it would abort the
        process."""


class WrappedBuffer(GpuBuffer):
    """A buffer of another creator, which may destroy or map it at any time."""

    __slots__ = ("_context", "_layout")

    def __init__(self, buffer: wgpu.GPUBuffer, label: str, context: Context):
        super().__init__(buffer, buffer.size, label, charge=0, owned=False, mappable=False)
        self._context = context
        self._layout = context.device.create_bind_group_layout(
            entries=[{"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}}]
        )

    def check_maker(self, what: str) -> None:
        """Raise InvalidState if the creator mapped or destroyed the buffer."""
        if self.wgpu.map_state != "unmapped":
            raise InvalidState(f"{what}: wrapped buffer {self.label!r} is mapped; its maker must unmap it first")
        resource = {"buffer": self.wgpu, "offset": 0, "size": WORD_BYTES}
        with self._context.reporting(what):  # no call queries destruction, and this one rejects destroyed buffers
            self._context.device.create_bind_group(layout=self._layout, entries=[{"binding": 0, "resource": resource}])


class Guard:
    """Buffers of some work: checked again only after a buffer of the device was destroyed, wrapped ones each time,
    because their destruction is not reported.

    Attributes:
        wrapped: Buffers of other creators.
        epoch: Epoch of the allocator at the last check; -1 if each submission needs one.
    """

    __slots__ = ("buffers", "epoch", "wrapped")

    def __init__(self, buffers: tuple[GpuBuffer, ...], epoch: int):
        self.buffers = buffers
        self.wrapped = tuple([buffer for buffer in buffers if not buffer.owned])
        self.epoch = -1 if self.wrapped else epoch

    def check(self, epoch: int, what: str) -> None:
        """Raise InvalidState if a buffer is gone."""
        for buffer in self.buffers:
            buffer.check(what)
        self.epoch = -1 if self.wrapped else epoch


class Allocator:
    """Allocates buffers and counts their bytes.

    Args:
        context: The device.
        budget: Maximum bytes at a time; None means ``memory.host_budget`` for software adapters, whose drivers
            overcommit, and no limit for others, which report it.

    Attributes:
        allocated: Bytes allocated.
        epoch: Number of buffers destroyed so far.
        has_enqueued: Whether the queue has work that is not submitted, whose buffers must live until it is.
    """

    def __init__(self, context: Context, budget: int | None = None):
        self._context = context
        self.budget = host_budget() if budget is None and context.info.is_software else budget
        self.allocated = 0
        self.epoch = 0
        self.has_enqueued = False
        self._doomed: list[wgpu.GPUBuffer] = []
        self._mappable = context.target.has("mappable-primary-buffers")  # of software adapters alone

    def create(self, size: int, label: str, charged: bool = True) -> GpuBuffer:
        """Return a zeroed buffer of ``size`` bytes. Buffers of this package itself are not charged to the budget.

        Raises:
            OutOfMemory: If the adapter's limit, the budget or the driver's memory is exceeded.
        """
        context = self._context
        usage = _USAGE | (wgpu.BufferUsage.MAP_READ if self._mappable else 0)
        with context.lock:
            context.deferred.run()
            context.check()
            self._check_size(size, label, charged)
            with context.reporting(f"buffer {label!r} of {size:,} bytes"):
                buffer = context.device.create_buffer(label=label, size=size, usage=usage)
            charge = size if charged else 0
            self.allocated += charge
        return GpuBuffer(buffer, size, label, charge=charge, owned=True, mappable=self._mappable)

    def wrap(self, buffer: wgpu.GPUBuffer, label: str) -> GpuBuffer:
        """Wrap an existing buffer of this device.

        Raises:
            InvalidArgument: If it is not a wgpu buffer, its usage lacks STORAGE, or it belongs to another device.
        """
        if not isinstance(buffer, self._context.library.package.GPUBuffer):
            raise InvalidArgument(f"Buffer.from_wgpu: wgpu_buffer must be a GPUBuffer, got {type(buffer).__name__}")
        if not buffer.usage & wgpu.BufferUsage.STORAGE:
            raise InvalidArgument(f"buffer {label!r}: usage must include STORAGE, got {_usage_text(buffer.usage)}")
        if buffer._device is not self._context.device:
            raise InvalidArgument(f"buffer {label!r}: belongs to another wgpu device")
        with self._context.lock, self._context.reporting(f"buffer {label!r}"):
            return WrappedBuffer(buffer, label, self._context)

    def destroy(self, buffer: GpuBuffer) -> None:
        """Free a buffer without waiting for another thread. Idempotent."""
        self._context.deferred.add(functools.partial(self._destroy, buffer))

    def _destroy(self, buffer: GpuBuffer) -> None:
        if buffer.destroyed:
            return
        buffer.destroyed = True
        self.epoch += 1
        self.allocated -= buffer.charge
        if not buffer.owned:
            return
        if self.has_enqueued:  # work that may use it
            self._doomed.append(buffer.wgpu)
        else:
            buffer.wgpu.destroy()

    def sent(self) -> None:
        """Destroy released buffers that were needed by enqueued work, now that it is submitted."""
        self.has_enqueued = False
        while self._doomed:
            self._doomed.pop().destroy()

    def _check_size(self, size: int, label: str, charged: bool) -> None:
        limit = self._context.limits["max-buffer-size"]
        if size > limit:
            raise OutOfMemory(
                f"buffer {label!r}: {size:,} bytes exceed the {limit:,} that {self._context.info} allows in one buffer"
            )
        if charged:
            check_budget(label, size, self.allocated, self.budget)


def _usage_text(usage: int) -> str:
    names = [name for name in _USAGE_NAMES if usage & getattr(wgpu.BufferUsage, name)]
    return " | ".join(names) or "none"
