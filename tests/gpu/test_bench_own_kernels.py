"""User-defined kernels, measured and checked on each adapter; ``show`` prints whether they compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmlgpu import Device, ShaderError
from dmlgpu.bench.ceilings import CachedCeilings, Ceilings, save_ceilings
from dmlgpu.bench.kernel_files import kernel_workload
from dmlgpu.bench.prepared_kernel import PreparedKernel
from dmlgpu.bench.specs import KernelOptions
from dmlgpu.bench.workload import Workload
from dmlgpu.runtime.wgpu import GpuBackend
from tests.unit.bench.test_bench_own_kernels import ADD, SCALE
from tests.unit.cli.cli_process import run_here


def workload_of(folder: Path, source: str, options: KernelOptions) -> Workload:
    path = folder / "my.wgsl"
    path.write_text(source)
    return kernel_workload(path, options)


def test_a_kernel_is_right_and_has_times(backend: GpuBackend, tmp_path: Path) -> None:
    options = KernelOptions(("1000:f32", "1000:f32"), ("1000:f32",), references=("a + b",))
    before = backend.allocated
    prepared = PreparedKernel(Device.from_backend(backend), workload_of(tmp_path, ADD, options))
    ready = prepared.readiness
    assert ready.check.status == "right", ready.check
    assert ready.counts.bytes == 12000 and ready.counts.kernels == 1 and ready.sets > 1
    sample = prepared.round(3)
    assert sample.wall > 0 and (sample.gpu is None or sample.gpu > 0)
    prepared.close()
    del prepared
    assert backend.allocated == before


def test_a_wrong_kernel_is_reported_with_the_worst_element(backend: GpuBackend, tmp_path: Path) -> None:
    source = ADD.replace("a[id.x] + b[id.x]", "a[id.x] + b[id.x] + f32(id.x == 7) * 9.0")
    options = KernelOptions(("64:f32", "64:f32"), ("64:f32",), references=("a + b",))
    device = Device.from_backend(backend)
    check = PreparedKernel(device, workload_of(tmp_path, source, options)).readiness.check
    assert check.status == "wrong" and "1 of 64 elements" in check.text and "the worst, at [7]" in check.text
    lax = KernelOptions(("64:f32", "64:f32"), ("64:f32",), references=("a + b",), tolerance=100)
    assert PreparedKernel(device, workload_of(tmp_path, source, lax)).readiness.check.status == "right"
    unjudged = KernelOptions(("64:f32", "64:f32"), ("64:f32",))
    check = PreparedKernel(device, workload_of(tmp_path, source, unjudged)).readiness.check
    assert check.status == "unchecked" and "--reference" in check.text


def test_uniforms_overrides_files_and_several_outputs(backend: GpuBackend, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    options = KernelOptions(
        (str(tmp_path / "x.npy"),),
        ("8", "1:uint32"),
        ("scale=7u,0.5f", "shift=1,2"),
        ("tile=32",),
        ("y=np.where(np.arange(8) < 7, x * 0.5 + np.tile(shift, 4), 0)", "sums=np.zeros(1)"),
        entry_point="scaled",
        grid="1",
    )
    check = PreparedKernel(Device.from_backend(backend), workload_of(tmp_path, SCALE, options)).readiness.check
    assert check.status == "right", check


def test_a_compile_error_shows_the_line(backend: GpuBackend, tmp_path: Path) -> None:
    options = KernelOptions(("64:f32", "64:f32"), ("64:f32",))
    workload = workload_of(tmp_path, ADD.replace("a[id.x] + b[id.x]", "a[id.x] + nothing"), options)
    with pytest.raises(ShaderError, match=r"(?s)does not compile.*nothing"):
        PreparedKernel(Device.from_backend(backend), workload)


def test_show_compiles(backend: GpuBackend, tmp_path: Path) -> None:
    path, adapter = tmp_path / "my.wgsl", str(backend.info)
    path.write_text(ADD)
    result = run_here("show", path, "-a", adapter)
    assert result.returncode == 0 and "main compiles" in result.stdout, result.stderr
    path.write_text(ADD.replace("a[id.x] + b[id.x]", "a[id.x] + nothing"))
    result = run_here("show", path, "-a", adapter)
    assert result.returncode == 1 and "does not compile" in result.stdout and "nothing" in result.stdout


def test_the_command_as_it_is_typed(backend: GpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    save_ceilings(backend.info, CachedCeilings(Ceilings(1e10, 1e10, 1e-6, 1e-6, "gpu"), 0.0))
    path, results = tmp_path / "my.wgsl", tmp_path / "r.jsonl"
    path.write_text(ADD)
    adapter = ("-a", str(backend.info), "--budget", "0", "-o", results)
    words = ("bench", path, "--input", "64K:f32", "--input", "64K:float32", "--output", "64K:float32", *adapter)
    result = run_here(*words, "--reference", "a + b", "--numpy")
    assert result.returncode == 0, result.stderr
    assert "my.wgsl 65536:float32 65536:float32 -> 65536:float32 on " in result.stdout
    assert "of the copy rate" in result.stdout and "right: ok" in result.stdout and "on NumPy" in result.stdout
    assert run_here("bench", "compare", results, results).stdout.startswith("2 same\n")
    result = run_here(*words, "--reference", "a - b")
    assert result.returncode == 1 and "the worst, at [" in result.stdout
