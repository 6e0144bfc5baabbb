"""Cases run in Chromium, whose Dawn refuses what aliases: those where it would, and a few of all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

from dmlgpu.common.errors import NotSupported
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.browser.backend import BrowserBackend
from dmlgpu.runtime.device import Device
from tests.quick_programs import PROFILES

pytestmark = pytest.mark.xdist_group("chromium")  # it is started once

KINDS = {"rnn-": 1, "lstm-": 1, "gru-": 1, "upsample": 1, "-inplace-": 6, "resample": 6, "owned": 9, "": 100}
"""Of how many cases one is run, by a word of their names; those of a kind before belong to it. All but the last kind
have slots that may meet. All cases are run with ``--profile full``."""


def sample(names: Iterable[str]) -> list[str]:
    """Some cases of each kind."""
    kinds: dict[str, list[str]] = {word: [] for word in KINDS}
    for name in names:
        kinds[next(word for word in KINDS if word in name)].append(name)
    return [name for word, names in kinds.items() for name in names[:: KINDS[word]]]


@pytest.fixture(scope="module", params=PROFILES)
def device(lent, request):
    server, info, _ = lent
    backend = BrowserBackend(info, server.borrowing, 1)
    backend.target = dataclasses.replace(backend.target, profile=request.param)
    device = Device.from_backend(backend)
    yield device
    device.remove()


def test_cases_run_in_chromium(device, request):
    failures, passed = {}, 0
    for name in case_names("quick") if request.config.getoption("--profile") == "full" else sample(case_names("quick")):
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
    assert passed > 15
