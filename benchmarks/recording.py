"""What Python costs: recording and submitting through DirectML's objects against bare wgpu-py doing the same.

    python benchmarks/recording.py [ADAPTER]

Ratios are time of ours over time of bare wgpu-py, interleaved. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import wgpu
from targets import Call, Part, Result, main

from dmlgpu import BufferBinding, Device, adapters, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc

FLOAT = DataType.FLOAT32
TINY = 64
HEAD = """struct Params { bases: vec4<u32>, more_bases: vec4<u32>, zero: u32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<u32>>;
"""


def identity() -> descs.ElementWiseIdentity:
    """A copy of a few elements."""
    tensor = TensorDesc(FLOAT, (TINY,))
    return descs.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor)


def recording(adapter: str) -> Iterator[Result]:
    """Recording and submitting through DirectML's objects against bare wgpu-py doing the same in one pass."""
    device = Device(adapter)
    ours, bare = recorded(device), BareWgpu(device.parent)
    yield Result("1,000 dispatches in one list", ratio(ours(1000), bare.run(1000), 31), at_most=2.0)
    yield Result("one dispatch, compiled and bound", ratio(ours(1), bare.run(1), 31, calls=50), at_most=1.5)


def libraries(adapter: str) -> Iterator[Result]:
    """Recording and submitting on an adapter of Dawn against one of wgpu-native, if Dawn is installed."""
    if not any(info.is_of_dawn for info in adapters()):
        return
    dawn, native = (recorded(Device(name)) for name in ("dawn", adapter))
    for clock, read in {"wall": time.perf_counter, "CPU time of the thread": time.thread_time}.items():
        yield Result(f"1,000 dispatches, Dawn / wgpu, {clock}", ratio(dawn(1000), native(1000), 31, clock=read))
        yield Result(f"one dispatch, Dawn / wgpu, {clock}", ratio(dawn(1), native(1), 31, calls=50, clock=read))


def recorded(device: Device) -> Callable[[int], Call]:
    """A function that returns a call which records, submits and waits for a number of dispatches."""
    compiled = device.compile_operator(device.create_operator(identity()))
    tables = []
    for _ in range(2):  # two sets of bindings in turn, so that none of the recording can be left out
        table = device.create_binding_table(compiled)
        table.bind_inputs([BufferBinding(device.create_buffer(4 * TINY))])
        table.bind_outputs([BufferBinding(device.create_buffer(4 * TINY))])
        tables.append(table)
    recorder, commands, fence = device.create_command_recorder(), device.create_command_list(), device.create_fence()
    initializer = device.create_operator_initializer([compiled])
    recorder.record_dispatch(commands, initializer, device.create_binding_table(initializer))
    commands.close()
    device.queue.execute([commands])
    value = 0

    def ours(count: int) -> Call:
        def run(_: int) -> None:
            nonlocal value
            value += 1
            commands.reset()
            for number in range(count):
                recorder.record_dispatch(commands, compiled, tables[number % 2])
            commands.close()
            device.queue.execute([commands])
            device.queue.signal(fence, value)
            fence.wait(value)

        return run

    return ours


class BareWgpu:
    """The same copy with only wgpu-py, carefully written: one pass, immediates set per dispatch."""

    def __init__(self, device: wgpu.GPUDevice):
        self.device = device
        usage = wgpu.BufferUsage.STORAGE
        buffers = [device.create_buffer(size=4 * TINY, usage=usage) for _ in range(2)]
        entries = [
            {"binding": b, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}} for b in range(2)
        ]
        layout = device.create_bind_group_layout(entries=entries)
        code = (
            HEAD + "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
            f" if (id.x < {TINY // 4}u) {{ b1[id.x] = b0[params.bases.x + id.x]; }} }}"
        )
        pipeline_layout = device.create_pipeline_layout(bind_group_layouts=[layout], immediate_size=48)
        module = device.create_shader_module(code=code)
        self.pipeline = device.create_compute_pipeline(
            layout=pipeline_layout, compute={"module": module, "entry_point": "main"}
        )
        self.groups = [
            device.create_bind_group(
                layout=layout, entries=[{"binding": b, "resource": {"buffer": buffer}} for b, buffer in enumerate(pair)]
            )
            for pair in (buffers, buffers[::-1])
        ]
        self.immediates = bytes(48)

    def run(self, count: int) -> Call:
        from wgpu.backends.wgpu_native._ffi import ffi, lib  # noqa: PLC0415  (wgpu-py has no public wait)

        def call(_: int) -> None:
            encoder = self.device.create_command_encoder()
            work = encoder.begin_compute_pass()
            for number in range(count):
                work.set_pipeline(self.pipeline)
                work.set_bind_group(0, self.groups[number % 2])
                work.set_immediates(0, self.immediates, 0, 48)
                work.dispatch_workgroups(1)
            work.end()
            self.device.queue.submit([encoder.finish()])
            lib.wgpuDevicePoll(self.device._internal, True, ffi.NULL)

        return call


PARTS: dict[str, Part] = {"recording": recording, "libraries": libraries}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
