"""Values of many characters, or of more digits than Python prints, in messages: these quote a part of them."""

from dmlgpu import BufferBinding, DataType, TensorDesc, descs
from dmlgpu.catalog.enums import ExecutionFlags
from tests.fuzz.devices import SUM, open_device
from tests.fuzz.monitor import Refused

VALUES = ("x" * 100_000, [1] * 10_000, 10**4400, -(10**4400))


def replay(monitor):
    device = open_device(monitor.adapter)
    buffer = device.create_buffer(64)
    operator = device.create_operator(SUM)
    for value in VALUES:
        for field in ("data_type", "sizes", "strides", "flags", "total_tensor_size_in_bytes"):
            monitor.call(TensorDesc, **{"data_type": DataType.INT32, "sizes": (4,), field: value})
        monitor.call(SUM.replace, a_tensor=value)
        monitor.call(descs.Gather, **dict.fromkeys(descs.Gather.field_names, value))
        monitor.call(device.create_buffer, value)
        monitor.call(device.compile_operator, operator, value)
        monitor.call(device.compile_operator, operator, ExecutionFlags.NONE)
        monitor.call(BufferBinding, buffer, value)
        monitor.call(buffer.read, value)
        monitor.call(open_device, monitor.adapter, feature_level=value)
    for field in ("sizes", "strides"):
        wide = monitor.call(TensorDesc, **{"data_type": DataType.INT32, "sizes": (1, 4), field: (10**4400, 1)})
        monitor.check(isinstance(wide, Refused), "accepted", "TensorDesc")
