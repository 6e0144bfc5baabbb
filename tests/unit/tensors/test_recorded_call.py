"""Calls that are recorded once and repeated on other memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Tensor, ops
from dmlgpu.common.errors import OutOfMemory
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.backend import NumPyBackend
from dmlgpu.runtime.numpy.executable import NumPyExecutable
from dmlgpu.tensors.recorded_call import Place, RecordedCall, recording, refuse_repetition
from dmlgpu.tensors.session import session_of

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def device() -> Device:
    return Device("numpy")


def places(*tensors: Tensor) -> list[Place]:
    return [(x.buffer.memory, x.offset * 4) for x in tensors]


def recorded(function: Callable[..., Any], *tensors: Tensor, **options: Any) -> RecordedCall | None:
    """The call that repeats a function of tensors."""
    with recording() as log:
        result = function(*tensors)
    return RecordedCall.of(session_of(tensors[0].device), log, places(*tensors), result, **options)


def repeated(call: RecordedCall | None, *tensors: Tensor) -> Any:
    device = tensors[0].device
    assert call is not None
    return call.repeat(session_of(device), device, places(*tensors), "repeated")


def chain(x: Tensor, y: Tensor) -> tuple[Tensor, None, Tensor]:
    """Several operators, on outputs of each other, a constant and parts of arguments; with views as results."""
    total = ops.exp(x * 0.5) + y[1:].copy()
    return total.T, None, ops.sum(total, axis=0)


def expected(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    total = np.exp(x * np.float32(0.5)) + y[1:]
    return total.T, total.sum(axis=0)


def test_a_call_repeats_its_operators_on_other_arguments(device: Device) -> None:
    taller = np.arange(16, dtype=np.float32).reshape(4, 4)
    call = recorded(chain, Tensor(ROWS, device=device), Tensor(taller, device=device))
    assert call is not None and len(call.steps) == 5
    for x, y in ((ROWS, -taller), (-ROWS, taller), (ROWS / 8, taller * 3)):
        first, absent, second = repeated(call, Tensor(x, device=device), Tensor(y, device=device))
        assert absent is None and first.sizes == (4, 3) and second.sizes == (4,)
        for result, array in zip((first, second), expected(x, y), strict=True):
            np.testing.assert_allclose(result.numpy(), array, rtol=1e-6)


def test_arguments_may_begin_elsewhere(device: Device) -> None:
    taller = Tensor(np.arange(20, dtype=np.float32).reshape(5, 4), device=device)
    call = recorded(lambda x: x + 1.0, taller[1:3])
    assert np.array_equal(repeated(call, taller[2:4]).numpy(), taller.numpy()[2:4] + 1)


def test_a_single_result_is_no_tuple(device: Device) -> None:
    x = Tensor(ROWS, device=device)
    assert isinstance(repeated(recorded(ops.exp, x), x), Tensor)
    assert isinstance(repeated(recorded(lambda x: (ops.exp(x),), x), x), tuple)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: (x + 1.0, x),
        lambda x: x + float(x.numpy().max()),
        lambda x: [x + 1.0],
        lambda x: (x + 1.0, "text"),
        lambda x: (refuse_repetition(), x + 1.0)[1],
    ],
    ids=["nothing runs", "an argument", "elements are read", "a list", "a string", "refused"],
)
def test_what_cannot_be_repeated(device: Device, function: Callable[[Tensor], Any]) -> None:
    assert recorded(function, Tensor(ROWS, device=device)) is None


def test_numbers_and_empty_tensors_are_returned(device: Device) -> None:
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: (x + 1.0, x.sizes[0], ops.zeros((0, 2), device=x.device)), x)
    result, rows, empty = repeated(call, Tensor(-ROWS, device=device))
    assert np.array_equal(result.numpy(), 1 - ROWS) and rows == 3 and empty.numpy().shape == (0, 2)


def test_outer_constants_are_bounded(device: Device) -> None:
    x, outer = Tensor(ROWS, device=device), [Tensor(ROWS, device=device)]
    assert recorded(lambda x: x + outer[0], x, max_fixed=ROWS.nbytes - 1) is None
    call = recorded(lambda x: x + outer[0], x, max_fixed=ROWS.nbytes)
    outer.clear()
    _ = [Tensor(-ROWS, device=device) for _ in range(3)]  # would take the memory if it was free
    assert np.array_equal(repeated(call, x).numpy(), 2 * ROWS)


def test_calls_keep_no_argument_alive(device: Device) -> None:
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: x * 2.0 + x, x)
    buffer = weakref.ref(x.buffer)
    del x
    gc.collect()
    assert call is not None and buffer() is None


def test_moved_tensors_are_noticed(device: Device) -> None:
    x, state = Tensor(ROWS, device=device), [Tensor(ROWS, device=device)]

    def update(x: Tensor) -> Tensor:
        state[0] = state[0] + x
        return x * 2.0

    with recording() as log:
        result = update(x)
    session = session_of(device)
    assert RecordedCall.of(session, log, places(x), result) is not None
    assert RecordedCall.of(session, log, places(x), result, unchanged=state) is None


def test_memory_is_taken_again_and_nothing_is_bound_twice(device: Device) -> None:
    """Results that replace their operand alternate between two buffers; results of other calls stay as they are."""
    session = session_of(device)
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: ops.sqrt(x * 0.5 + 1.0), x)
    others = []
    for step in range(20):
        x = repeated(call, x)
        if step == 4:
            before = session.pool.allocations, session.bindings
        if step < 3:
            others.append(repeated(call, x))
    assert (session.pool.allocations, session.bindings) == before
    value = ROWS
    for index in range(20):
        value = np.sqrt(value * np.float32(0.5) + 1)
        if 0 < index < 4:
            np.testing.assert_allclose(others[index - 1].numpy(), value, rtol=1e-6)
    np.testing.assert_allclose(x.numpy(), value, rtol=1e-6)


def test_held_results_alternate_without_new_bindings(device: Device) -> None:
    session = session_of(device)
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: ops.exp(x + 1.0), x)
    result, bindings = None, []
    for _ in range(8):
        result = repeated(call, x)  # while the earlier one is alive
        bindings.append(session.bindings)
    assert len(set(bindings[3:])) == 1 and result is not None


def test_executables_get_the_recent_work_of_a_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU they bind those kernels only whose memory changed (tests/gpu/test_tracing.py)."""
    bind, earlier = NumPyExecutable.bind, list[int]()

    def counting(self: NumPyExecutable, resources: Any, known: Any = ()) -> Any:
        earlier.append(len(known))
        return bind(self, resources, known)

    monkeypatch.setattr(NumPyExecutable, "bind", counting)
    x, y, z = (Tensor(ROWS + index, device=device) for index in range(3))
    call = recorded(lambda x, y: ops.exp(x + y), x, y)
    earlier.clear()
    for operand in (y, z, y):
        repeated(call, x, operand)
    assert earlier == [0, 0, 1, 1]
    ops.free_memory(device)  # drops all work on memory
    earlier.clear()
    repeated(call, x, y)
    assert earlier == [0, 0]


def test_work_is_dropped_with_its_call(device: Device) -> None:
    session = session_of(device)
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: x + 1.0, x)
    before = len(session.recorded)
    repeated(call, x)
    assert len(session.recorded) == before + 1
    del call
    gc.collect()
    _ = x.numpy()  # what finalizers deferred
    assert len(session.recorded) == before


def test_memory_is_given_back_if_a_call_fails(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(device)
    x = Tensor(ROWS, device=device)
    call = recorded(lambda x: ops.exp(x + 1.0), x)
    for _ in range(2):
        repeated(call, x)
    unused, enqueue = session.pool.cached_bytes, NumPyBackend.enqueue
    for error in (OutOfMemory("full"), KeyboardInterrupt()):

        def fail(*_: Any, error: BaseException = error, **__: Any) -> int:
            raise error

        monkeypatch.setattr(NumPyBackend, "enqueue", fail)
        with pytest.raises(type(error)):
            repeated(call, x)
        assert session.pool.cached_bytes == unused
    monkeypatch.setattr(NumPyBackend, "enqueue", enqueue)
    np.testing.assert_allclose(repeated(call, x).numpy(), np.exp(ROWS + 1), rtol=1e-6)


def test_outputs_in_place_are_repeated_in_place(device: Device) -> None:
    session = session_of(device)
    x, y = Tensor(ROWS, device=device), Tensor(ROWS * 2, device=device)
    _ = x + y
    (add,) = session.calls.values()
    assert isinstance(add, RecordedCall)
    with recording() as log:
        add.run(session, device, places(x, y), "add", owners=(x, y), in_place={0: (x.buffer.memory, 0)})
        result = ops.exp(y)
    assert np.array_equal(x.numpy(), ROWS * 3)
    call = RecordedCall.of(session, log, places(x, y), result)
    z = Tensor(ROWS, device=device)
    repeated(call, z, y)
    assert np.array_equal(z.numpy(), ROWS * 3) and np.array_equal(x.numpy(), ROWS * 3)


def test_outputs_in_part_of_an_argument_are_repeated_there(device: Device) -> None:
    session = session_of(device)
    x, y = (Tensor(ROWS, device=device) for _ in range(2))
    _ = x[0] + 1.0
    (add,) = session.calls.values()
    ones = Tensor([1.0] * 4, "float32", device=device)
    with recording() as log:
        add.run(session, device, places(x[0], ones), "add", owners=(x, ones), in_place={0: (x.buffer.memory, 32)})
    assert np.array_equal(x.numpy()[2], ROWS[0] + 1)
    call = RecordedCall.of(session, log, places(x[1:], ones), ())
    assert repeated(call, y[1:], ones) == ()
    assert np.array_equal(y.numpy(), x.numpy())
    assert RecordedCall.of(session, log, places(ones), ()) is None  # the target is no argument


def test_threads_share_a_call(device: Device) -> None:
    session = session_of(device)
    call = recorded(lambda x: ops.exp(x * 0.5 + 1.0), Tensor(ROWS, device=device))
    wrong: list[int] = []

    def run(index: int) -> None:
        array = ROWS / (index + 1)
        for _ in range(30):
            result = repeated(call, Tensor(array, device=device)).numpy()
            if not np.allclose(result, np.exp(array * np.float32(0.5) + 1), rtol=1e-6):
                wrong.append(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and session.pool.cached_bytes > 0


def test_compiled_functions_are_part_of_a_call(device: Device) -> None:
    x = Tensor(ROWS, device=device)
    double = dmlgpu.compile(lambda x: ops.exp(x) * 2.0)
    call = recorded(lambda x: double(x) + 1.0, x)  # tracing is no part of it
    assert call is not None and len(call.steps) == 2
    np.testing.assert_allclose(repeated(call, Tensor(-ROWS, device=device)).numpy(), np.exp(-ROWS) * 2 + 1, rtol=1e-6)
