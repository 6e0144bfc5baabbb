"""Pipelines of an ONNX session are dropped with it, except those in the device's pipeline cache."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu import CacheLimits, Device
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.onnx import load, runner
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.rendered import KERNEL_BYTES
from dmlgpu.runtime.wgpu import GpuBackend, pipelines
from dmlgpu.tensors.session import session_of

CHILD = Path(__file__).with_name("dropped_session.py")


def _softmax() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=-1)],
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


def test_pipelines_of_a_dropped_session_are_freed(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    backend = device.backend
    assert isinstance(backend, GpuBackend)
    device.pipeline_cache.limits = CacheLimits(entries=0, size=0)
    session = load(_softmax(), device)
    for columns in (3, 4, 5):
        (result,) = session.run({"x": np.zeros((2, columns), np.float32)}).values()
        np.testing.assert_allclose(result, 1 / columns, rtol=1e-6)
    assert len(backend.pipelines) >= 3
    assert len(session_of(device).recorded) == 3
    del session
    gc.collect()
    assert len(session_of(device).recorded) == 0
    assert len(backend.pipelines) == 0


def test_parts_of_a_living_session_are_bounded_in_bytes(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(adapter, specialize="always")
    monkeypatch.setattr(runner, "STAGE_BYTES", 1)
    monkeypatch.setattr(runner, "KEPT_RUNS", 1)
    session = load(_softmax(), device)
    for columns in (3, 4, 5, 4):
        (result,) = session.run({"x": np.zeros((2, columns), np.float32)}).values()
        np.testing.assert_allclose(result, 1 / columns, rtol=1e-6)
        info = runner_of(session).stages.info
        assert 1 <= info.entries <= 2  # the part of the run itself stays, and one that is smaller
        assert info.size > 1
    assert info.evictions >= 2
    hits = info.hits
    session.run({"x": np.zeros((2, 4), np.float32)})
    assert runner_of(session).stages.info.hits == hits + 1


@pytest.mark.parametrize("policy", ["always", "never"])
def test_runs_that_alternate_between_shapes_compile_nothing(
    adapter: AdapterInfo, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STAGE_BYTES", 1 if policy == "always" else 4 * KERNEL_BYTES + 20_000 * 200)
    session = load(_softmax(), Device(adapter, specialize=policy))
    shapes = [np.zeros((2, columns), np.float32) for columns in (20, 24, 28, 32)]
    for x in shapes:
        session.run({"x": x})
    before = runner_of(session).stages.info
    for x in shapes:
        session.run({"x": x})
    after = runner_of(session).stages.info
    assert (after.hits - before.hits, after.misses - before.misses, after.entries) == (4, 0, 4)


def test_sizes_of_pipelines_are_those_of_the_driver(adapter: AdapterInfo, fresh: GpuBackend) -> None:
    expected = {"llvmpipe": 190, "SwiftShader": 60}
    size = next((size for driver, size in expected.items() if driver in adapter.name), 200)
    assert pipelines.bytes_per_character(fresh.info) == size


def test_memory_of_a_dropped_session_is_freed_though_nothing_runs(adapter: AdapterInfo) -> None:
    if sys.platform != "linux" or adapter.backend != "Vulkan" or not adapter.is_software:
        pytest.skip(f"{adapter} keeps its pipelines elsewhere than in the heap that this measures")
    done = subprocess.run(
        [sys.executable, CHILD, adapter.name], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr
