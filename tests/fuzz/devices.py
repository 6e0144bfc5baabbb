"""Devices of targets, and whether they still work."""

from __future__ import annotations

import functools
import warnings

import numpy as np

from dmlgpu import DataType, Device, TensorDesc, descs, evaluate
from tests.fuzz.monitor import Monitor, Refused

ROW = TensorDesc(DataType.INT32, (1, 1, 1, 4))
SUM = descs.ElementWiseAdd(a_tensor=ROW, b_tensor=ROW, output_tensor=ROW)


def open_device(adapter: str, **options: object) -> Device:
    """A new device; a software adapter is not announced.

    Args:
        adapter: numpy, gpu (the default one) or what ``Device`` takes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Device(None if isinstance(adapter, str) and adapter == "gpu" else adapter, **options)  # type: ignore[arg-type]


@functools.cache
def shared_device(adapter: str) -> Device:
    """The device of a process for targets that make no devices of their own."""
    return open_device(adapter)


def check_usable(device: Device, monitor: Monitor) -> None:
    """Note a finding unless a device that is there computes a sum."""
    if device.removed_reason is not None:
        monitor.note("device lost", "device", device.removed_reason)
        shared_device.cache_clear()
        return
    arrays = [np.arange(4, dtype=np.int32).reshape(ROW.sizes)] * 2
    result = monitor.call(evaluate, SUM, arrays, device)
    right = not isinstance(result, Refused) and result[0].ravel().tolist() == [0, 2, 4, 6]
    monitor.check(right, "device unusable", "evaluate", repr(result))
