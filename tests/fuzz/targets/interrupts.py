"""Signals whose handlers raise, at any moment of any call, and forks: a wait ends, and the device stays usable."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import dmlgpu
from dmlgpu import BufferBinding, DataType, Device, TensorDesc, descs
from dmlgpu.catalog.enums import MatrixTransform
from dmlgpu.common.errors import DmlError
from tests.fuzz.devices import ROW, SUM, check_usable, open_device
from tests.fuzz.monitor import Monitor

ROUNDS = 20
"""Interrupts per seed."""

FORK_LIMIT = 60.0
"""Seconds for a forked child."""

MATRIX = TensorDesc(DataType.FLOAT32, (1, 1, 256, 256))
PRODUCT = descs.Gemm(
    a_tensor=MATRIX,
    b_tensor=MATRIX,
    c_tensor=None,
    output_tensor=MATRIX,
    trans_a=MatrixTransform.NONE,
    trans_b=MatrixTransform.NONE,
    alpha=1.0,
    beta=0.0,
    fused_activation=None,
)


class Interrupted(KeyboardInterrupt):
    """Raised by a signal handler, at any place; an exception of the user's own."""


def run(seed: int, monitor: Monitor) -> None:
    """Interrupt some calls; a seed in eight forks as well."""
    rng = random.Random(f"interrupts {seed}")
    device = open_device(monitor.adapter)
    work = _work(device)
    for _ in range(ROUNDS):
        name, call = rng.choice(work)
        monitor.subject = lambda name=name: f"interrupted: {name}"
        seconds = rng.choice((0.0001, 0.001, 0.01, 0.1)) * rng.random()
        _interrupted(call, seconds, rng.choice((KeyboardInterrupt, Interrupted)), monitor)
        check_usable(device, monitor)
    if seed % 8 == 0:
        _fork(device, monitor)
    device.remove()


def _interrupted(call: Callable[[], Any], seconds: float, kind: type[BaseException], monitor: Monitor) -> None:
    """Make a call, and raise an exception after some seconds, wherever this thread is then."""
    armed = True

    def handle(number: int, frame: Any) -> None:
        if armed:
            raise kind

    old = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        monitor.call(call)
        armed = False
    except KeyboardInterrupt:
        armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def _work(device: Device) -> list[tuple[str, Callable[[], Any]]]:
    """Calls that wait for the device, hand it work, or make something on it."""
    compiled = device.compile_operator(device.create_operator(PRODUCT))
    initializer = device.create_operator_initializer([compiled])
    commands, recorder = device.create_command_list(), device.create_command_recorder()
    recorder.record_dispatch(commands, initializer, device.create_binding_table(initializer))
    buffers = [device.create_buffer(4 * 256 * 256) for _ in range(3)]
    table = device.create_binding_table(compiled)
    table.bind_inputs([buffers[0], buffers[1], None])
    table.bind_outputs([BufferBinding(buffers[2])])
    if size := compiled.binding_properties.temporary_resource_size:
        table.bind_temporary_resource(device.create_buffer(size))
    commands.close()
    device.queue.execute([commands])
    commands = device.create_command_list()
    for _ in range(4):
        recorder.record_dispatch(commands, compiled, table)
    commands.close()
    fence, array = device.create_fence(), np.zeros(ROW.sizes, np.int32)

    def wait(timeout: float | None) -> None:
        device.queue.execute([commands])
        value = fence._last + 1
        device.queue.signal(fence, value)
        fence.wait(value, timeout)

    def another_device() -> None:
        other = open_device(device.adapter.name if device.parent is None else "gpu")
        dmlgpu.evaluate(SUM, [array, array], other)
        other.remove()

    return [
        ("execute", lambda: device.queue.execute([commands, commands])),
        ("execute and read", lambda: (device.queue.execute([commands]), buffers[2].read())),
        ("execute and write", lambda: (device.queue.execute([commands]), buffers[0].write(bytes(1 << 16)))),
        ("wait", lambda: wait(None)),
        ("wait with a timeout", lambda: wait(5.0)),
        ("evaluate", lambda: dmlgpu.evaluate(SUM, [array, array], device)),
        ("another device", another_device),
        ("create buffers", lambda: [device.create_buffer(1 << 16).release() for _ in range(20)]),
    ]


def _fork(device: Device, monitor: Monitor) -> None:
    """A forked child may use the device or gets an exception; it ends."""
    monitor.subject = lambda: "in a forked child"
    for index, name in enumerate(("use", "another device", "nothing")):
        child = multiprocessing.get_context("fork").Process(target=_in_child, args=(device, monitor.adapter, index))
        monitor.call(child.start)
        child.join(FORK_LIMIT)
        hangs = child.is_alive()
        if hangs:
            child.kill()
            child.join()
        monitor.check(not hangs, "hang", f"forked child: {name}")
        monitor.check(hangs or child.exitcode == 0, "exit code", f"forked child: {name}", str(child.exitcode))
    check_usable(device, monitor)


def _in_child(device: Device, adapter: str, number: int) -> None:
    try:
        array = np.ones(ROW.sizes, np.int32)
        if number < 2:
            dmlgpu.evaluate(SUM, [array, array], open_device(adapter) if number else device)
    except DmlError:
        pass
    except BaseException:
        traceback.print_exc()
        sys.exit(3)
