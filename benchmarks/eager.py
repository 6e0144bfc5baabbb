"""Eager calls: what they cost beside a prepared dispatch.

    python benchmarks/eager.py [ADAPTER] [-k PART]

Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Part, Result, main
from measure import ratio

from dmlgpu import Device, Tensor, TensorDesc, descs, ops
from dmlgpu.enums import DataType

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


def calls(adapter: str) -> Iterator[Result]:
    """Calls of cached operators on tensors: at most 3 times a prepared dispatch, the wait for both included."""
    device = Device(adapter)
    values = np.random.default_rng(1).standard_normal(SIZES).astype(np.float32)
    x, whole = Tensor(values, device=device), TensorDesc(DataType.FLOAT32, SIZES)
    fence, reached = device.create_fence(), 0

    def waiting(call: Callable[[], Any]) -> Callable[[int], None]:
        def run(_: int) -> None:
            nonlocal reached
            call()
            reached += 1
            device.queue.signal(fence, reached)
            fence.wait(reached)

        return run

    add = descs.ElementWiseAdd(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    softmax = descs.ActivationSoftmax1(input_tensor=whole, output_tensor=whole, axes=(1,))
    for name, eager, desc in (
        ("x + x", lambda: x + x, add),
        ("ops.add", lambda: ops.add(x, x), add),
        ("ops.softmax", lambda: ops.softmax(x), softmax),
    ):
        measured = ratio(waiting(eager), waiting(prepared(device, desc, values)), 31, calls=20, warm=20)
        yield Result(f"{name}, 64 x 64 / a prepared dispatch", measured, at_most=3.0)


PARTS: dict[str, Part] = {"calls": calls}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
