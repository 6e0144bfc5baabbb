"""Devices shared within a process: the default one, and those opened by an adapter's name."""

from __future__ import annotations

import threading

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.adapters import choose
from dmlgpu.runtime.device import Device

_DEFAULT_LOCK = threading.Lock()
_default: Device | None = None
_shared: dict[str, Device] = {}  # bounded by the adapters of the machine


def default_device() -> Device:
    """Return the default device: one per process, a new one after its removal.

    The environment variable DMLGPU_ADAPTER chooses its adapter, see ``adapters.choose``.
    """
    global _default  # noqa: PLW0603 - the cache is the point
    with _DEFAULT_LOCK:
        if _default is None or _default.removed_reason is not None:
            _default = Device()
        return _default


def as_device(caller: str, device: Device | str | None) -> Device:
    """Return the device that a ``device`` argument stands for: None is ``default_device()``, a text the device of the
    first adapter that it matches (see ``adapters.choose``), one per process and adapter.

    Raises:
        InvalidArgument: neither a device nor a text nor None; names the caller.
        AdapterNotFound: no adapter matches the text.
    """
    if device is None:
        return default_device()
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise InvalidArgument(
            f"{caller}: device must be a Device, the name of an adapter or None, got {type(device).__name__}"
        )
    info = choose(device)
    with _DEFAULT_LOCK:
        shared = _shared.get(str(info))
        if shared is None or shared.removed_reason is not None:
            shared = _shared[str(info)] = Device(info)
        return shared


def other_device(own: Device, other: Device) -> str:
    """Return a device as messages name it that should have been ``own``: by its adapter, or as a second object."""
    if other.adapter == own.adapter:
        return "another Device object of that adapter, which has memory of its own"
    return f"'{other.adapter}'"


def shared_devices() -> list[Device]:
    """Return the devices that ``as_device`` opened by the names of adapters, without removed ones."""
    with _DEFAULT_LOCK:
        return [device for device in _shared.values() if device.removed_reason is None]
