"""DirectML's whole life cycle on every adapter, what its executor rejects, and devices that wgpu brings."""

import pytest
import wgpu

from dmlgpu import (
    BindingError,
    Buffer,
    BufferBinding,
    DataType,
    Device,
    DeviceRemoved,
    InvalidArgument,
    OutOfMemory,
    TensorDesc,
    descs,
)
from dmlgpu.runtime.wgpu.adapter import wgpu_adapter
from tests.life_cycle import ROW, LifeCycle, bound, compile_operator, floats, initialization, record, row, subtract

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device(adapter):
    return Device(adapter)


class TestLifeCycle(LifeCycle):
    """On every adapter of the machine."""


def test_removal(adapter):
    device = Device(adapter)
    compiled = compile_operator(device, subtract())
    buffer = device.create_buffer(16)
    table = bound(device, compiled, [buffer, buffer], [device.create_buffer(16)])
    command_list = record(device, initialization(device, compiled), (compiled, table))
    device.remove("enough")
    for call in (lambda: device.queue.execute([command_list]), buffer.read, lambda: device.create_buffer(4)):
        with pytest.raises(DeviceRemoved) as caught:
            call()
        assert str(caught.value) == f"device on '{device.adapter}' is removed: enough; create a new device"
    buffer.release()


def test_a_wgpu_device_that_its_owner_destroyed(adapter):
    theirs = wgpu_adapter(adapter).request_device_sync()
    device = Device.from_wgpu(theirs)
    buffer = device.create_buffer(16)
    theirs.destroy()
    with pytest.raises(DeviceRemoved):
        for _ in range(2):
            buffer.write(row(1, 2, 3, 4))
            buffer.read()
    assert device.removed_reason is not None


def test_memory_budget(adapter):
    device = Device(adapter, memory_budget=1000)
    with pytest.raises(OutOfMemory, match=r"^buffer 'weights': 1,004 bytes exceed the memory budget of 1,000 bytes"):
        device.create_buffer(1004, "weights")
    with device.create_buffer(1000):
        pass
    device.create_buffer(1000)


@pytest.fixture
def shared(adapter):
    """A wgpu device with another owner."""
    return wgpu_adapter(adapter).request_device_sync()


def test_from_wgpu(shared):
    device = Device.from_wgpu(shared)
    assert device.parent is shared
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    memory = shared.create_buffer(size=64, usage=usage)
    buffer = Buffer.from_wgpu(device, memory, "theirs")
    assert (buffer.size, buffer.name) == (64, "theirs")
    shared.queue.write_buffer(memory, 0, row(9, 8, 7, 6))
    compiled = compile_operator(device, subtract())
    table = bound(device, compiled, [buffer, BufferBinding(buffer, 16)], [BufferBinding(buffer, 32)])
    device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
    assert floats(buffer, 32) == [9, 8, 7, 6]
    buffer.release()
    assert bytes(shared.queue.read_buffer(memory, 32, 16)) == row(9, 8, 7, 6).tobytes()
    device.remove()
    assert bytes(shared.queue.read_buffer(memory, 32, 16)) == row(9, 8, 7, 6).tobytes()


def test_two_buffers_over_one_memory_are_one_to_hazards(shared):
    device = Device.from_wgpu(shared)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    memory = shared.create_buffer(size=64, usage=usage)
    first, two = Buffer.from_wgpu(device, memory), Buffer.from_wgpu(device, memory)
    compiled = compile_operator(device, subtract())
    table = bound(device, compiled, [first, first], [BufferBinding(two, 0)])
    record(device, (compiled, table))
    table.bind_inputs([BufferBinding(first, 32), first])
    table.bind_outputs([BufferBinding(two, 32)])
    record(device, (compiled, table))
    table.bind_inputs([first, first])
    table.bind_outputs([BufferBinding(two, 0)])
    with pytest.raises(InvalidArgument, match="one buffer cannot be both source and destination"):
        device.create_command_list().copy_buffer(first, 0, two, 32, 16)
    compiled = compile_operator(device, descs.ElementWiseIdentity(input_tensor=ROW, output_tensor=ROW))
    table = bound(device, compiled, [first], [BufferBinding(two, 0)])
    record(device, (compiled, table))
    wide = TensorDesc(DataType.FLOAT32, (1, 1, 1, 8))
    compiled = compile_operator(device, descs.ElementWiseIdentity(input_tensor=wide, output_tensor=wide))
    table = bound(device, compiled, [first], [BufferBinding(two, 16)])
    with pytest.raises(BindingError, match="in-place execution needs identical ranges"):
        record(device, (compiled, table))


def test_a_wgpu_buffer_must_be_usable(shared):
    device = Device.from_wgpu(shared)
    memory = shared.create_buffer(size=64, usage=wgpu.BufferUsage.COPY_SRC)
    with pytest.raises(InvalidArgument, match="usage must include STORAGE"):
        Buffer.from_wgpu(device, memory)
