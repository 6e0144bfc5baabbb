"""Cases run in Chromium, whose Dawn refuses what aliases: those where it would, and a few of all others."""

from __future__ import annotations

import zlib

import pytest

from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.device.device import Device
from dmlgpu.errors import NotSupported
from tests.chromium.browser_backend import BrowserBackend
from tests.quick_programs import PROFILES

pytestmark = pytest.mark.xdist_group("chromium")  # it is started once

ALIASING = ("-inplace-", "rnn-", "lstm-", "gru-", "resample", "upsample", "owned")
SHARE = {True: 5, False: 40}
"""Of how many cases one is run, by whether slots may meet; all are with ``--profile full``."""


@pytest.fixture(scope="module", params=PROFILES)
def device(page, facts, request):
    device = Device.from_backend(BrowserBackend(page, facts, request.param))
    yield device
    device.remove()


def test_cases_run_in_chromium(device, request):
    failures, passed = {}, 0
    for name in case_names("quick"):
        share = SHARE[any(word in name for word in ALIASING)]
        if request.config.getoption("--profile") != "full" and zlib.crc32(name.encode()) % share:
            continue
        try:
            verdict = run_case(case_by_name(name), device)
        except NotSupported as refusal:
            assert "needs the adapter feature" in str(refusal)
        except Exception as error:
            failures[name] = str(error)
        else:
            passed += verdict.ok
            if not verdict.ok:
                failures[name] = str(verdict)
    print(f"{passed} passed")
    assert not failures, "\n".join(f"{name}: {failure}" for name, failure in failures.items())
    assert passed > 20
