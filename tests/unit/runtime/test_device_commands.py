"""Recording, executing and waiting: every state that an object can be used in by mistake."""

import signal
import threading
import time

import numpy as np
import pytest

from dmlgpu import BindingError, DeviceRemoved, ExecutionFlags, InvalidArgument, InvalidState
from dmlgpu.common.errors import shown
from tests.unit.device_objects import Objects, raises, subtract


@pytest.fixture
def ready(objects):
    """An initialized operator and its bound table."""
    compiled = objects.compiled()
    objects.initialize(compiled)
    return compiled, objects.bound(compiled)


# ---- recording -------------------------------------------------------------------------------------------------------


def test_a_table_of_another_dispatchable(objects, ready):
    compiled, table = ready
    other = objects.compiled(subtract())
    other.name = "difference"
    command_list = objects.device.create_command_list()
    with raises(
        InvalidArgument,
        "record_dispatch: binding table must bind for ELEMENT_WISE_SUBTRACT 'difference', it binds for "
        "ELEMENT_WISE_IDENTITY; reset the table to the dispatchable first",
    ):
        objects.recorder.record_dispatch(command_list, other, table)
    with raises(
        InvalidArgument,
        "record_dispatch: binding table must bind for ELEMENT_WISE_IDENTITY, it binds for "
        "ELEMENT_WISE_IDENTITY, another object of the same kind; reset the table to the dispatchable first",
    ):
        objects.recorder.record_dispatch(command_list, objects.compiled(), table)
    with raises(
        InvalidArgument,
        "record_dispatch: binding table must bind for ELEMENT_WISE_IDENTITY, it binds for nothing; "
        "reset the table to the dispatchable first",
    ):
        objects.recorder.record_dispatch(command_list, compiled, objects.device.create_binding_table())
    objects.recorder.record_dispatch(command_list, compiled, table)


def test_record_takes_the_right_kinds(objects, ready):
    compiled, table = ready
    command_list = objects.device.create_command_list()
    with raises(InvalidArgument, "record_dispatch: command_list must be a CommandList, got Queue"):
        objects.recorder.record_dispatch(objects.device.queue, compiled, table)
    with raises(InvalidArgument, "record_dispatch: bindings must be a BindingTable, got Buffer"):
        objects.recorder.record_dispatch(command_list, compiled, objects.buffer())
    with raises(InvalidArgument, "record_dispatch: dispatchable must be a CompiledOperator, got NoneType"):
        objects.recorder.record_dispatch(command_list, None, table)


def test_objects_of_another_device(objects, ready):
    compiled, table = ready
    other = Objects()
    other.device.name = "other"
    adapter = objects.device.adapter
    suffix = (
        f"belongs to another device (device 'other' on '{adapter}') than device on '{adapter}'; "
        "objects of two devices cannot be mixed"
    )
    theirs = other.compiled()
    with raises(InvalidArgument, f"record_dispatch: command_list, command list, {suffix}"):
        objects.recorder.record_dispatch(other.device.create_command_list(), compiled, table)
    with raises(InvalidArgument, f"record_dispatch: bindings, binding table, {suffix}"):
        objects.recorder.record_dispatch(objects.device.create_command_list(), compiled, other.bound(theirs))
    with raises(InvalidArgument, f"record_dispatch: dispatchable, ELEMENT_WISE_IDENTITY, {suffix}"):
        objects.recorder.record_dispatch(objects.device.create_command_list(), theirs, table)
    with raises(InvalidArgument, f"execute: command_lists[0], command list, {suffix}"):
        objects.device.queue.execute([other.recorded()])
    with raises(InvalidArgument, f"signal: fence, fence, {suffix}"):
        objects.device.queue.signal(other.device.create_fence(), 1)
    with raises(InvalidArgument, f"initializer: operators[0], ELEMENT_WISE_IDENTITY, {suffix}"):
        objects.device.create_operator_initializer([theirs])
    with raises(InvalidArgument, f"command list: copy_buffer: source, buffer of 1024 bytes, {suffix}"):
        objects.device.create_command_list().copy_buffer(objects.buffer(), 0, other.buffer(), 0, 4)


# ---- command lists ---------------------------------------------------------------------------------------------------


def test_closed_lists_take_nothing(objects, ready):
    command_list = objects.recorded(ready)
    command_list.name = "frame"
    with raises(InvalidState, "command list 'frame': record_dispatch on a closed list; reset it first"):
        objects.recorder.record_dispatch(command_list, *ready)
    with raises(InvalidState, "command list 'frame': close on a closed list; reset it first"):
        command_list.close()
    with raises(InvalidState, "command list 'frame': copy_buffer on a closed list; reset it first"):
        command_list.copy_buffer(objects.buffer(), 0, objects.buffer(), 0, 4)
    command_list.reset()
    assert command_list.is_open
    objects.recorder.record_dispatch(command_list, *ready)


def test_open_lists_are_not_executed(objects, ready):
    command_list = objects.device.create_command_list()
    objects.recorder.record_dispatch(command_list, *ready)
    with raises(InvalidState, "command list: executed while it is open; close it first"):
        objects.device.queue.execute([command_list])


def test_a_closed_list_runs_any_number_of_times(objects, ready):
    command_list = objects.recorded(ready, ready)
    for _ in range(3):
        objects.device.queue.execute([command_list])
    assert [what for what, _ in objects.backend.submitted] == ["run"] * 6


def test_nothing_runs_when_one_list_is_wrong(objects, ready):
    with raises(InvalidState, "command list: executed while it is open; close it first"):
        objects.device.queue.execute([objects.recorded(ready), objects.device.create_command_list()])
    assert objects.backend.submitted == []


def test_execute_takes_a_sequence(objects, ready):
    with raises(InvalidArgument, "execute: command_lists must be a sequence of command lists, got CommandList"):
        objects.device.queue.execute(objects.recorded(ready))


def test_reset_in_flight(objects, ready):
    command_list = objects.recorded(ready)
    objects.backend.finished = 0
    objects.device.queue.execute([command_list])
    with raises(InvalidState, "command list: reset while its execution is in flight; wait on a fence first"):
        command_list.reset()
    objects.backend.finished = 1
    command_list.reset()


def test_released_between_recording_and_execution(objects, ready):
    compiled, table = ready
    source = objects.buffer(name="source")
    table.bind_inputs([source])
    command_list = objects.recorded((compiled, table))
    objects.device.queue.execute([command_list])
    source.release()
    with raises(InvalidState, "ELEMENT_WISE_IDENTITY: a bound buffer, buffer 'source', is released"):
        objects.device.queue.execute([command_list])
    with raises(InvalidState, "ELEMENT_WISE_IDENTITY: a bound buffer, buffer 'source', is released"):
        objects.recorded((compiled, table))
    table.bind_inputs([objects.buffer()])
    objects.device.queue.execute([objects.recorded((compiled, table))])


# ---- volatile bindings -----------------------------------------------------------------------------------------------


def test_volatile_bindings_are_read_when_the_list_is_executed(objects):
    compiled = objects.compiled(flags=ExecutionFlags.DESCRIPTORS_VOLATILE)
    objects.initialize(compiled)
    table = objects.table(compiled)
    command_list = objects.recorded((compiled, table))
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: input_tensor (input 0) not bound; call bind_inputs first"):
        objects.device.queue.execute([command_list])
    table.bind_outputs([objects.buffer()])
    sources = [objects.buffer(), objects.buffer()]
    for source in sources:
        table.bind_inputs([source])
        objects.device.queue.execute([command_list])
    used = [resources.inputs[0].buffer for _, resources in objects.backend.submitted]
    assert [id(memory) for memory in used] == [id(source.memory) for source in sources]


def test_a_reset_table_no_longer_reaches_volatile_dispatches(objects):
    compiled = objects.compiled(flags=ExecutionFlags.DESCRIPTORS_VOLATILE)
    objects.initialize(compiled)
    table = objects.bound(compiled)
    command_list = objects.recorded((compiled, table))
    table.reset(compiled)
    objects.device.queue.execute([command_list])
    assert len(objects.backend.submitted) == 1


# ---- copies ----------------------------------------------------------------------------------------------------------


def test_copies_are_checked(objects):
    command_list = objects.device.create_command_list()
    small, large = objects.buffer(64, "small"), objects.buffer(1024, "large")
    caller = "command list: copy_buffer"
    with raises(InvalidArgument, f"{caller}: destination: bytes 32 to 96 are not inside buffer 'small' (64 bytes)"):
        command_list.copy_buffer(small, 32, large, 0, 64)
    with raises(InvalidArgument, f"{caller}: source: bytes 8 to 72 are not inside buffer 'small' (64 bytes)"):
        command_list.copy_buffer(large, 0, small, 8, 64)
    with raises(InvalidArgument, f"{caller}: destination_offset must be a multiple of 4, got 2"):
        command_list.copy_buffer(small, 2, large, 0, 4)
    with raises(InvalidArgument, f"{caller}: size must be a multiple of 4, got 3"):
        command_list.copy_buffer(small, 0, large, 0, 3)
    with raises(InvalidArgument, f"{caller}: source: offset must be an integer of at least 0, got -4"):
        command_list.copy_buffer(small, 0, large, -4, 4)
    with raises(InvalidArgument, f"{caller}: one buffer cannot be both source and destination, got buffer 'large'"):
        command_list.copy_buffer(large, 0, large, 512, 4)
    small.release()
    with raises(InvalidState, f"{caller}: source, buffer 'small', is released"):
        command_list.copy_buffer(large, 0, small, 0, 4)


# ---- fences ----------------------------------------------------------------------------------------------------------


def test_fences_follow_the_work(objects, ready):
    fence, queue, command_list = objects.device.create_fence(), objects.device.queue, objects.recorded(ready)
    objects.backend.finished = 0
    for value in (1, 5):
        queue.execute([command_list])
        queue.signal(fence, value)
    assert fence.completed_value == 0
    assert not fence.wait(1, timeout=0)
    objects.backend.finished = 1
    assert fence.completed_value == 1
    assert fence.wait(1, timeout=0)
    assert not fence.wait(3, timeout=0)
    assert fence.wait(3)
    assert fence.completed_value == 5


def test_synchronize_waits_for_all_work(objects, ready):
    objects.device.synchronize()
    fence, queue, command_list = objects.device.create_fence(), objects.device.queue, objects.recorded(ready)
    objects.backend.finished = 0
    queue.execute([command_list])
    queue.signal(fence, 1)
    assert fence.completed_value == 0
    objects.device.synchronize()
    assert fence.completed_value == 1


def test_a_fence_without_work_is_reached_at_once(objects):
    fence = objects.device.create_fence(initial_value=7)
    assert fence.completed_value == 7
    objects.device.queue.signal(fence, 8)
    assert fence.wait(8)
    assert fence.completed_value == 8


def test_fences_grow(objects):
    fence = objects.device.create_fence()
    fence.name = "frames"
    objects.device.queue.signal(fence, 2)
    with raises(InvalidArgument, "fence 'frames': signal: value must be an integer above the last one, 2, got 2"):
        objects.device.queue.signal(fence, 2)


def test_a_wait_that_would_never_end(objects):
    fence = objects.device.create_fence()
    with raises(
        InvalidState,
        "fence: wait for 1 would never end, the last signal is 0; call queue.signal first, or give a timeout",
    ):
        fence.wait(1)
    assert not fence.wait(1, timeout=0.01)


def test_a_signal_from_another_thread(objects):
    fence = objects.device.create_fence()
    timer = threading.Timer(0.05, objects.device.queue.signal, (fence, 1))
    timer.start()
    assert fence.wait(1, timeout=10)
    timer.join()


@pytest.mark.parametrize("value", [float("nan"), 1.5, None, "1", True])
def test_fences_take_integers(objects, value):
    fence = objects.device.create_fence()
    expected = f"must be an integer between 0 and {2**64 - 1}, got {shown(value, typed=True)}"
    with raises(InvalidArgument, f"fence: value {expected}"):
        fence.wait(value, timeout=0)
    with raises(InvalidArgument, f"fence: signal: value must be an integer above the last one, 0, got {value!r}"):
        objects.device.queue.signal(fence, value)
    with raises(InvalidArgument, f"create_fence: initial_value {expected}"):
        objects.device.create_fence(value)


@pytest.mark.parametrize("timeout", [float("nan"), np.float32("nan"), "1", 1j])
def test_fences_take_seconds(objects, timeout):
    fence = objects.device.create_fence()
    expected = "a number" if isinstance(timeout, str | complex) else "a number of seconds"
    with pytest.raises(InvalidArgument, match=f"^fence: timeout must be {expected}, got "):
        fence.wait(1, timeout)


@pytest.mark.parametrize("timeout", [0, -1, float("-inf"), np.float32(0)])
def test_a_time_limit_that_has_passed(objects, timeout):
    fence = objects.device.create_fence()
    assert not fence.wait(1, timeout)
    objects.device.queue.signal(fence, 1)
    assert fence.wait(1, timeout)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, threading.TIMEOUT_MAX])
@pytest.mark.parametrize("signaled", [True, False])
def test_waiters_hear_of_signals_and_of_the_removal(objects, timeout, signaled):
    fence, outcomes = objects.device.create_fence(), []

    def wait():
        try:
            outcomes.append(fence.wait(1, timeout))
        except DeviceRemoved as removed:
            outcomes.append(str(removed))

    waiters = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    while len(objects.device._state.waiters) < len(waiters):
        time.sleep(0.001)
    if signaled:
        objects.device.queue.signal(fence, 1)
    else:
        objects.device.remove("enough")
    for waiter in waiters:
        waiter.join(5)
    removed = f"{objects.device.description} is removed: enough; create a new device"
    assert outcomes == [True if signaled else removed] * 2
    assert not objects.device._state.waiters


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
def test_an_interrupted_wait_keeps_no_lock(objects):
    fence, queue = objects.device.create_fence(), objects.device.queue
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            with pytest.raises(KeyboardInterrupt):
                fence.wait(1, timeout=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    signaller = threading.Thread(target=queue.signal, args=(fence, 1), daemon=True)
    signaller.start()
    signaller.join(5)
    assert fence.completed_value == 1


# ---- removal ---------------------------------------------------------------------------------------------------------


def test_a_lost_adapter_removes_the_device(objects, ready):
    objects.backend.failure = DeviceRemoved("the driver lost the device")
    with pytest.raises(DeviceRemoved):
        objects.device.queue.execute([objects.recorded(ready)])
    assert objects.device.removed_reason == "the driver lost the device"


def test_after_removal_every_call_is_rejected(objects, ready):
    compiled, table = ready
    device, buffer, fence = objects.device, objects.buffer(), objects.device.create_fence()
    operator = compiled.device.create_operator(subtract())
    initializer = device.create_operator_initializer()
    open_list, closed_list = device.create_command_list(), objects.recorded(ready)
    device.remove("a user pulled the plug")
    device.remove("a second reason does not count")
    assert device.removed_reason == "a user pulled the plug"
    calls = [
        lambda: device.create_operator(subtract()),
        lambda: device.compile_operator(operator),
        device.create_operator_initializer,
        device.create_binding_table,
        device.create_command_recorder,
        device.create_command_list,
        device.create_fence,
        lambda: device.create_buffer(4),
        lambda: device.wrap_buffer(None),
        lambda: device.check_feature_support(None),
        device.synchronize,
        lambda: device.evict([]),
        lambda: device.make_resident([]),
        lambda: device.queue.execute([closed_list]),
        lambda: device.queue.signal(fence, 1),
        lambda: compiled.binding_properties,
        lambda: initializer.binding_properties,
        initializer.reset,
        lambda: table.bind_inputs(None),
        lambda: table.bind_outputs(None),
        lambda: table.bind_temporary_resource(None),
        lambda: table.bind_persistent_resource(None),
        table.reset,
        lambda: objects.recorder.record_dispatch(open_list, compiled, table),
        open_list.close,
        closed_list.reset,
        lambda: open_list.copy_buffer(buffer, 0, buffer, 0, 4),
        lambda: fence.completed_value,
        lambda: fence.wait(1),
        lambda: buffer.write(b"1234"),
        buffer.read,
    ]
    for call in calls:
        with raises(
            DeviceRemoved,
            f"device on '{device.adapter}' is removed: a user pulled the plug; create a new device",
        ):
            call()
    buffer.release()
    assert compiled.device is device
