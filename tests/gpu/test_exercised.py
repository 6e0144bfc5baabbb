"""What a run on an adapter used of WGSL, and what its kernels avoided."""

from __future__ import annotations

import io
import json

import pytest

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.running.exercised import RunNotes
from dmlgpu.conformance.running.worker import CaseServer, open_device
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.adapters import adapters

CASES = ("argmin-example1", "driver-f32-exp-1024", "driver-memory-atomic-compare_exchange")


def test_a_run_tells_what_it_used_and_avoided(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_FLOAT16", "software")
    responses, notes = io.StringIO(), RunNotes()
    server = CaseServer(suite_by_name("dmlgpu"), responses)
    device = open_device(adapters().index(adapter), server.tell_kernels)
    server.serve(device, io.StringIO("".join(f"{json.dumps(case)}\n" for case in CASES)))
    records = [json.loads(line) for line in responses.getvalue().splitlines()]
    assert [record["status"] for record in records if "status" in record] == ["pass"] * len(CASES)
    for record in records:
        if "exercised" in record:
            notes.add(record["exercised"])
    table = notes.exercised()
    assert table is not None and table.kernels >= len(CASES)
    assert table.used["@builtin(global_invocation_id)"] >= 2
    assert {"exp", "atomicCompareExchangeWeak", "f32", "vec3<u32>"} <= table.used.keys()
    assert {"refract", "mat3x4"} <= set(table.never)
    reasons = table.reasons()
    assert reasons["pack2x16float"] == reasons["unpack2x16float"] == "probe float16: set by DMLGPU_FLOAT16"
    assert ("f16" in reasons) == ("shader-f16" not in adapter.features)
