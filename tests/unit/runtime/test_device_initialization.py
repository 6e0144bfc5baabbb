"""Operators are initialized exactly once, before they are executed."""

import pytest

from dmlgpu import BufferBinding, ExecutionFlags, InvalidArgument, InvalidState
from tests.unit.device_objects import OWNED, Objects, raises, subtract

UNINITIALIZED = "ELEMENT_WISE_IDENTITY: executed before its initialization; execute an initializer for it first"
TWICE = "initializer: ELEMENT_WISE_IDENTITY is initialized already; an operator is initialized exactly once"


def test_execution_needs_initialization(objects):
    compiled = objects.compiled()
    command_list = objects.recorded((compiled, objects.bound(compiled)))
    with raises(InvalidState, UNINITIALIZED):
        objects.device.queue.execute([command_list])
    assert objects.backend.submitted == []
    objects.initialize(compiled)
    objects.device.queue.execute([command_list])
    assert [what for what, _ in objects.backend.submitted] == ["run"]


def test_initialization_earlier_in_the_same_list(objects):
    compiled = objects.compiled()
    objects.device.queue.execute(
        [objects.recorded(objects.initialization(compiled), (compiled, objects.bound(compiled)))]
    )
    assert compiled.is_initialized


def test_initialization_later_in_the_same_list(objects):
    compiled = objects.compiled()
    command_list = objects.recorded((compiled, objects.bound(compiled)), objects.initialization(compiled))
    with raises(InvalidState, UNINITIALIZED):
        objects.device.queue.execute([command_list])
    assert not compiled.is_initialized


def test_initialization_in_an_earlier_list_of_one_submission(objects):
    compiled = objects.compiled()
    first = objects.recorded(objects.initialization(compiled))
    second = objects.recorded((compiled, objects.bound(compiled)))
    with raises(InvalidState, UNINITIALIZED):
        objects.device.queue.execute([second, first])
    objects.device.queue.execute([first, second])


def test_a_recorded_initialization_that_was_never_executed_does_not_count(objects):
    compiled = objects.compiled()
    objects.recorded(objects.initialization(compiled))
    with raises(InvalidState, UNINITIALIZED):
        objects.device.queue.execute([objects.recorded((compiled, objects.bound(compiled)))])


def test_a_failed_submission_initializes_nothing(objects):
    objects = Objects(persistent_size=256)
    compiled = objects.compiled()
    command_list = objects.recorded(objects.initialization(compiled, outputs=[objects.buffer()]))
    objects.backend.failure = MemoryError("the driver is full")
    with pytest.raises(MemoryError):
        objects.device.queue.execute([command_list])
    assert not compiled.is_initialized
    objects.backend.failure = None
    objects.device.queue.execute([command_list])
    assert compiled.is_initialized


def test_second_initialization_when_recording(objects):
    compiled = objects.compiled()
    objects.initialize(compiled)
    with raises(InvalidState, TWICE):
        objects.recorded(objects.initialization(compiled))


def test_second_initialization_in_one_list(objects):
    compiled = objects.compiled()
    with raises(InvalidState, TWICE):
        objects.recorded(objects.initialization(compiled), objects.initialization(compiled))


def test_second_initialization_when_executing(objects):
    compiled = objects.compiled()
    first, second = (objects.recorded(objects.initialization(compiled)) for _ in range(2))
    with raises(InvalidState, TWICE):
        objects.device.queue.execute([first, second])
    objects.device.queue.execute([first])
    for command_list in (first, second):
        with raises(InvalidState, TWICE):
            objects.device.queue.execute([command_list])


def test_one_operator_twice_in_an_initializer(objects):
    compiled = objects.compiled()
    with raises(
        InvalidArgument,
        "initializer: operators[1], ELEMENT_WISE_IDENTITY, is already operators[0]; "
        "an operator is initialized exactly once",
    ):
        objects.device.create_operator_initializer([compiled, compiled])


def test_an_initializer_without_operators_does_nothing(objects):
    objects.device.queue.execute([objects.recorded(objects.initialization())])
    assert objects.backend.submitted == []


def test_the_persistent_resource_stays_where_it_was_written():
    objects = Objects(persistent_size=256)
    compiled, memory = objects.compiled(subtract(b=OWNED)), objects.buffer(2048)
    objects.device.queue.execute(
        [objects.recorded(objects.initialization(compiled, inputs=[[None, objects.buffer()]], outputs=[memory]))]
    )
    table = objects.bound(compiled)
    table.bind_persistent_resource(BufferBinding(memory, 256))
    command_list = objects.recorded((compiled, table))
    with raises(
        InvalidState,
        "ELEMENT_WISE_SUBTRACT: the persistent resource is bound at offset 256, its initialization wrote another range "
        "(offset 0); it cannot be copied or moved",
    ):
        objects.device.queue.execute([command_list])
    table.bind_persistent_resource(memory)
    objects.device.queue.execute([objects.recorded((compiled, table))])


def test_initializer_reset_in_flight():
    objects = Objects(persistent_size=256)
    compiled = objects.compiled()
    initializer, table = objects.initialization(compiled, outputs=[objects.buffer()])
    initializer.name = "weights"
    objects.backend.finished = 0
    objects.device.queue.execute([objects.recorded((initializer, table))])
    with raises(InvalidState, "initializer 'weights': reset while its execution is in flight; wait on a fence first"):
        initializer.reset([])
    objects.backend.finished = 1
    initializer.reset([objects.compiled(), objects.compiled()])
    assert len(initializer.operators) == 2
    with raises(InvalidState, "initializer 'weights': its operators changed; reset the binding table as well"):
        table.bind_outputs([objects.buffer(), objects.buffer()])
    with raises(InvalidState, "initializer 'weights': its operators changed; reset the binding table as well"):
        objects.recorded((initializer, table))


def test_volatile_bindings_need_initialization_too(objects):
    compiled = objects.compiled(flags=ExecutionFlags.DESCRIPTORS_VOLATILE)
    with raises(InvalidState, UNINITIALIZED):
        objects.device.queue.execute([objects.recorded((compiled, objects.bound(compiled)))])
