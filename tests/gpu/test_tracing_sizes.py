"""Compiled functions and graphs of many sizes, on every adapter and under both families of schedules."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, Graph, Tensor, ops
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend
from tests.eager_functions import floats
from tests.unit.tensors.tracing.test_tracing_sizes import NETWORKS, counted


@pytest.fixture
def sharing(device: Device, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device whose kernels read sizes."""
    monkeypatch.setattr(backend, "specializer", Specializer(Specialize.NEVER))
    return device


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_many_sizes_share_pipelines(name: str, sharing: Device) -> None:
    """Later sizes compile pipelines only where they need other tiles, or leave another remainder."""
    function, in_numpy, shape_of, weights = NETWORKS[name]
    tensors = [Tensor(weight, device=sharing) for weight in weights]
    compiled, traces = counted(function)
    misses = []
    for size in range(16, 38, 4 if name == "convolutions" else 2):
        x = np.random.default_rng(size).standard_normal(shape_of(size)).astype(np.float32)
        np.testing.assert_allclose(compiled(Tensor(x, device=sharing), *tensors).numpy(), in_numpy(x), 1e-4, 1e-5)
        misses.append(sharing.pipeline_cache.info.misses)
    assert len(traces) == 2
    assert name == "convolutions" or np.count_nonzero(np.diff(misses) == 0) >= 3, misses


def test_a_third_size_of_a_hundred_nodes_takes_milliseconds(sharing: Device) -> None:
    weights = [Tensor(floats(16, 16) / 8, device=sharing) for _ in range(33)]

    @dmlgpu.compile
    def function(x: Tensor) -> Tensor:
        for weight in weights:
            x = ops.softmax(x @ weight, axis=-1) * x
        return x

    times = []
    for size in range(40, 48):
        x = Tensor(floats(size, 16), device=sharing)
        start = time.process_time()
        function.operator(x)
        times.append(time.process_time() - start)
    assert min(times[2:]) < 0.02 < times[1], times


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_graphs_with_names_for_sizes_share_pipelines(fresh: GpuBackend, profile: Profile) -> None:
    fresh.target = replace(fresh.target, profile=profile)
    fresh.specializer = Specializer(Specialize.AUTO)
    device = Device.from_backend(fresh)
    function, in_numpy, shape_of, weights = NETWORKS["attention"]
    graph = Graph(device, rules="numpy")
    x = graph.input((2, "n", 16), name="x")
    y = function(x, *(graph.input(weight.shape) for weight in weights))
    misses = []
    for size in (3, 8, 12, 16, 20, 24, 28, 32, 1):
        array = floats(*shape_of(size))
        np.testing.assert_allclose(graph.evaluate([y], [array, *weights])[0], in_numpy(array), 1e-4, 1e-5)
        misses.append(device.pipeline_cache.info.misses)
    assert np.count_nonzero(np.diff(misses[1:-1]) == 0) >= 2, misses
    device.remove()
