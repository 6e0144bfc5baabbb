"""Offsets and sizes of NumPy's narrow integers: sums wrapped around, and ranges beyond a buffer were accepted."""

import numpy as np

from dmlgpu import BufferBinding, DataType, InvalidArgument, TensorDesc, descs
from tests.fuzz.devices import check_usable, open_device
from tests.fuzz.monitor import Refused


def replay(monitor):
    device = open_device(monitor.adapter, memory_budget=4096)
    buffer, other = device.create_buffer(64), device.create_buffer(1024)
    beyond = [
        monitor.call(buffer.write, bytes(8), np.uint8(252)),
        monitor.call(buffer.read, np.uint8(252), 8),
        monitor.call(device.create_command_list().copy_buffer, other, 0, buffer, np.uint8(252), np.uint8(8)),
    ]
    row = TensorDesc(DataType.INT32, (1, 1, 1, 8))
    identity = descs.ElementWiseIdentity(input_tensor=row, output_tensor=row)
    compiled = device.compile_operator(device.create_operator(identity))
    table = device.create_binding_table(compiled)
    beyond.append(monitor.call(table.bind_inputs, [BufferBinding(buffer, np.uint8(240), np.uint8(32))]))
    for outcome in beyond:
        refused = isinstance(outcome, Refused) and isinstance(outcome.error, InvalidArgument)
        monitor.check(refused, "accepted", "check_range", repr(outcome))
    small_buffer = monitor.call(device.create_buffer, np.uint8(200))
    monitor.check(not isinstance(small_buffer, Refused), "refused", "Device.create_buffer", repr(small_buffer))
    rest = monitor.call(other.read, np.uint8(200))
    monitor.check(getattr(rest, "size", 0) == 824, "wrong result", "Buffer.read", repr(rest))
    check_usable(device, monitor)
    device.remove()
