"""Devices shared within a process: the default device, and devices opened by name."""

from __future__ import annotations

import threading

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.adapters import choose
from dmlgpu.runtime.device import Device

_DEFAULT_LOCK = threading.Lock()
_default: Device | None = None
_shared: dict[str, Device] = {}  # bounded by the adapters of the machine


def default_device() -> Device:
    """Return the default device, one per process; a new one if it was removed.

    The environment variable DMLGPU_ADAPTER selects its adapter, see ``adapters.choose``.
    """
    global _default  # noqa: PLW0603 - the cache is the point
    with _DEFAULT_LOCK:
        if _default is None or _default.removed_reason is not None:
            _default = Device()
        return _default


def as_device(caller: str, device: Device | str | None) -> Device:
    """Return the device for a ``device`` argument: None is ``default_device()``, a string the device of the first
    matching adapter (see ``adapters.choose``), opened once per process.

    Raises:
        InvalidArgument: If it is neither a Device nor a string nor None; the message names the caller.
        AdapterNotFound: If no adapter matches.
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


def shared_devices() -> list[Device]:
    """Return the devices opened by ``as_device``, without removed ones."""
    with _DEFAULT_LOCK:
        return [device for device in _shared.values() if device.removed_reason is None]
