"""Every conformance case on every adapter, the numpy one included: ``pytest tests/gpu/test_cases.py -k NAME``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.device.adapters import adapters
from dmlgpu.device.device import Device
from dmlgpu.errors import NotSupported
from dmlgpu.target import AdapterInfo
from tests.strategies import cases_of

DRAWN_CASES = 1
"""Cases that Hypothesis draws per operator and adapter; every one is a shader to compile."""


def identifier(info: AdapterInfo) -> str:
    return f"{info.backend}-{info.name.split(' (')[0].replace(' ', '_')}"


SHARES = {"SwiftShader": 6, "OpenGL": 8, "NumPy": 16}
"""Of how many cases the sample takes one, by a word in the adapter's name or backend. OpenGL's shaders come from
the same text as Vulkan's; the numpy adapter only shows that the device layer hands the reference's results through."""

SHARE = 3
"""The same on all other adapters."""


def sample(names: Iterable[str], info: AdapterInfo) -> list[str]:
    """Some of the names, as many as an adapter runs without ``--profile``: the same on every run."""
    share = next((share for word, share in SHARES.items() if word in f"{info.backend} {info.name}"), SHARE)
    return [name for name in names if zlib.crc32(name.encode()) % share == 0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found, profile = adapters(), metafunc.config.getoption("--profile")
    if "deterministic_device" in metafunc.fixturenames:
        metafunc.parametrize("deterministic_device", found, ids=identifier, indirect=True, scope="module")
        names = [name for name in case_names(profile or "standard") if "-duplicates-" in name]
        metafunc.parametrize("duplicates_name", names)
        return
    wanted = {"case_name": case_names(profile or "standard"), "stem": OPERATOR_CASES}
    argument = next(name for name in wanted if name in metafunc.fixturenames)
    pairs = [
        (info, name) for info in found for name in (wanted[argument] if profile else sample(wanted[argument], info))
    ]
    ids = [f"{identifier(info)}-{name}" for info, name in pairs]
    metafunc.parametrize(("device", argument), pairs, ids=ids, indirect=["device"], scope="module")


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


@settings(max_examples=DRAWN_CASES)
@given(data=st.data())
def test_drawn_cases(device: Device, stem: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(OPERATOR_CASES[stem]))
    assume(device.adapter.name == "numpy" or not may_refuse(device, case))
    check(device, case)
