"""Pipelines are created at once, each once, regardless of events meanwhile; timings are reported."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_programs import add, kernel, output_slot, program, words

import dmlgpu
from dmlgpu import DataType, Device, TensorDesc, Timings
from dmlgpu.common.errors import DeviceRemoved, NotSupported, ShaderError
from dmlgpu.compiler.program import Copy, Program
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.progress import KernelProgress, reported_to
from dmlgpu.runtime.rendered import KERNEL_BYTES
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.runtime.wgpu.queue import GpuQueue

ROW = TensorDesc(DataType.FLOAT32, (4,))
RELU = dmlgpu.descs.ActivationRelu(input_tensor=ROW, output_tensor=ROW)

UNTIMED = 0.1
"""Seconds of a first run that no timing covers where pipelines are made fast: the run itself, reading the result."""


def sums(backend: GpuBackend, values: list[int]) -> Program:
    """Add values in place, one kernel each."""
    kernels = [kernel(backend, f"s0[b0 + i] += {value}u;", [output_slot()], label=f"add {value}") for value in values]
    return program(backend, *kernels)


def run(backend: GpuBackend, program: Program) -> int:
    """What adding to 0 makes."""
    buffer = backend.create_buffer(256, "buffer")
    work = backend.prepare(program).bind(Resources((), (Range(buffer, 0, 256),)))
    backend.wait(backend.submit(work))
    (result,) = set(backend.read(buffer, 0, 256).view(np.uint32).tolist())
    return result


@pytest.fixture(params=[1, 4], ids=["one core", "four cores"], autouse=True)
def some_cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many the machine has."""
    monkeypatch.setattr("dmlgpu.runtime.wgpu.pipelines.cores", lambda: request.param)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Has something done, given the label, before each pipeline that is made."""

    def before_each(action: Callable[[str], None]) -> None:
        compile_one = GpuPipelines.create_pipeline

        def compile_after(self: GpuPipelines, operator: str, kernel: Any, layout: Any) -> Any:
            action(kernel.label)
            return compile_one(self, operator, kernel, layout)

        monkeypatch.setattr(GpuPipelines, "create_pipeline", compile_after)

    return before_each


def test_equal_kernels_of_a_program_are_compiled_once(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    labels: list[str] = []
    compiling(labels.append)
    program = sums(fresh, [1, 2, 1, 3, 2, 1])
    assert [kernel.label for kernel in fresh.prepare(program).new] == ["add 1", "add 2", "add 3"]
    assert sorted(labels) == ["add 1", "add 2", "add 3"]
    assert run(fresh, program) == 10
    assert len(labels) == 3


def test_kernels_are_compiled_in_the_order_of_their_first_use(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the initialization first."""
    monkeypatch.setattr("dmlgpu.runtime.wgpu.pipelines.cores", lambda: 1)
    labels: list[str] = []
    compiling(labels.append)
    initialization = sums(fresh, [7, 3]).kernels
    executable = fresh.prepare(replace(sums(fresh, [5, 1, 5, 3, 2]), initialization=initialization))
    expected = ["add 7", "add 3", "add 5", "add 1", "add 2"]
    assert labels == [kernel.label for kernel in executable.new] == expected


def test_kernels_of_a_program_are_compiled_in_parallel(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if fresh.info.backend == "OpenGL":
        pytest.skip("OpenGL's pipelines are made in turn")
    monkeypatch.setattr("dmlgpu.runtime.wgpu.pipelines.cores", lambda: 3)
    all_three = threading.Barrier(3, timeout=60)
    compiling(lambda _: all_three.wait() and None)
    assert len(fresh.prepare(sums(fresh, [1, 2, 3])).new) == 3


def test_progress_reports_each_kernel(fresh: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgpu.runtime.wgpu.pipelines.cores", lambda: 1)
    events: list[KernelProgress] = []
    with reported_to(events.append):
        executable = fresh.prepare(sums(fresh, [1, 2, 3]))
    fresh.prepare(sums(fresh, [4, 5]))
    assert [(event.done, event.total) for event in events] == [(1, 3), (2, 3), (3, 3)]
    lengths = [len(kernel.wgsl) for kernel in executable.new]
    for index, event in enumerate(events, 1):
        assert event.remaining == pytest.approx(event.seconds * sum(lengths[index:]) / sum(lengths[:index]))
    assert 0 < events[0].seconds <= events[1].seconds <= events[2].seconds <= executable.timings.driver
    assert str(events[2]) == "3 of 3 kernels, about 0.0 s left"


def test_only_kernels_that_are_dispatched_are_compiled(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    """Not those that become copies, until buffers are bound between which WebGPU does not copy."""
    labels: list[str] = []
    compiling(labels.append)
    both = sums(fresh, [1, 2])
    first, second = both.kernels
    copied = replace(first, slots=(output_slot(), output_slot(1)), copy=Copy(0, 0, 1, 0, 256))
    executable = fresh.prepare(replace(both, kernels=(copied, second)))
    assert labels == ["add 2"]
    assert executable.memory == fresh.pipelines.size_of(second.wgsl) + 2 * KERNEL_BYTES
    assert fresh.prepare(replace(both, kernels=(copied, second))).memory == 2 * KERNEL_BYTES

    source, target = (fresh.create_buffer(256, name) for name in ("source", "target"))
    fresh.write(source, 0, words([5] * 64))
    memory = Resources((), (Range(source, 0, 256), Range(target, 0, 256)))
    fresh.wait(fresh.submit(executable.bind(memory)))
    assert (fresh.read(target, 0, 256).view(np.uint32) == 5).all()  # copied before 2 is added to the source
    assert (fresh.read(source, 0, 256).view(np.uint32) == 7).all()
    assert labels == ["add 2"]

    third = replace(sums(fresh, [3]).kernels[0], slots=copied.slots, copy=Copy(0, 0, 1, 0, 128))
    executable = fresh.prepare(replace(both, kernels=(third,)))
    large = fresh.create_buffer(512, "both")
    executable.bind(Resources((), (Range(large, 0, 256), Range(large, 256, 256))))
    assert labels == ["add 2", "add 3"]


def test_a_graph_compiles_only_kernels_that_it_dispatches(
    adapter: AdapterInfo, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    """Not those of its nodes by themselves, and none of nodes that no output reads."""
    device, labels = Device(adapter), list[str]()
    compiling(labels.append)
    graph = dmlgpu.Graph(device)
    x = graph.input((3, 37))
    dmlgpu.ops.exp(x)  # never read
    compiled = graph.compile([dmlgpu.ops.relu(x * 2) + 1, dmlgpu.ops.sum(x, axis=1)])
    assert compiled.program is not None
    kernels = compiled.program.kernels
    assert sorted(labels) == sorted({kernel.wgsl: kernel.label for kernel in kernels}.values())
    assert len(labels) == 2


def test_threads_that_make_equal_kernels_share_them(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    if fresh.info.backend != "OpenGL":  # whose pipelines are made in turn
        both = threading.Barrier(2, timeout=60)
        compiling(lambda _: both.wait() and None)
    preparations: list[Any] = []
    threads = [threading.Thread(target=lambda: preparations.append(fresh.prepare(add(fresh, 1)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fresh.pipelines) == 1
    assert sorted(len(preparation.new) for preparation in preparations) == [0, 1]


def test_the_first_kernel_that_does_not_compile_is_named(backend: GpuBackend) -> None:
    good = [kernel(backend, f"s0[b0 + i] += {value}u;", [output_slot()], label=f"{value}") for value in range(4)]
    bad = [kernel(backend, f"nonsense{value}();", [output_slot()], label=f"bad {value}") for value in range(2)]
    with pytest.raises(ShaderError, match=r"^TEST: kernel 'bad 0' does not compile on .*nonsense0"):
        backend.prepare(program(backend, good[0], good[1], bad[0], good[2], bad[1], good[3]))
    assert "dmlgpu helper" not in [thread.name for thread in threading.enumerate()]
    assert run(backend, sums(backend, [1, 2])) == 3


def test_a_device_that_is_closed_meanwhile(
    fresh: GpuBackend, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    if fresh.info.backend == "OpenGL":
        pytest.skip("OpenGL's pipelines are made under the lock that closing needs")

    def close(label: str) -> None:
        if label == "add 2":
            fresh.close()

    compiling(close)
    with pytest.raises(DeviceRemoved, match="the device was closed"):
        fresh.prepare(sums(fresh, [1, 2, 3, 4]))
    gc.collect()
    assert len(fresh.pipelines) == 0


@pytest.mark.parametrize("specialize", ["auto", "always", "never"])
def test_a_device_that_is_lost_while_kernels_are_compiled(
    adapter: AdapterInfo, compiling: Callable[[Callable[[str], None]], None], specialize: str
) -> None:
    device = Device(adapter, specialize=specialize)
    backend = device.backend
    assert isinstance(backend, GpuBackend)
    known, large = (dmlgpu.Tensor(np.zeros((rows, 5), np.float32), device=device) for rows in (3, 8))
    assert (dmlgpu.ops.cos(known).numpy() == 1).all()
    compiling(lambda _: backend.wgpu_device.destroy())
    message = "the driver lost the device; create a new device"
    calls: list[Callable[[], Any]] = [
        lambda: dmlgpu.ops.exp(known).numpy(),  # compiled
        lambda: dmlgpu.ops.cos(known).numpy(),  # compiled before
        lambda: dmlgpu.ops.cos(large).numpy(),  # compiled, or of a general kernel
        known.numpy,
    ]
    for call in calls:
        with pytest.raises(DeviceRemoved, match=message):
            call()
    assert message in str(device.removed_reason)
    assert "dmlgpu helper" not in [thread.name for thread in threading.enumerate()]


def test_other_threads_use_the_device_meanwhile(
    adapter: AdapterInfo, compiling: Callable[[Callable[[str], None]], None]
) -> None:
    if adapter.backend == "OpenGL":
        pytest.skip("OpenGL's one context makes others wait")
    device = Device(adapter)
    buffer = device.create_buffer(256)
    read: list[Any] = []

    def use(_label: str) -> None:
        thread = threading.Thread(target=lambda: read.append(buffer.read()))
        thread.start()
        thread.join(60)

    compiling(use)
    device.compile_operator(device.create_operator(RELU))
    assert len(read) == 1


def test_timings_cover_every_stage(adapter: AdapterInfo) -> None:
    graph = dmlgpu.Graph()
    image = graph.input((1, 1, 4, 4))
    result = functions.activation_softmax1(image + graph.constant(np.ones((1, 1, 4, 4), np.float32)), axes=(3,))
    first, second = Device(adapter), Device(adapter)
    timings, again, other = (device.compile_graph(graph.desc([result])).timings for device in (first, first, second))
    for measured in (timings, again, other):
        assert isinstance(measured, Timings)
        assert min(measured.planning, measured.rendering, measured.driver, measured.upload) > 0
        assert measured.total == measured.planning + measured.rendering + measured.driver + measured.upload


def test_timings_count_the_translation_once(fresh: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fresh.prepare(sums(fresh, [1, 2]))
    executable_timings = executable.timings
    waited: list[int] = []

    def wait(serial: int) -> None:
        waited.append(serial)
        fresh.queue.count_waiting(time.perf_counter() - 0.25)

    executable.translation, fresh.queue.translations = None, []
    monkeypatch.setattr(fresh.queue, "is_done", lambda serial: False)
    monkeypatch.setattr(fresh.queue, "wait", wait)
    executable.translated_by(fresh.queue, 7)
    timings = executable.timings
    assert waited == [7]
    assert timings.driver > executable_timings.driver
    assert (timings.upload, timings.planning) == (executable_timings.upload, executable_timings.planning)
    assert executable.timings == timings
    assert waited == [7]


@pytest.mark.parametrize("asked_before", [False, True])
def test_timings_of_a_function_add_up_to_its_first_call(adapter: AdapterInfo, asked_before: bool) -> None:
    device = Device(adapter)
    x = dmlgpu.Tensor(np.ones((3, 29 + asked_before), np.float32), device=device)  # sizes that nothing else has

    @dmlgpu.compile
    def layer(x: dmlgpu.Tensor) -> dmlgpu.Tensor:
        return dmlgpu.ops.softmax(dmlgpu.ops.tanh(x) * 3 + 1, axis=-1)

    start = time.perf_counter()
    before = layer.operator(x).timings if asked_before else None
    layer(x).numpy()
    seconds = time.perf_counter() - start
    timings = layer.operator(x).timings
    assert timings is not None and before in (None, timings)
    assert timings.total <= seconds
    if adapter.backend == "Vulkan":  # OpenGL's drivers translate in the first dispatch itself
        assert seconds - timings.total < max(timings.total, UNTIMED)


def test_timings_of_a_session_add_up_to_its_first_run(adapter: AdapterInfo) -> None:
    onnx = pytest.importorskip("onnx")
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 31]) for name in ("x", "y")]
    nodes = [onnx.helper.make_node("Softmax", ["x"], ["z"]), onnx.helper.make_node("Tanh", ["z"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "m", info[:1], info[1:])
    session = dmlgpu.load(onnx.helper.make_model(graph, ir_version=9), Device(adapter))
    assert session.timings is None
    start = time.perf_counter()
    session.run({"x": np.ones((7, 31), np.float32)})
    seconds = time.perf_counter() - start
    timings = session.timings
    assert timings is not None and timings.total <= seconds
    if adapter.backend == "Vulkan":
        assert seconds - timings.total < max(timings.total, UNTIMED)
    session.run({"x": np.ones((7, 31), np.float32)})
    assert session.timings == timings


def test_drivers_compile_while_weights_are_uploaded(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty dispatch lets the driver begin; nothing waits for it before the run itself."""
    onnx = pytest.importorskip("onnx")
    if adapter.backend != "Vulkan":
        pytest.skip("only drivers of Vulkan compile in an empty dispatch")
    events: list[str] = []

    caller = threading.current_thread()

    def noted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: object) -> object:
            if threading.current_thread() is caller:  # another one may wait for the device of an earlier test
                events.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((GpuBackend, "_warm_up"), (GpuBackend, "write"), (GpuQueue, "wait")):
        noted(owner, name)
    weights = np.arange(32 * 48, dtype=np.float32).reshape(32, 48) / 1000
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", None]) for name in ("x", "y")]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["z"]), onnx.helper.make_node("Tanh", ["z"], ["y"])]
    initializers = [onnx.numpy_helper.from_array(weights, "w")]
    graph = onnx.helper.make_graph(nodes, "m", info[:1], info[1:], initializers)
    session = dmlgpu.load(onnx.helper.make_model(graph, ir_version=9), Device(adapter))
    x = np.ones((7, 32), np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], np.tanh(x @ weights), rtol=1e-5)
    assert "write" in events
    assert events[: events.index("write")] == ["_warm_up"]


def test_cached_pipelines_take_no_time(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    operators = [device.compile_operator(device.create_operator(RELU)) for _ in range(2)]
    start = time.perf_counter()
    again = device.compile_operator(device.create_operator(RELU))
    seconds = time.perf_counter() - start
    assert operators[0].timings is not None and again.timings is not None
    assert again.timings.total <= seconds


def test_functions_explain_themselves(adapter: AdapterInfo) -> None:
    layer = dmlgpu.compile(lambda x: dmlgpu.ops.relu(x) + 1)
    explanation = layer.explain(dmlgpu.Tensor(np.ones(8, np.float32), device=Device(adapter)))
    assert len(explanation.kernels) == 1
    with pytest.raises(NotSupported, match=r"explain: 'NumPy: .*' runs no kernels; pass tensors of another device"):
        layer.explain(dmlgpu.Tensor(np.ones(8, np.float32), device="numpy"))


def test_the_adapter_numpy_compiles_nothing() -> None:
    device = Device("numpy")
    assert device.compile_operator(device.create_operator(RELU)).timings is None
