"""The whole life cycle on the adapter that is always there; expected values by hand."""

import threading

import numpy as np
import pytest

import dmlgpu
from dmlgpu import BufferArrayBinding, BufferBinding, DataType, InvalidArgument, TensorDesc, TensorFlags, descs
from tests.unit.device_objects import raises

ROW = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4))
GAPPED = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4), strides=(8, 8, 8, 2))
OWNED = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4), flags=TensorFlags.OWNED_BY_DML)


@pytest.fixture(scope="module")
def device():
    return dmlgpu.Device("numpy")


def row(*values):
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


def subtract(a=ROW, b=ROW, output=ROW):
    return descs.ElementWiseSubtract(a_tensor=a, b_tensor=b, output_tensor=output)


def test_life_cycle(device):
    """Two executions of a difference with a constant that is handed over once."""
    compiled = device.compile_operator(device.create_operator(subtract(b=OWNED)))
    size = compiled.binding_properties.persistent_resource_size
    assert size >= 16
    constant, source, target = (device.create_buffer(64) for _ in range(3))
    persistent = device.create_buffer(size)
    constant.write(row(1, 2, 3, 4), 16)
    initializer = device.create_operator_initializer([compiled])
    table = device.create_binding_table(initializer)
    table.bind_inputs([BufferArrayBinding([None, BufferBinding(constant, 16)])])
    table.bind_outputs([persistent])
    recorder, command_list = device.create_command_recorder(), device.create_command_list()
    recorder.record_dispatch(command_list, initializer, table)
    table.reset(compiled)
    table.bind_inputs([source, None])
    table.bind_outputs([BufferBinding(target, 32)])
    table.bind_persistent_resource(persistent)
    recorder.record_dispatch(command_list, compiled, table)
    command_list.copy_buffer(source, 0, target, 32, 16)
    command_list.close()
    source.write(row(10, 20, 30, 40))
    fence = device.create_fence()
    device.queue.execute([command_list])
    device.queue.signal(fence, 1)
    assert fence.wait(1)
    assert target.read(32, 16).view(np.float32).tolist() == [9, 18, 27, 36]
    assert source.read(0, 16).view(np.float32).tolist() == [9, 18, 27, 36]
    constant.release()
    again = device.create_command_list()
    recorder.record_dispatch(again, compiled, table)
    again.close()
    for _ in range(2):
        device.queue.execute([again])
    assert target.read(32, 16).view(np.float32).tolist() == [8, 16, 24, 32]


def test_nothing_outside_the_output_is_written(device):
    compiled = device.compile_operator(device.create_operator(subtract(output=GAPPED)))
    sources, target = [device.create_buffer(16), device.create_buffer(16)], device.create_buffer(96)
    sources[0].write(row(5, 6, 7, 8))
    target.write(bytes([0xAB] * 96))
    initializer = device.create_operator_initializer([compiled])
    recorder, command_list = device.create_command_recorder(), device.create_command_list()
    recorder.record_dispatch(command_list, initializer, device.create_binding_table(initializer))
    table = device.create_binding_table(compiled)
    table.bind_inputs(sources)
    table.bind_outputs([BufferBinding(target, 32)])
    recorder.record_dispatch(command_list, compiled, table)
    command_list.close()
    device.queue.execute([command_list])
    written = target.read()
    assert GAPPED.byte_size == 28
    assert written[32:60].view(np.float32)[::2].tolist() == [5, 6, 7, 8]
    assert set(written[:32]) == set(written[60:]) == {0xAB}


def test_evaluate(device):
    (result,) = dmlgpu.evaluate(subtract(GAPPED, OWNED, GAPPED), [row(1, 2, 3, 4), row(4, 3, 2, 1)], device)
    assert result.dtype == np.float32
    assert result.tolist() == row(-3, -1, 1, 3).tolist()


def test_evaluate_takes_one_array_per_input(device):
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_SUBTRACT: inputs must be 2 arrays (a_tensor (input 0), b_tensor (input 1)), got 1",
    ):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4)], device)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (row(1, 2, 3), "float32 with shape (1, 1, 1, 3)"),
        (np.zeros(4, np.float32), "float32 with shape (4,)"),
        (row(1, 2, 3, 4).astype(np.float64), "float64 with shape (1, 1, 1, 4)"),
    ],
)
def test_evaluate_converts_nothing(device, wrong, got):
    with raises(
        InvalidArgument,
        f"ELEMENT_WISE_SUBTRACT: b_tensor (input 1) must be an array of float32 with shape (1, 1, 1, 4), got {got}",
    ):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4), wrong], device)


def test_evaluate_misses_an_array(device):
    with raises(InvalidArgument, "ELEMENT_WISE_SUBTRACT: b_tensor (input 1) must be an array, got NoneType"):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4), None], device)


def test_a_device_serves_several_threads(device):
    """Each thread does the whole life cycle with its own operator, table and buffers on one device."""
    wrong, start = [], threading.Barrier(4)

    def work(number):
        start.wait()
        for step in range(25):
            (result,) = dmlgpu.evaluate(subtract(), [row(*[number] * 4), row(*[step] * 4)], device)
            if result.ravel().tolist() != [number - step] * 4:
                wrong.append((number, step, result))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
