"""Run in a process of its own: what a forked child does with objects of its parent, which used an adapter.

Arguments: the adapter, the test.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import dmlgpu
from dmlgpu import BufferBinding, DataType, InvalidState, TensorDesc, descs
from dmlgpu.runtime.wgpu import GpuBackend

ROW = TensorDesc(DataType.FLOAT32, (1, 4))
DESC = descs.ElementWiseExp(input_tensor=ROW, output_tensor=ROW)
TIME_LIMIT = 40


def evaluated(device: dmlgpu.Device) -> float:
    """Compute exp(0) on a device."""
    return float(dmlgpu.evaluate(DESC, [np.zeros((1, 4), np.float32)], device=device)[0][0, 0])


def finish(process: int) -> None:
    """Wait for a child, which must end soon and well."""
    deadline = time.monotonic() + TIME_LIMIT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, status
            return
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    raise AssertionError("the child hangs")


def fork(action: Callable[[], None], *, leave_at_once: bool = False) -> None:
    """Do something in a child, which then ends as a program does."""
    process = os.fork()
    if process:
        finish(process)
        return
    status = 1
    try:
        action()
        status = 0
    finally:
        if leave_at_once or status:
            sys.excepthook(*sys.exc_info()) if status else None
            os._exit(status)
    sys.exit(0)


def objects(adapter: str) -> None:
    """Every call on the parent's objects is rejected at once; they can be released."""
    assert evaluated(dmlgpu.Device("numpy")) == 1  # loaded once, for all children
    device = dmlgpu.Device(adapter)
    operator = device.create_operator(DESC)
    compiled = device.compile_operator(operator)
    initializer = device.create_operator_initializer([compiled])
    recorder, queue, fence = device.create_command_recorder(), device.queue, device.create_fence()
    source, target = device.create_buffer(16), device.create_buffer(16)
    table, first = device.create_binding_table(compiled), device.create_binding_table(initializer)
    table.bind_inputs([BufferBinding(source)])
    table.bind_outputs([BufferBinding(target)])
    closed, opened = device.create_command_list(), device.create_command_list()
    recorder.record_dispatch(closed, initializer, first)
    recorder.record_dispatch(closed, compiled, table)
    closed.close()
    queue.execute([closed])
    queue.signal(fence, 1)
    assert fence.wait(1)
    assert (target.read().view(np.float32) == 1).all()
    backend = device.backend
    assert isinstance(backend, GpuBackend)
    memory = backend.create_buffer(16, "memory")
    program = backend._program(DESC, half_precision=False)
    work = backend.copy(target.memory, 0, memory, 0, 16)
    bytes16 = np.zeros(16, np.uint8)
    calls: dict[str, Callable[[], object]] = {
        "execute": lambda: queue.execute([closed]),
        "execute nothing": lambda: queue.execute([]),
        "signal": lambda: queue.signal(fence, 2),
        "wait": lambda: fence.wait(1),
        "wait for a signal": lambda: fence.wait(2, timeout=60),
        "completed value": lambda: fence.completed_value,
        "read": target.read,
        "write": lambda: source.write(bytes16),
        "create_buffer": lambda: device.create_buffer(16),
        "create_command_list": device.create_command_list,
        "close": opened.close,
        "copy_buffer": lambda: opened.copy_buffer(target, 0, source, 0, 16),
        "record": lambda: recorder.record_dispatch(opened, compiled, table),
        "create_operator": lambda: device.create_operator(DESC),
        "compile_operator": lambda: device.compile_operator(operator),
        "create_fence": device.create_fence,
        "create_binding_table": lambda: device.create_binding_table(compiled),
        "evaluate": lambda: evaluated(device),
        "from_wgpu": lambda: dmlgpu.Device.from_wgpu(device.parent),
        "new device": lambda: dmlgpu.Device(adapter),
        "backend create": lambda: backend.create_buffer(16, "new"),
        "backend read": lambda: backend.read(memory, 0, 16),
        "backend write": lambda: backend.write(memory, 0, bytes16),
        "backend submit": lambda: backend.submit([work]),
        "backend wait": lambda: backend.wait(10**6),
        "backend time": lambda: backend.time([work]),
        "backend prepare": lambda: backend.prepare(program),
    }

    def child() -> None:
        nonlocal compiled, table, closed
        start = time.perf_counter()
        for name, call in calls.items():
            try:
                call()
            except InvalidState as refused:
                assert "fork" in str(refused), (name, refused)
                assert "'spawn'" in str(refused), (name, refused)
            else:
                raise AssertionError(f"{name} was not refused")
        source.release()
        device.remove()
        backend.close()
        calls.clear()
        del compiled, table, closed
        assert device.removed_reason is not None
        assert evaluated(dmlgpu.Device("numpy")) == 1
        assert time.perf_counter() - start < 5

    fork(lambda: None)
    fork(child)
    fork(lambda: fork(child, leave_at_once=True))  # a child's child
    assert evaluated(device) == 1  # the parent continues
    pool(adapter)


def _worker(value: int) -> str:
    try:
        return str(evaluated(dmlgpu.default_device()))
    except InvalidState as refused:
        return f"{value}: {refused}"


def pool(adapter: str) -> None:
    """Processes that multiprocessing forks get an exception, and may use the reference."""
    os.environ["DMLGPU_ADAPTER"] = adapter
    with multiprocessing.get_context("fork").Pool(1) as workers:
        (answer,) = workers.map_async(_worker, [7]).get(TIME_LIMIT)
    assert answer.startswith("7: "), answer
    assert "'spawn'" in answer, answer
    os.environ["DMLGPU_ADAPTER"] = "numpy"
    with multiprocessing.get_context("fork").Pool(1) as workers:
        assert workers.map_async(_worker, [0]).get(TIME_LIMIT) == ["1.0"]


def first(adapter: str) -> None:
    """The reference works in a child. A child uses a GPU if its parent has not listed adapters."""
    device = dmlgpu.Device("numpy")
    buffer = device.create_buffer(16)
    buffer.write(np.arange(4, dtype=np.float32))

    def child() -> None:
        assert buffer.read().view(np.float32).tolist() == [0, 1, 2, 3]
        assert evaluated(dmlgpu.Device(adapter)) == 1

    def hold() -> None:
        with device._state.lock:
            held.set()
            over.wait()

    held, over = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    fork(child)  # which has no thread that could let go of the lock
    over.set()
    holder.join()
    known = [str(info) for info in dmlgpu.adapters()]

    def late() -> None:
        assert [str(info) for info in dmlgpu.adapters()] == known
        try:
            dmlgpu.Device(adapter)
        except InvalidState as refused:
            assert str(refused).endswith(
                ": this process was forked from one that had used a GPU or looked for adapters, but GPU drivers are "
                "not fork-safe; start processes with multiprocessing's 'spawn', or use the adapter 'numpy'"
            )
        else:
            raise AssertionError("a new device was not refused")
        assert buffer.read().view(np.float32).tolist() == [0, 1, 2, 3]

    fork(late)


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[1])
    print("done")
