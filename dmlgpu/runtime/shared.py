"""Devices shared within a process: the default device, and devices opened by name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import Choice, choose
from dmlgpu.runtime.device import Device

_LOCK = threading.Lock()
_shared: dict[str, Device] = {}  # bounded by the adapters of the machine


class _Default:
    """Adapters and devices that calls without a device use."""

    by_environment: Device | None = None
    by_program: Device | AdapterInfo | None = None


_in_context: ContextVar[Device | AdapterInfo | None] = ContextVar("dmlgpu_device", default=None)


def default_device() -> Device:
    """Return the device that functions use if neither their tensors nor ``device`` name one.

    It is the one of the innermost ``dmlgpu.device`` block, else of ``set_default_device``, else of the adapter that
    the environment variable DMLGPU_ADAPTER names, else of the first hardware adapter (see ``adapters.choose``). While
    ``dmlgpu.compile`` traces a function, it is the device that the function is compiled for.

    Returns:
        The device; one per process and adapter, and a new one after its removal, unless a ``Device`` was chosen.

    Raises:
        AdapterNotFound: If DMLGPU_ADAPTER matches no adapter.
    """
    chosen = _in_context.get() or _Default.by_program
    if chosen is not None:
        return chosen if isinstance(chosen, Device) else _device_of(chosen)
    device = _Default.by_environment
    if device is None or device.removed_reason is not None:
        device = _Default.by_environment = _device_of(choose())
    return device


def set_default_device(device: Device | Choice) -> None:
    """Choose the device that functions use if neither their tensors nor ``device`` name one, in all threads.

    Args:
        device: Device, part of an adapter's name, its index in ``dmlgpu.adapters()``, an ``AdapterInfo``, or None for
            the choice of the environment variable DMLGPU_ADAPTER.

    Raises:
        InvalidArgument: If ``device`` is of another type.
        AdapterNotFound: If no adapter matches.

    See also:
        ``dmlgpu.device``, which chooses for a block of code.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.set_default_device("numpy")
        >>> dmlgpu.default_device().adapter.name
        'numpy'
        >>> dmlgpu.set_default_device(None)
    """
    _Default.by_program = None if device is None else _chosen("set_default_device", device)


@contextmanager
def device(device: Device | Choice) -> Iterator[Device]:
    """Choose the default device inside a ``with`` block, or in a function that this decorates.

    The choice holds in the current thread or asyncio task. Blocks nest.

    Args:
        device: Device, part of an adapter's name, its index in ``dmlgpu.adapters()``, an ``AdapterInfo``, or None for
            the adapter of the environment variable DMLGPU_ADAPTER.

    Yields:
        The device.

    Raises:
        InvalidArgument: If ``device`` is of another type.
        AdapterNotFound: If no adapter matches.

    Example:
        >>> import dmlgpu
        >>> with dmlgpu.device("numpy"):
        ...     dmlgpu.Tensor([1.0, 2.0]).device.adapter.name
        'numpy'
    """
    token = _in_context.set(_chosen("device", device))
    try:
        yield default_device()
    finally:
        _in_context.reset(token)


def _chosen(caller: str, device: Device | Choice) -> Device | AdapterInfo:
    """Return a device, or the adapter that a name, an index or None stands for."""
    if isinstance(device, Device):
        return device
    if device is not None and not isinstance(device, str | AdapterInfo) and as_index(device) is None:
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name or index of an adapter, or None, got {shown(device)}"
        )
    return choose(device)


def as_device(caller: str, device: Device | str | None) -> Device:
    """Return the device that a ``device`` argument stands for: None is ``default_device()``, a string the device of the
    first adapter that it matches (see ``adapters.choose``), one per process and adapter.

    Raises:
        InvalidArgument: If it is neither a device, a string nor None; names the caller.
        AdapterNotFound: If no adapter matches the string.
    """
    if device is None:
        return default_device()
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name of an adapter or None, got {type(device).__name__}"
        )
    return _device_of(choose(device))


def _device_of(info: AdapterInfo) -> Device:
    """Return the device of an adapter that all names share, a new one after its removal."""
    with _LOCK:
        device = _shared.get(str(info))
        if device is None or device.removed_reason is not None:
            device = _shared[str(info)] = Device(info)
        return device


def other_device(own: Device, other: Device) -> str:
    """Return a device as messages name it that should have been ``own``: by its adapter, or as a second object."""
    if other.adapter == own.adapter:
        return "another Device object of that adapter, which has memory of its own"
    return f"'{other.adapter}'"


def shared_devices() -> list[Device]:
    """Return the devices opened by ``as_device``, without removed ones."""
    with _LOCK:
        return [device for device in _shared.values() if device.removed_reason is None]
