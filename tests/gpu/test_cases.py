"""Every conformance case on every adapter, the numpy one included: ``pytest tests/gpu/test_cases.py -k NAME``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlgpu.conformance.case import Case
from dmlgpu.conformance.cases import OPERATOR_CASES, case_by_name, case_names
from dmlgpu.conformance.runner import run_case
from dmlgpu.conformance.strategies import cases_of
from dmlgpu.device.adapters import adapters
from dmlgpu.device.device import Device
from dmlgpu.errors import NotSupported
from dmlgpu.target import AdapterInfo

DRAWN_CASES = 8
"""Cases that Hypothesis draws per operator and adapter; every one is a shader to compile."""


def identifier(info: AdapterInfo) -> str:
    return f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = adapters()
    for fixture in {"device", "deterministic_device"} & set(metafunc.fixturenames):
        metafunc.parametrize(fixture, found, ids=identifier, indirect=True, scope="module")
    names = case_names(metafunc.config.getoption("--profile"))
    if "case_name" in metafunc.fixturenames:
        metafunc.parametrize("case_name", names)
    if "duplicates_name" in metafunc.fixturenames:
        metafunc.parametrize("duplicates_name", [name for name in names if "-duplicates-" in name])


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


def may_refuse(device: Device, case: Case) -> bool:
    """Whether the adapter lacks what the case needs."""
    return case.needs is not None and case.needs not in device.adapter.features


def check(device: Device, case: Case) -> None:
    """Run a case; its name is in the message."""
    try:
        verdict = run_case(case, device)
    except NotSupported as refusal:
        assert may_refuse(device, case), f"{case} must run on {device.adapter}, but: {refusal}"
        pytest.skip(f"not supported: {refusal}")
    assert verdict.ok, f"{case} on {device.adapter}: {verdict}"


def test_case(device: Device, case_name: str) -> None:
    check(device, case_by_name(case_name))


def test_the_last_update_wins_on_a_deterministic_device(deterministic_device: Device, duplicates_name: str) -> None:
    check(deterministic_device, case_by_name(duplicates_name))


@pytest.mark.parametrize("stem", OPERATOR_CASES)
@settings(max_examples=DRAWN_CASES)
@given(data=st.data())
def test_drawn_cases(device: Device, stem: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(OPERATOR_CASES[stem]))
    assume(device.adapter.name == "numpy" or not may_refuse(device, case))
    check(device, case)
