"""Chains, hazards, large sizes and all float16 on every adapter; the operators' own cases are in test_cases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dmlgpu.common.errors import ShaderError
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel
from dmlgpu.compiler.quirks import quirks_of
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.running.expectations import with_expectation
from dmlgpu.conformance.running.outcome import Status, Verdict
from dmlgpu.conformance.suites.graphs import GraphExpectation, GraphSuite
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.kernels import Kernel

NAMES = (
    *suite_by_name("chains").names("quick"),
    *suite_by_name("hazards").names("quick"),
    *suite_by_name("sizes").names("quick"),
    "element_wise_is_nan-halves-float16-uint8-65536-packed-s0",
    "activation_elu-halves-float16-65536-packed-s1",
    "element_wise_atan_yx-values-float32-9x3-packed-s0",
    "exp_f32-16",
    "pair-softmax-scale_bias-float16-plain",
)
SHADERS = Path(__file__).parents[2] / "shaders"


@pytest.mark.parametrize("name", NAMES)
def test_a_case_passes(backend: GpuBackend, name: str) -> None:
    outcome = suite_by_name("dmlgpu").run(name, Device.from_backend(backend))
    assert outcome.status is Status.PASS, outcome
    assert outcome.kernels
    for kernel in outcome.kernels:
        label, _, files = kernel.removesuffix(")").partition(" (")
        assert label
        assert all((SHADERS / f"{file}.wgsl").is_file() or (SHADERS / file).is_dir() for file in files.split(", ")), (
            files
        )


@pytest.mark.parametrize("name", suite_by_name("quirks").names("quick"))
def test_a_quirk_is_shown_on_its_adapters_only(backend: GpuBackend, name: str) -> None:
    outcome = with_expectation(suite_by_name("dmlgpu").run(name, Device.from_backend(backend)), backend.info, ())
    has_quirk = any(quirk.case == name for quirk in quirks_of(backend.info))
    assert outcome.status is (Status.EXPECTED_FAIL if has_quirk else Status.PASS), outcome


def test_a_wrong_graph_names_the_kernels_of_the_compilation_that_is_wrong(
    backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no pass, an addition and a sum are two kernels; fused they are one, and that alone is made wrong here."""
    device, compared = Device.from_backend(backend), GraphExpectation.verdicts

    def spoiled(self: GraphExpectation, device: Device, disabled: Collection[str]) -> list[Verdict]:
        return [replace(verdict, ok=bool(disabled)) for verdict in compared(self, device, disabled)]

    name = "pair-addition-sum-float32-plain"
    assert len(GraphSuite().run(name, device).kernels) == 3
    monkeypatch.setattr(GraphExpectation, "verdicts", spoiled)
    outcome = GraphSuite().run(name, device)
    assert (outcome.status, outcome.message) == (Status.FAIL, "output 0, fused")
    (fused,) = outcome.kernels
    assert "elementwise/element_wise_add" in fused and "reduction/reduce_sum_float" in fused


def test_kernels_are_announced_before_they_are_compiled(adapter: AdapterInfo) -> None:
    texts: list[str] = []
    sources: list[str] = []

    def tell(kernels: tuple[str, ...], wgsl: tuple[str, ...]) -> None:
        texts.extend(kernels)
        sources.extend(wgsl)

    backend = GpuBackend(adapter, tell=tell)
    source = "@compute @workgroup_size(1)\nfn main() { f(); }"
    bad = RenderedKernel("bad", KernelSource(source, files=("x/y",)), (), (1, 1, 1))
    with pytest.raises(ShaderError):
        backend.prepare(Program("TEST", (bad,), immediates=backend.target.has("immediates")))
    assert (texts, sources) == (["bad (x/y)"], [source])
    outcome = suite_by_name("operators").run("argmin-example1", Device.from_backend(backend))
    assert outcome.kernels and tuple(texts[1:]) == outcome.kernels
    own = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n" + source.replace("f()", "x[0] = 1u")
    Kernel(own)(np.zeros(1, np.uint32), grid=1, device=Device.from_backend(backend))
    assert sources[-1] == own and tuple(texts[1:]) == outcome.kernels
    backend.close()


def test_tensors_beyond_a_binding_are_rejected(backend: GpuBackend) -> None:
    limit = backend.target.max_binding_size
    if limit >= 1 << 31:
        pytest.skip(f"{backend.info} binds {limit:,} bytes")
    outcome = suite_by_name("sizes").run("size-copy-2gib", Device.from_backend(backend))
    assert (outcome.status, outcome.missing) == (Status.NOT_SUPPORTED, "max-storage-buffer-binding-size")
