"""Runs of ONNX graphs by patterns, on every adapter and under both families of schedules."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend
from tests.unit.frontends.onnx.test_onnx_recorded import MODELS, SIZES, check_node_tests, generate_parts, inputs_of
from tests.unit.frontends.onnx.test_onnx_stages import MODELS as STAGES
from tests.unit.frontends.onnx.test_onnx_stages import SIZES as ROWS
from tests.unit.frontends.onnx.test_onnx_stages import elements

SAMPLE = 480
"""Of how many node tests one runs; all do with ``--profile full``."""


@pytest.fixture
def sharing(device: Device, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device whose kernels read sizes."""
    monkeypatch.setattr(backend, "specializer", Specializer(Specialize.AUTO))
    return device


@pytest.mark.parametrize("name", MODELS)
def test_sizes_follow_from_patterns(name: str, sharing: Device) -> None:
    model = MODELS[name]()
    session, reference = load(model, sharing), ReferenceEvaluator(model)
    names = [info.name for info in session.inputs]
    for sizes in SIZES:
        feeds = dict(zip(names, inputs_of(model, *sizes), strict=True))
        (expected,) = reference.run(None, feeds)
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)
    assert runner_of(session).last_stages[0].is_recorded


@pytest.mark.slow
@pytest.mark.parametrize("name", ["picked twice", "windowed", "distinct", "suppressed", "grown", "scanned"])
def test_stages_follow_from_patterns(name: str, sharing: Device) -> None:
    """Runs in which the host reads elements, and loops."""
    model = STAGES[name]()
    session, reference = load(model, sharing), ReferenceEvaluator(model)
    for run, rows in enumerate(ROWS[:8]):
        x = elements(rows, run)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    assert all(stage.is_recorded for stage in runner_of(session).last_stages)


@pytest.mark.parametrize("name", ["picked", "counted", "windowed"])
def test_other_counts_take_no_other_pipelines(name: str, adapter: AdapterInfo) -> None:
    device = Device(adapter, specialize="never")
    session = load(STAGES[name](), device)
    entries = []
    for run, rows in enumerate(range(21, 81, 2)):
        session.run({"x": elements(rows, run)})
        entries.append(device.pipeline_cache.info.entries)
    assert entries[-1] <= entries[14] + 2, entries  # vectors of other widths may come late
    device.remove()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate_parts(metafunc, SAMPLE)


def test_node_tests_with_free_dimensions(adapter: AdapterInfo, part: int) -> None:
    """Kernels that read sizes compute the same from patterns and from translations for fixed shapes."""
    device = Device(adapter, specialize="never")
    check_node_tests(part, SAMPLE, device)
    device.remove()
