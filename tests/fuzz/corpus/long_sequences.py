"""Sequences of millions of elements where a few are due are refused before they are copied."""

import time

from dmlgpu import DataType, TensorDesc
from tests.fuzz.devices import SUM, open_device


def replay(monitor):
    device = open_device(monitor.adapter)
    start = time.thread_time()
    for function, arguments in (
        (TensorDesc, (DataType.INT32, range(2**40))),
        (device.create_operator_initializer, (range(2**40),)),
        (device.queue.execute, (range(2**40),)),
        (lambda axes: SUM.replace(a_tensor=axes), (range(2**40),)),
    ):
        monitor.call(function, *arguments)
    monitor.check(time.thread_time() - start < 1, "slow", "long_sequences")
