"""What a run on an adapter used of WGSL, and what its kernels avoided."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest

from dmlgpu.compiler.target import SCHEDULES_VARIABLE, AdapterInfo
from dmlgpu.conformance.running.exercised import Exercised, RunNotes
from dmlgpu.conformance.running.worker import CaseServer, open_device
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.adapters import adapters

REDUCTION = "reduce-float32-16x200-packed-sum-scaled-s0"

CASES = ("argmin-example1", "driver-f32-exp-1024", "driver-memory-atomic-compare_exchange")


@pytest.mark.parametrize(("schedules", "has_barriers"), [("gpu", True), ("cpu", False)])
def test_the_environment_selects_schedules(
    adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch, schedules: str, has_barriers: bool
) -> None:
    monkeypatch.setenv(SCHEDULES_VARIABLE, schedules)
    assert ("workgroupBarrier" in exercised(adapter, (REDUCTION,)).used) == has_barriers


def test_a_run_tells_what_it_used_and_avoided(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_FLOAT16", "software")
    table = exercised(adapter, CASES)
    assert table.kernels >= len(CASES)
    assert table.used["@builtin(global_invocation_id)"] >= 2
    assert {"exp", "atomicCompareExchangeWeak", "f32", "vec3<u32>"} <= table.used.keys()
    assert {"refract", "mat3x4"} <= set(table.never)
    reasons = table.reasons()
    assert reasons["pack2x16float"] == reasons["unpack2x16float"] == "probe float16: set by DMLGPU_FLOAT16"
    assert ("f16" in reasons) == ("shader-f16" not in adapter.features)


def exercised(adapter: AdapterInfo, cases: Sequence[str]) -> Exercised:
    """What cases use, which must pass."""
    responses, notes = io.StringIO(), RunNotes()
    server = CaseServer(suite_by_name("dmlgpu"), responses)
    device = open_device(adapters().index(adapter), server.tell_kernels)
    server.serve(device, io.StringIO("".join(f"{json.dumps(case)}\n" for case in cases)))
    records = [json.loads(line) for line in responses.getvalue().splitlines()]
    assert [record["status"] for record in records if "status" in record] == ["pass"] * len(cases)
    for record in records:
        if "exercised" in record:
            notes.add(record["exercised"])
    table = notes.exercised()
    assert table is not None
    return table
