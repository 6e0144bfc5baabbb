"""Measuring on each adapter: what is measured is right, rounds have times, schedules differ, ceilings are found."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import Device
from dmlgpu.bench import ceilings
from dmlgpu.bench.choosing import of_operator, schedules_of
from dmlgpu.bench.prepared import PreparedOperator, retargeted
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.program_cache import programs
from dmlgpu.conformance.suites import graphs
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.wgpu import GpuBackend

GRAPH = "pattern-normalized_residual-float16-plain"


def small_gemm() -> Workload:
    return of_operator("GEMM", [{"m": 4, "k": 64, "n": 3}])[0]


@pytest.mark.parametrize("what", ["GEMM", "SCATTER_ND", "graph"])
def test_measurements_are_correct_and_have_times(backend: GpuBackend, what: str) -> None:
    workload = {
        "GEMM": small_gemm,
        "SCATTER_ND": lambda: of_operator("SCATTER_ND", [{"rows": 64, "columns": 8, "picked": 16}])[0],
        "graph": lambda: Workload(GRAPH, "GRAPH", graphs.example(GRAPH).graph, case=GRAPH),
    }[what]()
    before = backend.allocated
    programs.clear()  # an earlier test may have rendered it, which would take no time again
    prepared = PreparedOperator(Device.from_backend(backend), workload)
    ready = prepared.readiness
    assert ready.check.status == "right", ready.check
    assert ready.counts.kernels == ready.counts.to_json()["kernels"] > 0
    assert ready.init.total >= ready.init.rendering > 0
    assert ready.sets > 1
    sample = prepared.round(3)
    assert sample.wall > 0
    assert sample.gpu is None or sample.gpu > 0
    assert sample.seconds == (sample.wall if sample.gpu is None else sample.gpu)
    prepared.close()
    del prepared
    assert backend.allocated == before


def test_requested_schedules_run_and_are_correct(backend: GpuBackend) -> None:
    names = schedules_of(small_gemm(), backend.target)
    assert len(names) > 1
    device, kernels = Device.from_backend(backend), set()
    for name in names[:2]:
        prepared = PreparedOperator(device, Workload(**{**vars(small_gemm()), "schedule": name}))
        assert prepared.readiness.check.status == "right", name
        kernels.add(prepared.readiness.kernels)
        prepared.close()
    assert len(kernels) > 1


def test_the_executors_own_choice_comes_back(backend: GpuBackend) -> None:
    device = Device.from_backend(backend)
    with pytest.raises(RuntimeError), retargeted(device, schedule="small"):
        assert backend.target.overrides.schedule == "small"
        raise RuntimeError
    assert backend.target.overrides.schedule == ""


def test_ceilings_are_found(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(ceilings, "ROUNDS", 1)
    monkeypatch.setattr(ceilings, "_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(ceilings, "_WORKGROUPS", (8,))
    before = backend.allocated
    measured = ceilings.measure_ceilings(Device.from_backend(backend))
    assert min(measured.copy, measured.multiply_add, measured.launch, measured.submission) > 0
    assert measured.source in ("gpu", "wall clock")
    assert backend.allocated == before


def test_the_copy_copies_all(backend: GpuBackend) -> None:
    values = np.arange(4096, dtype=np.uint32)
    source, result = (backend.create_buffer(values.nbytes, "copy") for _ in range(2))
    backend.write(source, 0, values.view(np.uint8))
    shader = backend.compile_shader(ceilings.copy_kernel(64, 4, 2), "main", {}, {0: "storage", 1: "storage"}, "copy")
    ranges = {index: Range(buffer, 0, values.nbytes) for index, buffer in enumerate((source, result))}
    backend.wait(backend.submit(shader.bind(ranges, (2, 2, 1))))
    assert np.array_equal(backend.read(result, 0, values.nbytes).view(np.uint32), values)
    for buffer in (source, result):
        backend.destroy_buffer(buffer)
