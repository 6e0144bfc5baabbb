"""Eager calls compared with a prepared dispatch, and compiled functions compared with their parts.

    python benchmarks/eager.py [ADAPTER] [-k PART]

Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from targets import Part, Result, main

import dmlgpu
from dmlgpu import Device, Tensor, TensorDesc, descs, ops
from dmlgpu.bench.ratios import ratio
from dmlgpu.catalog.enums import DataType

SIZES = (64, 64)


def prepared(device: Device, desc: Any, x: np.ndarray[Any, Any]) -> Callable[[], None]:
    """An operator on one input, recorded once: what remains is its execution."""
    compiled = device.compile_operator(device.create_operator(desc))
    initializer, recorder = device.create_operator_initializer([compiled]), device.create_command_recorder()
    buffers = [device.create_buffer(port.desc.byte_size) for port in (*compiled.inputs, *compiled.outputs) if port.desc]
    for buffer in buffers[:-1]:
        buffer.write(x)
    table = device.create_binding_table(compiled)
    table.bind_inputs(buffers[:-1])
    table.bind_outputs(buffers[-1:])
    if compiled.binding_properties.temporary_resource_size:
        table.bind_temporary_resource(device.create_buffer(compiled.binding_properties.temporary_resource_size))
    first, commands = device.create_command_list(), device.create_command_list()
    recorder.record_dispatch(first, initializer, device.create_binding_table(initializer))
    recorder.record_dispatch(commands, compiled, table)
    first.close()
    commands.close()
    device.queue.execute([first])
    return lambda: device.queue.execute([commands])


def waits(device: Device) -> Callable[[Callable[[], Any]], Callable[[int], None]]:
    """Return what makes a call wait until the device has done it."""
    fence, reached = device.create_fence(), 0

    def waiting(call: Callable[[], Any]) -> Callable[[int], None]:
        def run(_: int) -> None:
            nonlocal reached
            call()
            reached += 1
            device.queue.signal(fence, reached)
            fence.wait(reached)

        return run

    return waiting


def calls(adapter: str) -> Iterator[Result]:
    """Calls of cached operators on tensors: at most 3 times a prepared dispatch, the wait for both included."""
    device = Device(adapter)
    values = np.random.default_rng(1).standard_normal(SIZES).astype(np.float32)
    x, whole = Tensor(values, device=device), TensorDesc(DataType.FLOAT32, SIZES)
    waiting = waits(device)
    add = descs.ElementWiseAdd(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    softmax = descs.ActivationSoftmax1(input_tensor=whole, output_tensor=whole, axes=(1,))
    for name, eager, desc in (
        ("x + x", lambda: x + x, add),
        ("ops.add", lambda: ops.add(x, x), add),
        ("ops.softmax", lambda: ops.softmax(x), softmax),
    ):
        measured = ratio(waiting(eager), waiting(prepared(device, desc, values)), 31, calls=20, warm=20)
        yield Result(f"{name}, 64 x 64 / a prepared dispatch", measured, at_most=3.0)


def chains(adapter: str) -> Iterator[Result]:
    """Chains of ten element-wise calls, compiled: at most 1.3 times one of the calls."""
    device = Device(adapter)
    waiting = waits(device)

    def numbers(x: Tensor) -> Tensor:
        return (abs(-(abs(x * 1.5 + 0.25) - 2) * 3) - 7) * 0.5 + 1

    def tensors(x: Tensor) -> Tensor:
        return ((x * x + x) * x - x) * x + x - x * x + x

    for count in (1 << 20, 1 << 22):
        x = Tensor(np.random.default_rng(1).standard_normal(count).astype(np.float32), device=device)
        for name, chain, single in (
            ("numbers", numbers, lambda x=x: x + 1.5),
            ("tensors", tensors, lambda x=x: x + x),
        ):
            compiled = dmlgpu.compile(chain)
            measured = ratio(waiting(lambda run=compiled, x=x: run(x)), waiting(single), 31, calls=2, warm=5)
            label = f"ten calls with {name} compiled / one, {count >> 20}M elements"
            yield Result(label, measured, at_most=1.3)
            eager = ratio(waiting(lambda run=chain, x=x: run(x)), waiting(single), 11, warm=3)
            yield Result(f"ten calls with {name} eagerly / one, {count >> 20}M elements", eager)


def small(adapter: str) -> Iterator[Result]:
    """The call of a compiled function of one operator, dominated by the overhead of the call."""
    device = Device(adapter)
    waiting = waits(device)
    values = np.random.default_rng(1).standard_normal(SIZES).astype(np.float32)
    x, whole = Tensor(values, device=device), TensorDesc(DataType.FLOAT32, SIZES)
    add = descs.ElementWiseAdd(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    compiled = dmlgpu.compile(lambda a: a + a)
    measured = ratio(waiting(lambda: compiled(x)), waiting(prepared(device, add, values)), 31, calls=20, warm=20)
    yield Result("compiled x + x, 64 x 64 / a prepared dispatch", measured, at_most=3.0)


PARTS: dict[str, Part] = {"calls": calls, "chains": chains, "small": small}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
