"""Every conformance case on every adapter, the numpy one included: ``pytest tests/gpu/test_cases.py -k NAME``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlgpu.conformance.cases import case_by_name, case_names
from dmlgpu.conformance.runner import run_case
from dmlgpu.device.adapters import adapters
from dmlgpu.device.device import Device
from dmlgpu.errors import NotSupported


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = adapters()
    ids = [f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}" for info in found]
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", found, ids=ids, indirect=True, scope="module")
    if "deterministic_device" in metafunc.fixturenames:
        metafunc.parametrize("deterministic_device", found, ids=ids, indirect=True, scope="module")
    if "case_name" in metafunc.fixturenames:
        names = case_names(metafunc.config.getoption("--profile"))
        metafunc.parametrize(
            "case_name",
            [n for n in names if "duplicates" in n] if "deterministic_device" in metafunc.fixturenames else names,
        )


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device on each adapter."""
    device = Device(request.param)
    yield device
    device.remove()


@pytest.fixture(scope="module")
def deterministic_device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device on each adapter whose results do not depend on the order of invocations."""
    device = Device(request.param, deterministic=True)
    yield device
    device.remove()


def check(device: Device, case_name: str) -> None:
    case = case_by_name(case_name)
    try:
        verdict = run_case(case, device)
    except NotSupported as refusal:
        assert case.needs is not None, f"{case_name} must run on every adapter, but: {refusal}"
        assert case.needs not in device.adapter.features, f"{device.adapter} has {case.needs}, but: {refusal}"
        pytest.skip(f"not supported: {refusal}")
    assert verdict.ok, f"{case_name} on {device.adapter}: {verdict}"


def test_case(device: Device, case_name: str) -> None:
    check(device, case_name)


def test_the_last_update_wins_on_a_deterministic_device(deterministic_device: Device, case_name: str) -> None:
    check(deterministic_device, case_name)
