"""The conformance cases on every adapter, the numpy one included: ``pytest tests/gpu/test_cases.py -k NAME``.

Without ``--profile`` each adapter takes a sample, half by the schedules for CPUs, half by those for GPUs. With
it, all cases of the profile run by both.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import AdapterInfo, Profile
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import division_of_gpus
from tests.gpu.usable import identifier, usable_adapters
from tests.strategies import cases_of

DRAWN_CASES = 1
"""Cases that Hypothesis draws per operator and adapter; every one is a shader to compile."""


SHARE, SHARE_OF_NUMPY = 5, 16
"""Of how many cases the sample takes one. The numpy adapter only shows that the device layer returns the results of
the reference; adapters other than the first take fewer (tests/tiers.py)."""


SCHEDULES = (Profile.CPU, Profile.DISCRETE)


def runs(names: Iterable[str], info: AdapterInfo, *, everything: bool) -> Iterator[tuple[Profile, str]]:
    """What an adapter runs, by which schedules: without ``everything`` a sample, the same on every run."""
    share = SHARE_OF_NUMPY if info == NUMPY_ADAPTER else SHARE
    for name in names:
        number, rest = divmod(zlib.crc32(name.encode()), share)
        if everything:
            yield from ((schedules, name) for schedules in SCHEDULES)
        elif rest == 0:
            yield SCHEDULES[number % len(SCHEDULES)], name


all_names = functools.cache(case_names)


TORN = re.compile(r"^\w+-(u?int64|float64)-.*-duplicates-")
"""Cases whose places of two words are written by several invocations: on a device whose order is not fixed a place may
get a word of each, so that only the deterministic device judges them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    located, profile = usable_adapters(numpy=True), metafunc.config.getoption("--profile")
    names = all_names(profile or "standard")
    if "deterministic_device" in metafunc.fixturenames:
        metafunc.parametrize("deterministic_device", located, ids=identifier, indirect=True, scope="module")
        metafunc.parametrize("duplicates_name", [name for name in names if "-duplicates-" in name])
        return
    values = {"case_name": [name for name in names if not TORN.match(name)], "stem": OPERATOR_CASES}
    argument = next(name for name in values if name in metafunc.fixturenames)
    pairs = [
        ((info, schedules), name)
        for info in located
        for schedules, name in sorted(runs(values[argument], info, everything=profile is not None))
    ]
    ids = [f"{identifier(info)}-{schedules}-{name}" for (info, schedules), name in pairs]
    metafunc.parametrize(("device", argument), pairs, ids=ids, indirect=["device"], scope="module")


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device on each adapter, with each of the schedules; the numpy adapter has none."""
    info, schedules = request.param
    device = Device(info)
    if isinstance(device.backend, GpuBackend):
        target = device.backend.target
        division = target.division if schedules is Profile.CPU else division_of_gpus(device.backend)
        device.backend.target = replace(target, profile=schedules, division=division)
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
