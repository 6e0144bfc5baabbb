"""Timeouts beyond what the clock can tell, and that are no numbers."""

import numpy as np

from tests.fuzz.devices import open_device

VALUES = (2**64, 1e300, float("inf"), float("nan"), -1, "1", np.array([1, 2]), np.datetime64("2020-01-01"), 10**4400)


def replay(monitor):
    device = open_device(monitor.adapter)
    fence = device.create_fence()
    device.queue.signal(fence, 1)
    for value in VALUES:
        monitor.call(fence.wait, 1, value)
        # A value that was never signaled is waited for, but for a second at most.
        monitor.call(fence.wait, value, 0.01)
