"""Streams and events of the device, which has one queue: ``torch.Stream``, ``torch.Event`` and ``torch.accelerator``.

PyTorch's own ones neither wait nor measure on a device written in Python, so `torch.Stream` and `torch.Event` are
replaced by classes that return these for the device, and PyTorch's for others.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.internals import accelerator
from dmlgpu.runtime.commands import Fence

_Stream: Any = torch.Stream
_Event: Any = torch.Event


class Stream(_Stream):
    """The queue of an adapter: work runs in the order of the calls, so all streams of a device are equal.

    Args:
        device: Device, name or index; defaults to the current one.
        priority: Ignored.
    """

    _index: int

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        index = adapters.index_from(device)
        stream: Stream = _Stream.__new__(cls, adapters.torch_device(index), priority=priority)
        stream._index = index  # PyTorch's has that of the first device
        return stream

    @property
    def device(self) -> torch.device:
        """Device of the queue."""
        return adapters.torch_device(self._index)

    @property
    def device_index(self) -> int:
        """Index of the device."""
        return self._index

    def query(self) -> bool:
        """Return whether all work that was called before is done."""
        return self.record_event().query()

    def synchronize(self) -> None:
        """Wait until all work that was called before is done."""
        adapters.device_of(self._index).synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, by default a new one, and return it."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Let later work begin after an event."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Let later work begin after that of another stream."""
        if stream != self:
            stream.synchronize()

    def __enter__(self) -> Stream:
        self._previous = adapters.current_index()
        adapters.set_current(self._index)
        return self

    def __exit__(self, *_: object) -> None:
        adapters.set_current(self._previous)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._index == self._index

    def __ne__(self, other: object) -> bool:  # PyTorch's compares the first device
        return not self == other

    def __hash__(self) -> int:
        return hash((Stream, self._index))

    def __repr__(self) -> str:
        return f"torch.Stream device_type={adapters.NAME}, device_index={self._index}, stream_id={self.stream_id}"


class Event(_Event):
    """A point in the work of a device.

    Args:
        device: Device, name or index; defaults to the current one when the event is recorded.
        enable_timing: Whether `elapsed_time` takes the event. To record such an event waits for all work before it.
        blocking: Ignored; waiting does not use the CPU.
        interprocess: Must be False.

    Raises:
        RuntimeError: If `interprocess` is True.
    """

    _is_timed: bool
    _index: int | None
    _fence: Fence | None
    _time: float | None

    def __new__(
        cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        if interprocess:
            raise RuntimeError("events of the dml device are not shared between processes")
        where = adapters.NAME if device is None else adapters.torch_device(adapters.index_from(device))
        event: Event = _Event.__new__(cls, where, enable_timing=enable_timing, blocking=blocking)
        event._is_timed, event._fence, event._time = enable_timing, None, None
        event._index = None if device is None else adapters.index_from(device)
        return event

    @property
    def device(self) -> torch.device:
        """Device of the latest record."""
        return torch.device(adapters.NAME) if self._index is None else adapters.torch_device(self._index)

    def record(self, stream: Any = None) -> None:
        """Record the work that was called before, of a stream or of the current device."""
        index = adapters.current_index() if stream is None else stream.device_index
        device = adapters.device_of(index)
        if self._is_timed:
            device.synchronize()
            self._time = time.perf_counter()
        self._index, self._fence = index, device.create_fence()
        device.queue.signal(self._fence, 1)

    def wait(self, stream: Any = None) -> None:
        """Let later work of a stream, or of the current device, begin after the recorded work."""
        index = adapters.current_index() if stream is None else stream.device_index
        if index != self._index:
            self.synchronize()

    def query(self) -> bool:
        """Return whether the recorded work is done; True if none was recorded."""
        return self._fence is None or self._fence.completed_value == 1

    def synchronize(self) -> None:
        """Wait until the recorded work is done."""
        if self._fence is not None:
            self._fence.wait(1)

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds between two recorded events.

        Args:
            end_event: The later event, of the device.

        Raises:
            ValueError: If an event was created without `enable_timing`, or was not recorded.
        """
        if not (self._is_timed and isinstance(end_event, Event) and end_event._is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3

    def __repr__(self) -> str:
        return f"torch.Event device={self.device}, enable_timing={self._is_timed}"


class StreamContext:
    """Context in which a stream's device is the current one.

    Args:
        stream: The stream; None changes nothing.
    """

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def current_stream(device: Any = None) -> Stream:
    """Return the stream of a device."""
    return Stream(device)


def set_stream(stream: Stream | None) -> None:
    """Make a stream's device the current one; None changes nothing."""
    if stream is not None:
        adapters.set_current(stream.device_index)


def _replaced(original: Any, ours: Any) -> Any:
    """Return a subclass of a class of PyTorch that makes objects of the device, or of the original class."""

    class Dispatching(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not replacement:
                return super().__call__(*args, **kwargs)
            device = args[0] if args else kwargs.get("device")
            if "stream_id" not in kwargs and (accelerator() if device is None else _device(device)).type == "dml":
                return ours(*args, **kwargs)
            return original(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original) if cls is replacement else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return issubclass(subclass, original) if cls is replacement else super().__subclasscheck__(subclass)

    replacement = Dispatching(original.__name__, (original,), {"__module__": "torch", "__doc__": original.__doc__})
    return replacement


def _device(device: Any) -> Any:
    return accelerator() if isinstance(device, int) else torch.device(device)


def register() -> None:
    """Replace ``torch.Stream`` and ``torch.Event``."""
    torch.Stream = _replaced(_Stream, Stream)  # type: ignore[misc]
    torch.Event = _replaced(_Event, Event)  # type: ignore[misc]
