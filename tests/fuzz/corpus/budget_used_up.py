"""A device whose memory budget is used up refuses an operator's buffers, and works once memory is released."""

from tests.fuzz.devices import check_usable, open_device


def replay(monitor):
    device = open_device(monitor.adapter, memory_budget=4096)
    buffer = monitor.call(device.create_buffer, 4096)
    refused = monitor.call(device.create_buffer, 4)
    monitor.check(type(refused.error).__name__ == "OutOfMemory", "accepted", "Device.create_buffer", repr(refused))
    buffer.release()
    check_usable(device, monitor)
    device.remove()
