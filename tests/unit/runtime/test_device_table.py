"""Binding tables: their dispatchables, the bindings that recorded work keeps, and the ranges passed to executors."""

from dmlgpu import BindingError, BufferBinding, InvalidArgument, InvalidState
from tests.unit.device_objects import Objects, identity, raises


def test_an_empty_table(objects):
    table = objects.device.create_binding_table()
    table.name = "spare"
    assert table.dispatchable is None
    with raises(InvalidState, "binding table 'spare': an empty table binds nothing; reset it to a dispatchable first"):
        table.bind_inputs([])


def test_reset_unbinds(objects):
    compiled = objects.compiled()
    table = objects.bound(compiled)
    table.reset(compiled)
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: input_tensor (input 0) not bound; call bind_inputs first"):
        objects.recorded((compiled, table))


def test_recorded_dispatches_keep_their_bindings(objects):
    compiled = objects.compiled()
    objects.initialize(compiled)
    table, first, second = objects.table(compiled), objects.buffer(), objects.buffer()
    table.bind_inputs([first])
    table.bind_outputs([objects.buffer()])
    command_list = objects.device.create_command_list()
    objects.recorder.record_dispatch(command_list, compiled, table)
    table.bind_inputs([second])
    objects.recorder.record_dispatch(command_list, compiled, table)
    table.reset(None)
    command_list.close()
    objects.device.queue.execute([command_list])
    used = [resources.inputs[0].buffer for _, resources in objects.backend.submitted]
    assert [id(memory) for memory in used] == [id(first.memory), id(second.memory)]


def test_only_the_tensors_own_bytes_are_bound(objects):
    compiled = objects.compiled()
    objects.initialize(compiled)
    table = objects.table(compiled)
    table.bind_inputs([BufferBinding(objects.buffer(), 32)])
    table.bind_outputs([BufferBinding(objects.buffer(), 64, 512)])
    objects.device.queue.execute([objects.recorded((compiled, table))])
    (_, resources) = objects.backend.submitted[-1]
    assert (resources.inputs[0].offset, resources.inputs[0].size) == (32, 64)
    assert (resources.outputs[0].offset, resources.outputs[0].size) == (64, 64)


def test_binding_the_same_again_costs_nothing(objects):
    compiled = objects.compiled()
    table, source, target = objects.table(compiled), objects.buffer(), objects.buffer()
    seen = []
    for _ in range(2):
        table.bind_inputs([BufferBinding(source, 16)])
        table.bind_outputs([target])
        seen.append(table._bindings.recorded())
    assert seen[0] is seen[1]
    table.bind_inputs([BufferBinding(source, 32)])
    assert table._bindings.recorded() is not seen[0]


def test_tables_are_for_dispatchables(objects):
    with raises(InvalidArgument, "binding table: dispatchable must be a CompiledOperator, got Operator"):
        objects.table(objects.device.create_operator(identity()))
    other = Objects()
    other.device.name = "other"
    adapter = objects.device.adapter
    with raises(
        InvalidArgument,
        "binding table: dispatchable, ELEMENT_WISE_IDENTITY, belongs to another device "
        f"(device 'other' on '{adapter}') than device on '{adapter}'; objects of two devices cannot be mixed",
    ):
        objects.table(other.compiled())
