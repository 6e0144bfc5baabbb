"""What ``dmlgpu show`` shows is what runs, on each adapter: the same kernels, for the target that a device has."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dmlgpu import DataType, Device, TensorDesc, descs
from dmlgpu.cli.subjects import find_subjects
from dmlgpu.compiler.explain import explain_graph, explain_operator
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.demo.palette import Workbench
from dmlgpu.runtime.adapters import target_of
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu import backend as gpu_backend

CASES = (
    "gemm-float32-512x512-packed-s0",
    "gemm-float16-5x16x5x8-broadcast-owned-s0",
    "convolution-float32-2x16x14x11-packed-dense-s0",
    "lstm-float32-3x33x16-near-bare-s0",
    "activation_softmax1-float16-2x7x9x13-explicit-every-s0",
    "gather_nd1-float32-int32-33-mixed-negative-s0",
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that backends make executables of; here they make none, so that no driver compiles them."""
    programs: list[Program] = []

    def remember(program: Program, *_: object) -> SimpleNamespace:
        programs.append(program)
        return SimpleNamespace(new=())

    monkeypatch.setattr(gpu_backend, "GpuExecutable", remember)
    return programs


def target(backend: GpuBackend, half_precision: bool) -> Target:
    """What ``show`` compiles for, without a device."""
    known_target = target_of(backend.info, half_precision)
    assert known_target is not None
    return known_target


def test_targets_are_those_of_devices(backend: GpuBackend) -> None:
    assert target(backend, half_precision=True) == backend.target
    assert target(backend, half_precision=False) == backend.target.exact


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("half_precision", [False, True], ids=["exact", "half"])
def test_kernels_of_operators(backend: GpuBackend, run: list[Program], name: str, half_precision: bool) -> None:
    desc = case_by_name(name).desc
    backend.compile(desc, half_precision)
    assert run == [explain_operator(name, desc, target(backend, half_precision)).program]


def test_kernels_of_graphs(backend: GpuBackend, run: list[Program]) -> None:
    graph = find_subjects("graph-float32-16-s1")[0].desc
    assert isinstance(graph, GraphDesc)
    for without in ((), ("element-wise",)):
        backend.compile_graph(resolve(graph), disabled=without)
        assert run.pop() == explain_graph("", graph, target(backend, half_precision=False), without).program


def test_outcomes_name_the_kernels_that_ran(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    outcome = OperatorSuite().run("gather_nd1-example1", device)
    device.remove()
    assert outcome.status is Status.PASS
    (kernel,) = outcome.kernels
    assert kernel.startswith("gather_nd1 gather")
    assert kernel.endswith(" (indexing/gather_nd1, schedules/map, lib/index)")


def test_the_demo_names_the_kernels_that_ran(adapter: AdapterInfo) -> None:
    device = Device(adapter)
    bench = Workbench(device)
    array = bench.upload(np.arange(12, dtype=np.float32).reshape(3, 4))
    tensor = TensorDesc(DataType.FLOAT32, (3, 4))
    bench.run(descs.ElementWiseAdd1(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor), array, array)
    device.remove()
    (observation,) = bench.observations
    assert observation.kernels == ("element_wise_add1 map x4",)
