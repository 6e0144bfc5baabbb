"""Repeated runs of a compiled graph: parts of graphs.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from targets import Call, Result
from wgpu.backends.wgpu_native._api import libf
from wgpu.backends.wgpu_native._ffi import ffi

from dmlgpu import CommandList, Device, Expression, Graph, TensorDesc, descs, evaluate
from dmlgpu.bench.ratios import ratio
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.wgpu.queue import KernelWork

SIDE = 8
NODES = 30
KERNELS = 100
FRAME = (1, 1, 512, 512)


class Compiled:
    """A graph of one input and one output with its buffers, recorded once."""

    def __init__(self, device: Device, sizes: Sequence[int], build: Callable[[Expression], Expression]):
        graph = Graph(device)
        output = build(graph.input(sizes))
        compiled = graph.compile([output])
        initializer = device.create_operator_initializer([compiled])
        self.device, self.sizes = device, output.sizes
        self.source = device.create_buffer(4 * int(np.prod(sizes)))
        self.target = device.create_buffer(4 * int(np.prod(output.sizes)))
        filled, table = device.create_binding_table(initializer), device.create_binding_table(compiled)
        properties = compiled.binding_properties
        if properties.persistent_resource_size:
            persistent = device.create_buffer(properties.persistent_resource_size)
            filled.bind_outputs([persistent])
            table.bind_persistent_resource(persistent)
        if properties.temporary_resource_size:
            table.bind_temporary_resource(device.create_buffer(properties.temporary_resource_size))
        table.bind_inputs([self.source])
        table.bind_outputs([self.target])
        first, self.list = device.create_command_list(), device.create_command_list()
        recorder = device.create_command_recorder()
        recorder.record_dispatch(first, initializer, filled)
        recorder.record_dispatch(self.list, compiled, table)
        first.close()
        self.list.close()
        device.queue.execute([first])
        self.fence, self.value = device.create_fence(), 0

    def start(self, values: NDArray[np.float32]) -> None:
        """Update the input in place, and run."""
        self.source.write(values)
        self.device.queue.execute([self.list])

    def run(self, _: int = 0) -> None:
        """Run and wait."""
        self.device.queue.execute([self.list])
        self.value += 1
        self.device.queue.signal(self.fence, self.value)
        self.fence.wait(self.value)

    @property
    def work(self) -> Sequence[KernelWork]:
        """The graph's dispatches."""
        return _work(self.list)


def _work(command_list: CommandList) -> Sequence[KernelWork]:
    batch = command_list._batch
    assert batch is not None
    return batch.work


def running_sums(count: int) -> Callable[[Expression], Expression]:
    """Nodes that are not fused: running sums along the last two axes in turn."""

    def build(x: Expression) -> Expression:
        for number in range(count):
            x = functions.cumulative_summation(x, axis=2 + number % 2)
        return x

    return build


class Bare:
    """The dispatches of a graph by wgpu-py alone, as a careful person writes it: one pass, all set per dispatch."""

    def __init__(self, compiled: Compiled):
        self.device = compiled.device.parent
        self.work = [
            (item.pipeline, item.group, b"" if item.parameters is None else bytes(item.parameters), *item[3:6])
            for item in compiled.work
        ]

    def submit(self) -> None:
        encoder = self.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        for pipeline, group, parameters, x, y, z in self.work:
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, group)
            if parameters:
                compute_pass.set_immediates(0, parameters, 0, len(parameters))
            compute_pass.dispatch_workgroups(x, y, z)
        compute_pass.end()
        self.device.queue.submit([encoder.finish()])

    def run(self, _: int = 0) -> None:
        """Submit and wait."""
        self.submit()
        libf.wgpuDevicePoll(self.device._internal, True, ffi.NULL)


class Raw:
    """The same dispatches through wgpu-py's C library, each call checked, with handles looked up beforehand."""

    def __init__(self, compiled: Compiled):
        self.device = compiled.device.parent
        self.work = [
            (item.pipeline._internal, item.group._internal, item.parameters, *item[3:6]) for item in compiled.work
        ]

    def submit(self) -> None:
        encoder = self.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        this = compute_pass._internal
        for pipeline, group, parameters, x, y, z in self.work:
            libf.wgpuComputePassEncoderSetPipeline(this, pipeline)
            libf.wgpuComputePassEncoderSetBindGroup(this, 0, group, 0, ffi.NULL)
            if parameters is not None:
                libf.wgpuComputePassEncoderSetImmediates(this, 0, parameters, len(parameters))
            libf.wgpuComputePassEncoderDispatchWorkgroups(this, x, y, z)
        compute_pass.end()
        self.device.queue.submit([encoder.finish()])


def tiny_nodes(adapter: str) -> Iterator[Result]:
    """A graph of 30 tiny nodes, each a kernel: 10 times as fast as 30 calls of evaluate, inputs written and outputs
    read; at most twice the time of bare wgpu-py running as many dispatches."""
    device = Device(adapter)
    compiled = Compiled(device, (1, 1, SIDE, SIDE), running_sums(NODES))
    kernels = len(compiled.work)
    values = np.random.default_rng(1).random((1, 1, SIDE, SIDE), np.float32) / SIDE
    tensor = TensorDesc(DataType.FLOAT32, values.shape)
    nodes = [
        descs.CumulativeSummation(
            input_tensor=tensor,
            output_tensor=tensor,
            axis=2 + number % 2,
            axis_direction=AxisDirection.INCREASING,
            has_exclusive_sum=False,
        )
        for number in range(NODES)
    ]

    def one_by_one(_: int) -> NDArray[np.float32]:
        array = values
        for node in nodes:
            (array,) = evaluate(node, [array], device)
        return array

    def graph(_: int) -> NDArray[np.float32]:
        compiled.start(values)
        return compiled.target.read().view(np.float32).reshape(values.shape)

    assert np.allclose(one_by_one(0), graph(0), rtol=1e-4)
    yield Result(f"{NODES} evaluate calls / a graph of {kernels} kernels", ratio(one_by_one, graph, 15), at_least=10.0)
    name = f"the graph / {kernels} dispatches by bare wgpu-py"
    yield Result(name, ratio(compiled.run, Bare(compiled).run, 31, calls=10), at_most=2.0)


def python_share(adapter: str) -> Iterator[Result]:
    """CPU time of this thread to submit 100 kernels again, without waits: at most 1.2 times that of bare wgpu-py and
    of wgpu-py's C library."""
    device = Device(adapter)
    compiled = Compiled(device, (1, 1, SIDE, SIDE), running_sums(KERNELS))
    kernels, spent = len(compiled.work), 0.0

    def counted(submit: Callable[[], None]) -> Call:
        def call(_: int) -> None:
            nonlocal spent
            start = time.thread_time()
            submit()
            spent += time.thread_time() - start
            libf.wgpuDevicePoll(device.parent._internal, True, ffi.NULL)

        return call

    def clock() -> float:
        return spent

    execute = device.queue.execute
    ours = counted(lambda: execute([compiled.list]))
    for name, other in (("bare wgpu-py", Bare(compiled)), ("the checked C library", Raw(compiled))):
        measured = ratio(ours, counted(other.submit), 31, calls=5, clock=clock)
        yield Result(f"Python for {kernels} kernels / by {name}", measured, at_most=1.2)


def overlap(adapter: str) -> Iterator[Result]:
    """Frames that are used, by NumPy or by a pause without CPU time, before the next run or in parallel to it."""
    compiled = Compiled(Device(adapter), FRAME, lambda x: functions.activation_tanh(functions.gemm(x, x, alpha=1 / 32)))
    rng = np.random.default_rng(1)
    frames = [rng.standard_normal(FRAME, np.float32) for _ in range(8)]

    def sort(data: NDArray[np.uint8]) -> None:
        np.sort(data.view(np.float32))

    def pause(_: NDArray[np.uint8]) -> None:
        time.sleep(0.02)

    for name, use in (("sorted by NumPy", sort), ("a pause of 20 ms each", pause)):

        def in_turn(_: int, use: Callable[[NDArray[np.uint8]], None] = use) -> None:
            for frame in frames:
                compiled.start(frame)
                use(compiled.target.read())

        def overlapping(_: int, use: Callable[[NDArray[np.uint8]], None] = use) -> None:
            readback = None
            for frame in frames:
                compiled.start(frame)
                if readback is not None:
                    use(readback.result())
                readback = compiled.target.read_async()
            assert readback is not None
            use(readback.result())

        yield Result(f"{len(frames)} overlapping frames / in turn, {name}", ratio(overlapping, in_turn, 15))
