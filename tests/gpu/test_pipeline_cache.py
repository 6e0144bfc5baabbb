"""Pipelines live as long as they are needed, and the cache keeps the ones used last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import wgpu

import dmlgpu
from dmlgpu import CacheLimits, DataType, Device, DeviceRemoved, TensorDesc, descs
from dmlgpu.common.errors import ShaderError
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.specialization import SPECIALIZE_VARIABLE
from dmlgpu.runtime.wgpu import GpuBackend, library
from dmlgpu.runtime.wgpu.executable import GpuExecutable
from dmlgpu.runtime.wgpu.native import NATIVE
from tests.gpu.gpu_programs import add, with_text, words

SOAK = Path(__file__).parents[2] / "scripts" / "soak.py"


def run(backend: GpuBackend, executable: GpuExecutable) -> np.ndarray:
    """The result for an input of zeros."""
    source, target = backend.create_buffer(256, "source"), backend.create_buffer(256, "target")
    work = executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    backend.wait(backend.submit(work))
    return backend.read(target, 0, 256).view(np.uint32)


def native_pipelines() -> int:
    """Pipelines that wgpu's library has, of all devices."""
    count: int = wgpu.diagnostics.wgpu_native_counts.get_dict()["ComputePipeline"]["hub"]["hub"]["a"]
    return count


def test_equal_kernels_share_a_pipeline_though_the_cache_keeps_none(fresh: GpuBackend) -> None:
    fresh.pipeline_cache.limits = CacheLimits(entries=0, size=0)
    first, second = fresh.prepare(add(fresh, 1)), fresh.prepare(add(fresh, 1))
    assert (len(first.new), len(second.new)) == (1, 0)
    assert len(fresh.pipelines) == 1
    del first, second
    assert len(fresh.pipelines) == 0
    assert len(fresh.prepare(add(fresh, 1)).new) == 1


def test_kernels_compiled_for_tools_are_not_cached(fresh: GpuBackend) -> None:
    program = add(fresh, 1)
    (kernel,) = program.kernels
    fresh.compile_kernel(program, kernel)
    assert (len(fresh.pipelines), fresh.pipeline_cache.info.entries) == (0, 0)
    with pytest.raises(ShaderError, match="kernel"):
        fresh.compile_kernel(program, with_text(kernel, kernel.wgsl.replace("let i", "let")))
    assert len(fresh.prepare(program).new) == 1


def test_the_cache_keeps_those_used_last(fresh: GpuBackend) -> None:
    fresh.pipeline_cache.limits = CacheLimits(entries=2, size=1 << 30)
    for value in (1, 2, 1, 3):
        fresh.prepare(add(fresh, value))
    assert len(fresh.pipelines) == 2
    assert [len(fresh.prepare(add(fresh, value)).new) for value in (3, 1, 2)] == [0, 0, 1]


def test_bytes_are_estimated_by_the_text(fresh: GpuBackend) -> None:
    fresh.prepare(add(fresh, 1))
    size = fresh.pipeline_cache.info.size
    assert size >= 40 * len(add(fresh, 1).kernels[0].wgsl)  # the least that was measured, on SwiftShader
    fresh.pipeline_cache.limits = CacheLimits(entries=100, size=2 * size)
    for value in range(2, 9):
        fresh.prepare(add(fresh, value))
    assert len(fresh.pipelines) == 2


def test_pipelines_in_use_outlive_the_cache(fresh: GpuBackend) -> None:
    executable = fresh.prepare(add(fresh, 5))
    fresh.pipeline_cache.clear()
    fresh.pipeline_cache.limits = CacheLimits(entries=1, size=1 << 30)
    for value in range(6, 9):
        fresh.prepare(add(fresh, value))
    assert (run(fresh, executable) == 5).all()
    assert fresh.prepare(add(fresh, 5)).new == []


def test_bound_work_keeps_its_pipeline(fresh: GpuBackend) -> None:
    executable = fresh.prepare(add(fresh, 7))
    source, target = fresh.create_buffer(256, "source"), fresh.create_buffer(256, "target")
    work = executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    del executable
    fresh.pipeline_cache.clear()
    assert len(fresh.pipelines) == 1
    fresh.wait(fresh.submit(work))
    assert (fresh.read(target, 0, 256).view(np.uint32) == 7).all()


def test_released_pipelines_are_gone_from_wgpu_too(fresh: GpuBackend) -> None:
    before = native_pipelines()
    held = [fresh.prepare(add(fresh, value)) for value in range(5)]
    fresh.wait(fresh.submit(()))
    assert native_pipelines() == before + 5
    del held[1:]
    fresh.pipeline_cache.clear()
    assert native_pipelines() == before + 1


def test_a_closed_device_frees_the_memory_of_operators(adapter: AdapterInfo) -> None:
    before, backend = native_pipelines(), GpuBackend(adapter)
    executable = backend.prepare(add(backend, 1))
    source, target = backend.create_buffer(256, "source"), backend.create_buffer(256, "target")
    work = executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    backend.close()
    assert native_pipelines() == before
    with pytest.raises(DeviceRemoved):
        backend.submit(work)


def test_a_dropped_device_gives_everything_back_at_once(adapter: AdapterInfo, without_collections: None) -> None:
    before, device = native_pipelines(), Device(adapter)
    desc = _subtraction()
    (result,) = dmlgpu.evaluate(desc, [np.ones(4, np.float32)] * 2, device)
    assert (result == 0).all()
    compiled = device.compile_operator(device.create_operator(desc))
    alive = weakref.ref(device.backend), weakref.ref(device.parent)
    del device, compiled
    assert [reference() for reference in alive] == [None, None]
    assert native_pipelines() == before


def test_a_device_may_be_dropped_before_its_work_is_done(adapter: AdapterInfo, without_collections: None) -> None:
    backend = GpuBackend(adapter)
    executable = backend.prepare(add(backend, 1))
    source, target = backend.create_buffer(256, "source"), backend.create_buffer(256, "target")
    backend.submit(executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),))) * 1000)
    alive = weakref.ref(backend), weakref.ref(backend.wgpu_device)
    del backend, executable, source, target
    assert [reference() for reference in alive] == [None, None]
    library.Reply(NATIVE, "WGPUQueueWorkDoneCallback")
    assert not any(reply.statuses for reply in library.expected_replies)


def test_a_queue_whose_device_was_dropped_says_so(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    queue = device.queue
    assert queue.device is device
    del device
    with pytest.raises(dmlgpu.InvalidState, match="its device was dropped"):
        _ = queue.device


def test_uniforms_are_bounded(adapter: AdapterInfo) -> None:
    backend = GpuBackend(adapter, disabled_features=["immediates"])
    backend.binder.uniforms.limits = CacheLimits(entries=1, size=1 << 20)
    executable = backend.prepare(add(backend, 1))
    buffers = [backend.create_buffer(512, "buffer") for _ in range(2)]
    work = []
    for offsets in ((0, 0), (16, 0), (0, 16), (16, 16), (0, 0)):
        source, target = (Range(buffer, offset, 256) for buffer, offset in zip(buffers, offsets, strict=True))
        work += executable.bind(Resources((source,), (target,)))
    assert len(backend.binder.uniforms) == 1
    backend.write(buffers[0], 0, words(np.arange(128)))
    backend.wait(backend.submit(work))
    np.testing.assert_array_equal(backend.read(buffers[1], 0, 256).view(np.uint32), np.arange(1, 65))
    backend.close()


def test_opengl_frees_objects_dropped_while_another_thread_works(fresh: GpuBackend, without_collections: None) -> None:
    if fresh.info.backend != "OpenGL":
        pytest.skip(f"only OpenGL's objects are freed under a lock, not those of {fresh.info.backend}")
    fresh.pipeline_cache.limits = CacheLimits(entries=0, size=0)
    executable = [fresh.prepare(add(fresh, 1))]
    fresh.context.deferred.run()  # what earlier tests have left
    before = native_pipelines()
    locked, dropped = threading.Event(), threading.Event()

    def work() -> None:
        with fresh.context.lock:
            locked.set()
            dropped.wait(60)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert locked.wait(60)
    try:
        executable.clear()
        meanwhile = native_pipelines()
    finally:
        dropped.set()
        thread.join()
    assert meanwhile == before  # no thread waited for the lock
    fresh.context.deferred.run()
    assert native_pipelines() == before - 1


def soak(what: str, count: int, entries: int, specialize: str, growth: int = 8) -> str:
    """Return what the script prints, which fails if the memory of its process grows once its caches are full."""
    software = [info for info in dmlgpu.adapters() if info.backend == "Vulkan" and info.is_software]
    if not software or not sys.platform.startswith("linux"):
        pytest.skip("the memory of pipelines is the process's own only with a Vulkan driver in software, on Linux")
    arguments = [what, "--count", f"{count}", "--entries", f"{entries}", "--growth", f"{growth}"]
    arguments += ["--adapter", str(software[0])]
    # Mesa's driver leaves optimizations out.
    quick = {**os.environ, "GALLIVM_PERF": "nopt", SPECIALIZE_VARIABLE: specialize}
    done = subprocess.run([sys.executable, SOAK, *arguments], capture_output=True, text=True, env=quick, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("specialize", "pipelines"), [("always", "entries=6, .*evictions=24"), ("never", "entries=1, .*hits=30")]
)
def test_memory_is_flat_once_the_caches_are_full(specialize: str, pipelines: str) -> None:
    assert re.search(pipelines, soak("shapes", 30, 6, specialize))  # without bounds, 24 shapes take some 20 MiB


@pytest.mark.parametrize("what", ["calls", "model"])
def test_a_thousand_shapes_leave_memory_flat(what: str) -> None:
    printed = soak(what, 1000, 50, "auto", growth=16)
    counts = {name: int(entries) for name, entries in re.findall(r"^(\w+) CacheInfo\(entries=(\d+)", printed, re.M)}
    assert 2 <= counts.pop("pipelines") <= 8
    assert {name: entries for name, entries in counts.items() if entries > 256} == {}
    plans = re.search(r"^plans (\d+)$", printed, re.M)
    assert (int(plans[1]) if plans else 0) <= 8
    assert (plans is not None) is (what == "model")
    assert counts.keys() == ({"operators", "recordings"} if what == "calls" else {"stages"})


def _subtraction() -> descs.ElementWiseSubtract:
    tensor = TensorDesc(DataType.FLOAT32, (4,))
    return descs.ElementWiseSubtract(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
