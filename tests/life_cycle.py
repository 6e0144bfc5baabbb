"""DirectML's whole life cycle, for devices on any adapter."""

import threading

import numpy as np
import pytest

import dmlgpu
from dmlgpu import (
    BindingError,
    BufferArrayBinding,
    BufferBinding,
    DataType,
    ExecutionFlags,
    InvalidState,
    TensorDataTypeSupportQuery,
    TensorDesc,
    TensorFlags,
    descs,
)
from dmlgpu.catalog.enums import QuantizationType

ROW = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4))
OWNED = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4), flags=TensorFlags.OWNED_BY_DML)


def subtract(a=ROW, b=ROW, output=ROW):
    return descs.ElementWiseSubtract(a_tensor=a, b_tensor=b, output_tensor=output)


def converted(tensor, output):
    """Numbers in the type of an output: only quantization gives 4 bits."""
    if output.data_type.bits > 4:
        return descs.Cast(input_tensor=tensor, output_tensor=output)
    scale = TensorDesc(tensor.data_type, (1,) * tensor.dimension_count)
    return descs.Quantize(
        input_tensor=tensor,
        quantization_type=QuantizationType.SCALE,
        quantization_tensors=(scale,),
        output_tensor=output,
    )


def compile_operator(device, desc, flags=ExecutionFlags.NONE):
    return device.compile_operator(device.create_operator(desc), flags)


def floats(buffer, offset=0, count=4):
    return buffer.read(offset, 4 * count).view(np.float32).tolist()


def row(*values):
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


def record(device, *pairs):
    """A closed list of dispatches."""
    command_list, recorder = device.create_command_list(), device.create_command_recorder()
    for dispatchable, table in pairs:
        recorder.record_dispatch(command_list, dispatchable, table)
    command_list.close()
    return command_list


def initialization(device, compiled):
    """The initialization of an operator without owned tensors."""
    initializer = device.create_operator_initializer([compiled])
    return initializer, device.create_binding_table(initializer)


def bound(device, compiled, inputs, outputs):
    table = device.create_binding_table(compiled)
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    size = compiled.binding_properties.temporary_resource_size
    table.bind_temporary_resource(device.create_buffer(size) if size else None)
    return table


class LifeCycle:
    """Tests of the fixture ``device``; expected values by hand."""

    def test_life_cycle(self, device):
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
        constant.release()
        source.write(row(5, 6, 7, 8))
        device.queue.execute([second])
        assert floats(target, 48) == [4, 4, 4, 4]

    @pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.INT8, DataType.UINT8, DataType.UINT4])
    def test_interleaved_views_are_filled_one_by_one(self, device, data_type):
        """Rows of 16 bytes less one element: of one view, of another, and of none, three times."""
        unit = 128 // data_type.bits
        view = TensorDesc(data_type, (3, unit - 1), (3 * unit, 1))
        numbers = [np.arange(start, start + 3 * (unit - 1)).reshape(3, -1) % 16 for start in (1, 2)]
        content = np.full(9 * 16, 0xA5, np.uint8)
        buffer, scale = device.create_buffer(content.size), device.create_buffer(4)
        buffer.write(content)
        scale.write(np.ones(1, np.float32))
        for place, column in enumerate(numbers):
            source = device.create_buffer(4 * column.size)
            source.write(column.astype(np.float32))
            operator = device.create_operator(converted(TensorDesc(DataType.FLOAT32, column.shape), view))
            compiled = device.compile_operator(operator, preserve_padding=True)
            target = BufferBinding(buffer, 16 * place, view.byte_size)
            table = bound(device, compiled, [source, scale][: len(compiled.inputs)], [target])
            device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
        for place, column in enumerate(numbers):
            assert view.decode(buffer.read(16 * place, view.byte_size)).tolist() == column.tolist()
        written = buffer.read()
        nibbles = np.stack([written & 15, written >> 4], -1).reshape(3, 3, 32)
        expected = np.resize([0x5, 0xA], (3, 3, 32))
        assert np.array_equal(nibbles[:, 2], expected[:, 2])
        beside = slice(32 - data_type.bits // 4, None)
        assert np.array_equal(nibbles[..., beside], expected[..., beside])

    def test_later_dispatches_see_what_earlier_ones_wrote(self, device):
        """No barriers: a chain through one list, a copy in between, in place at the end."""
        compiled = compile_operator(device, subtract())
        vector, value, copy = (device.create_buffer(32) for _ in range(3))
        vector.write(row(1, 1, 1, 1))
        value.write(row(10, 20, 30, 40))
        recorder, command_list = device.create_command_recorder(), device.create_command_list()
        recorder.record_dispatch(command_list, *initialization(device, compiled))
        table = bound(device, compiled, [value, vector], [value])
        for _ in range(3):
            recorder.record_dispatch(command_list, compiled, table)
        command_list.copy_buffer(copy, 16, value, 0, 16)
        recorder.record_dispatch(command_list, compiled, table)
        command_list.close()
        device.queue.execute([command_list])
        assert floats(copy, 16) == [7, 17, 27, 37]
        assert floats(value) == [6, 16, 26, 36]

    @pytest.mark.parametrize("offset", range(0, 272, 16))
    def test_every_offset_of_16_bytes(self, device, offset):
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

    def test_volatile_bindings(self, device):
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

    def test_mistakes_leave_the_device_usable(self, device):
        compiled = compile_operator(device, subtract())
        source, target = device.create_buffer(16, "source"), device.create_buffer(16)
        table = bound(device, compiled, [source, source], [target])
        command_list = record(device, (compiled, table))
        with pytest.raises(InvalidState, match="executed before its initialization"):
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

    def test_a_buffer_may_be_released_while_its_work_is_in_flight(self, device):
        compiled = compile_operator(device, subtract())
        left, right, target = (device.create_buffer(16) for _ in range(3))
        left.write(row(4, 3, 2, 1))
        table = bound(device, compiled, [left, right], [target])
        device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
        left.release()
        right.release()
        assert floats(target) == [4, 3, 2, 1]

    @pytest.mark.parametrize("name", ["FLOAT32", "UINT8", "INT16", "FLOAT16"])
    def test_usual_types_run_everywhere(self, device, name):
        answer = device.check_feature_support(TensorDataTypeSupportQuery(DataType[name]))
        assert (answer.is_supported, answer.refused) == (True, {})

    def test_several_threads(self, device):
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
