"""The targets of the foundation, each as an interleaved ratio with its interval.

    python benchmarks/first_light.py [ADAPTER] [-k PART]

Prints a table and exits with 1 when a target is missed. Ratios are time of the hand-written thing over time of ours
("at least 0.8": ours takes at most 1 / 0.8 of its time), or time of ours over time of bare wgpu-py ("at most 2").
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import wgpu
from harness import HEAD, Bench, Call, Part, Result, fastest_copy, main, open_backend, storage

from dmlgpu import BufferBinding, Device, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType
from dmlgpu.tensor import TensorDesc

ELEMENTS = 1 << 24
SIDE = 4096
FLOAT = DataType.FLOAT32


# ---- kernels ----------------------------------------------------------------------------------------------------


def identity(
    sizes: tuple[int, ...], strides: tuple[int, ...] | None = None, data_type: DataType = FLOAT
) -> descs.ElementWiseIdentity:
    return descs.ElementWiseIdentity(
        input_tensor=TensorDesc(data_type, sizes, strides), output_tensor=TensorDesc(data_type, sizes)
    )


def movement(adapter: str) -> Iterator[Result]:
    """Copies, permutations, slices against plain copies of the same bytes."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).random(ELEMENTS, np.float32)
    copy = fastest_copy(bench, values)

    def against_copy(name: str, ours: Call, at_least: float) -> Result:
        return Result(name, ratio(copy, ours), at_least=at_least)

    yield against_copy("IDENTITY, 16M float32", bench.operator(identity((ELEMENTS,)), values), 0.8)
    rows = (8, ELEMENTS // 8)
    whole = descs.Slice1(
        input_tensor=TensorDesc(FLOAT, rows),
        output_tensor=TensorDesc(FLOAT, rows),
        input_window_offsets=(0, 0),
        input_window_sizes=rows,
        input_window_strides=(1, 1),
    )
    yield against_copy("SLICE1, 16M float32", bench.operator(whole, values.reshape(rows)), 0.8)
    permuted, strides = (16, 128, 128, 64), (128 * 128 * 64, 64, 128 * 64, 1)
    call = bench.operator(identity(permuted, strides), values.reshape(permuted))
    yield against_copy("permuted {0,2,1,3}, rows of 64", call, 0.5)
    call = bench.operator(identity((SIDE, SIDE), (1, SIDE)), values.reshape(SIDE, SIDE))
    yield against_copy("transposed [4096,4096]", call, 0.2)


def small_integers(adapter: str) -> Iterator[Result]:
    """An int8 copy against one that writes each byte atomically."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).integers(-128, 127, ELEMENTS, np.int8)
    width = -(-ELEMENTS // 64 // 8)
    atomic = storage("u32", "atomic<u32>") + (
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
        f" let i = id.x + id.y * {width * 64}u; let shift = (i % 4u) * 8u;"
        " atomicOr(&b1[i / 4u], ((b0[i / 4u] >> shift) & 255u) << shift); }"
    )
    slow = bench.kernel(atomic, (width, 8, 1), [values, values.nbytes])
    ours = bench.operator(identity((ELEMENTS,), data_type=DataType.INT8), values)
    yield Result("IDENTITY, 16M int8, against atomics", ratio(slow, ours), at_least=3.0)


# ---- Python's share ------------------------------------------------------------------------------------------

TINY = 64


def recording(adapter: str) -> Iterator[Result]:
    """Recording and submitting through DirectML's objects against bare wgpu-py doing the same in one pass."""
    device = Device(adapter)
    compiled = device.compile_operator(device.create_operator(identity((TINY,))))
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

    bare = BareWgpu(device.parent)
    yield Result("1,000 dispatches in one list", ratio(ours(1000), bare.run(1000), 31), at_most=2.0)
    yield Result("one dispatch, compiled and bound", ratio(ours(1), bare.run(1), 31, calls=50), at_most=1.5)


class BareWgpu:
    """The same copy with nothing but wgpu-py, as a careful person writes it: one pass, immediates set per dispatch."""

    def __init__(self, device: wgpu.GPUDevice):
        self.device = device
        usage = wgpu.BufferUsage.STORAGE
        buffers = [device.create_buffer(size=4 * TINY, usage=usage) for _ in range(2)]
        entries = [
            {"binding": b, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}} for b in range(2)
        ]
        layout = device.create_bind_group_layout(entries=entries)
        code = (
            HEAD
            + storage("vec4<u32>", "vec4<u32>")
            + (
                "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
                f" if (id.x < {TINY // 4}u) {{ b1[id.x] = b0[params.bases.x + id.x]; }} }}"
            )
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


def start_up(adapter: str) -> Iterator[Result]:
    """New processes: importing, and listing adapters."""
    yield Result(
        "import dmlgpu, against wgpu and numpy",
        ratio(process("import dmlgpu"), process("import wgpu, numpy"), 15),
        at_most=1.3,
    )
    listing = (
        "import wgpu\n"
        "for a in wgpu.gpu.enumerate_adapters_sync(): print(dict(a.info), sorted(a.features), dict(a.limits))"
    )
    command = process("import sys; from dmlgpu.cli.main import main; sys.argv = ['dmlgpu', 'devices']; main()")
    yield Result("dmlgpu devices, against a bare listing", ratio(command, process(listing), 15), at_most=1.2)


def process(code: str) -> Call:
    """A Python process that runs some code."""
    return lambda _: subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)


PARTS: dict[str, Part] = {
    "movement": movement,
    "small_integers": small_integers,
    "recording": recording,
    "start_up": start_up,
}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
