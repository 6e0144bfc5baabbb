"""Trips of loops that are recorded together, on every adapter, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgpu import Device
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.device_loops import TRIPS, feeds_of, loops, scan
from tests.unit.frontends.onnx.onnx_against import expected_of

MODELS = {
    "counter": loops()["a counter that the device reads"],
    "end": loops()["an end that the host computes"],
    "results": loops()["trip numbers and results"],
    "scan": scan(backward=1, axis=0, output_axis=1),
}


@pytest.mark.parametrize("kind", list(MODELS))
def test_trips_are_submitted_together(device: Device, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, submissions = MODELS[kind], 0
    session, feeds = load(model, device), feeds_of(MODELS[kind])
    session.run(feeds)
    enqueue = device.backend.enqueue

    def counted(work: Any, **options: Any) -> int:
        nonlocal submissions
        submissions += 1
        return enqueue(work, **options)

    monkeypatch.setattr(device.backend, "enqueue", counted)
    results = session.run(feeds)
    monkeypatch.undo()
    for result, expected in zip(results.values(), expected_of(model, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert 0 < submissions < TRIPS / 20
