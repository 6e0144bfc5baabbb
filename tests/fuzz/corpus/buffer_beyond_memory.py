"""Buffers of sizes that no machine has."""

from dmlgpu import DmlError
from tests.fuzz.devices import check_usable, open_device
from tests.fuzz.monitor import Refused


def replay(monitor):
    device = open_device(monitor.adapter)
    for size in (2**40, 2**62, 2**63 - 4, 2**63, 2**64, 2**70):
        buffer = monitor.call(device.create_buffer, size)
        monitor.check(isinstance(buffer, Refused) and isinstance(buffer.error, DmlError), "accepted", "create_buffer")
    check_usable(device, monitor)
