"""Names, keys of private data and lists of features that are of any kind."""

import numpy as np

from tests.fuzz.devices import check_usable, open_device

VALUES = (np.array([1, 2]), np.array([]), 10**4400, np.uint8(3), b"x", "\ud800", "a\0b", {}, 1.5)


def replay(monitor):
    device = open_device(monitor.adapter)
    fence = device.create_fence()
    for value in VALUES:
        monitor.call(device.create_buffer, 64, value)
        for device_object in (fence, device):
            monitor.call(type(device_object).name.fset, device_object, value)
            monitor.call(repr, device_object)
            monitor.call(device_object.set_private_data, value, 1)
            monitor.call(device_object.get_private_data, value)
        device.name = fence.name = None
        monitor.call(open_device, monitor.adapter, disabled_features=value)
        monitor.call(open_device, monitor.adapter, memory_budget=value)
        monitor.call(device.evict, value)
    check_usable(device, monitor)
