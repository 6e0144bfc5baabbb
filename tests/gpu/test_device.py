"""DirectML's whole life cycle on every adapter; expected values by hand."""

import threading

import numpy as np
import pytest
import wgpu

import dmlgpu
from dmlgpu import (
    BindingError,
    Buffer,
    BufferArrayBinding,
    BufferBinding,
    DataType,
    Device,
    DeviceRemoved,
    ExecutionFlags,
    InvalidArgument,
    InvalidState,
    OutOfMemory,
    TensorDataTypeSupportQuery,
    TensorDesc,
    TensorFlags,
    descs,
)
from dmlgpu.gpu.adapter import wgpu_adapter

pytestmark = pytest.mark.gpu

ROW = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4))
OWNED = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4), flags=TensorFlags.OWNED_BY_DML)


@pytest.fixture(scope="module")
def device(adapter):
    return Device(adapter)


def subtract(a=ROW, b=ROW):
    return descs.ElementWiseSubtract(a_tensor=a, b_tensor=b, output_tensor=ROW)


def compile_operator(device, desc, flags=ExecutionFlags.NONE):
    return device.compile_operator(device.create_operator(desc), flags)


def floats(buffer, offset=0, count=4):
    return buffer.read(offset, 4 * count).view(np.float32).tolist()


def row(*values):
    return np.array(values, np.float32)


def record(device, *pairs):
    """A closed list of dispatches."""
    command_list, recorder = device.create_command_list(), device.create_command_recorder()
    for dispatchable, table in pairs:
        recorder.record_dispatch(command_list, dispatchable, table)
    command_list.close()
    return command_list


def initialization(device, compiled):
    """The initialisation of an operator without owned tensors."""
    initializer = device.create_operator_initializer([compiled])
    return initializer, device.create_binding_table(initializer)


def bound(device, compiled, inputs, outputs):
    table = device.create_binding_table(compiled)
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    size = compiled.binding_properties.temporary_resource_size
    table.bind_temporary_resource(device.create_buffer(size) if size else None)
    return table


def test_life_cycle(device):
    compiled = compile_operator(device, subtract(b=OWNED))
    constant, source, target = (device.create_buffer(64) for _ in range(3))
    persistent = device.create_buffer(compiled.binding_properties.persistent_resource_size)
    constant.write(row(1, 2, 3, 4), 16)
    source.write(row(10, 20, 30, 40))
    initializer = device.create_operator_initializer([compiled])
    table = device.create_binding_table(initializer)
    table.bind_inputs([BufferArrayBinding([None, BufferBinding(constant, 16)])])
    table.bind_outputs([persistent])
    first = record(device, (initializer, table))
    table.reset(compiled)
    table.bind_inputs([source, None])
    table.bind_outputs([BufferBinding(target, 48)])
    table.bind_persistent_resource(persistent)
    second = record(device, (compiled, table))
    fence = device.create_fence()
    device.queue.execute([first, second])
    device.queue.signal(fence, 1)
    assert fence.wait(1, timeout=60)
    assert fence.completed_value == 1
    assert floats(target, 48) == [9, 18, 27, 36]
    constant.write(row(0, 0, 0, 0), 16)
    source.write(row(5, 6, 7, 8))
    device.queue.execute([second])
    assert floats(target, 48) == [4, 4, 4, 4]


def test_later_dispatches_see_what_earlier_ones_wrote(device):
    """No barriers: a chain through one list, a copy in between, in place at the end."""
    compiled = compile_operator(device, subtract())
    one, value, copy = (device.create_buffer(32) for _ in range(3))
    one.write(row(1, 1, 1, 1))
    value.write(row(10, 20, 30, 40))
    recorder, command_list = device.create_command_recorder(), device.create_command_list()
    recorder.record_dispatch(command_list, *initialization(device, compiled))
    table = bound(device, compiled, [value, one], [value])
    for _ in range(3):
        recorder.record_dispatch(command_list, compiled, table)
    command_list.copy_buffer(copy, 16, value, 0, 16)
    recorder.record_dispatch(command_list, compiled, table)
    command_list.close()
    device.queue.execute([command_list])
    assert floats(copy, 16) == [7, 17, 27, 37]
    assert floats(value) == [6, 16, 26, 36]


@pytest.mark.parametrize("offset", range(0, 272, 16))
def test_every_offset_of_16_bytes(device, offset):
    """Inputs and the output lie in one buffer, side by side, at offsets that adapters do not bind."""
    compiled = compile_operator(device, subtract())
    arena = device.create_buffer(512)
    arena.write(bytes([0xAB] * 512))
    arena.write(row(10, 20, 30, 40), offset)
    arena.write(row(1, 2, 3, 4), offset + 16)
    table = bound(
        device,
        compiled,
        [BufferBinding(arena, offset), BufferBinding(arena, offset + 16)],
        [BufferBinding(arena, offset + 32)],
    )
    device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
    assert floats(arena, offset + 32) == [9, 18, 27, 36]
    everything = arena.read()
    assert set(everything[:offset]) | set(everything[offset + 48 :]) == {0xAB}


def test_volatile_bindings(device):
    compiled = compile_operator(device, subtract(), ExecutionFlags.DESCRIPTORS_VOLATILE)
    device.queue.execute([record(device, initialization(device, compiled))])
    table = device.create_binding_table(compiled)
    command_list = record(device, (compiled, table))
    sources, target = [device.create_buffer(16), device.create_buffer(16)], device.create_buffer(16)
    sources[0].write(row(1, 2, 3, 4))
    table.bind_outputs([target])
    for inputs, expected in ((sources, [1, 2, 3, 4]), (sources[::-1], [-1, -2, -3, -4])):
        table.bind_inputs(inputs)
        device.queue.execute([command_list])
        assert floats(target) == expected


def test_mistakes_leave_the_device_usable(device):
    compiled = compile_operator(device, subtract())
    source, target = device.create_buffer(16, "source"), device.create_buffer(16)
    table = bound(device, compiled, [source, source], [target])
    command_list = record(device, (compiled, table))
    with pytest.raises(InvalidState, match="executed before its initialisation"):
        device.queue.execute([command_list])
    with pytest.raises(BindingError, match="multiple of 16, got 4"):
        table.bind_outputs([BufferBinding(device.create_buffer(64), 4)])
    device.queue.execute([record(device, initialization(device, compiled))])
    source.release()
    with pytest.raises(InvalidState) as caught:
        device.queue.execute([command_list])
    assert str(caught.value) == "ELEMENT_WISE_SUBTRACT: a bound buffer, buffer 'source', is released"
    left, right = device.create_buffer(16), device.create_buffer(16)
    left.write(row(4, 3, 2, 1))
    table.bind_inputs([left, right])
    device.queue.execute([record(device, (compiled, table))])
    assert floats(target) == [4, 3, 2, 1]
    assert device.removed_reason is None


def test_a_buffer_may_be_released_while_its_work_is_in_flight(device):
    compiled = compile_operator(device, subtract())
    left, right, target = (device.create_buffer(16) for _ in range(3))
    left.write(row(4, 3, 2, 1))
    table = bound(device, compiled, [left, right], [target])
    device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
    left.release()
    right.release()
    assert floats(target) == [4, 3, 2, 1]


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


def test_a_wgpu_device_destroyed_behind_our_back(adapter):
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
    """A wgpu device that somebody else made."""
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
    one, two = Buffer.from_wgpu(device, memory), Buffer.from_wgpu(device, memory)
    compiled = compile_operator(device, subtract())
    table = bound(device, compiled, [one, one], [BufferBinding(two, 0)])
    record(device, (compiled, table))
    table.bind_inputs([BufferBinding(one, 32), one])
    table.bind_outputs([BufferBinding(two, 32)])
    record(device, (compiled, table))
    table.bind_inputs([one, one])
    table.bind_outputs([BufferBinding(two, 0)])
    with pytest.raises(InvalidArgument, match="one buffer cannot be both source and destination"):
        device.create_command_list().copy_buffer(one, 0, two, 32, 16)
    compiled = compile_operator(device, descs.ElementWiseIdentity(input_tensor=ROW, output_tensor=ROW))
    table = bound(device, compiled, [one], [BufferBinding(two, 0)])
    record(device, (compiled, table))
    wide = TensorDesc(DataType.FLOAT32, (1, 1, 1, 8))
    compiled = compile_operator(device, descs.ElementWiseIdentity(input_tensor=wide, output_tensor=wide))
    table = bound(device, compiled, [one], [BufferBinding(two, 16)])
    with pytest.raises(BindingError, match="in-place execution needs identical ranges"):
        record(device, (compiled, table))


def test_a_wgpu_buffer_must_be_usable(shared):
    device = Device.from_wgpu(shared)
    memory = shared.create_buffer(size=64, usage=wgpu.BufferUsage.COPY_SRC)
    with pytest.raises(InvalidArgument, match="usage must include STORAGE"):
        Buffer.from_wgpu(device, memory)


@pytest.mark.parametrize("name", ["FLOAT32", "UINT8", "INT16", "FLOAT16"])
def test_usual_types_run_everywhere(device, name):
    answer = device.check_feature_support(TensorDataTypeSupportQuery(DataType[name]))
    assert (answer.is_supported, answer.refused) == (True, {})


def test_several_threads(device):
    """Each thread does the whole life cycle with its own operator, table and buffers on one device."""
    wrong, start = [], threading.Barrier(3)

    def work(number):
        start.wait()
        for step in range(10):
            arrays = [np.full(ROW.sizes, value, np.float32) for value in (number, step)]
            (result,) = dmlgpu.evaluate(subtract(), arrays, device)
            if result.ravel().tolist() != [number - step] * 4:
                wrong.append((number, step, result))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
