"""Iterations of loops that are recorded together, on the adapter numpy, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import InvalidArgument
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx import loops as onnx_loops
from dmlgpu.frontends.onnx.device_loops import MAX_TRIPS, MIN_TRIPS
from tests.unit.frontends.onnx.device_loops import TRIPS, counted, feeds_of, loops, scan
from tests.unit.frontends.onnx.onnx_against import expected_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(loops()))
def test_loops_of_many_trips(kind: str) -> None:
    model = loops()[kind]
    feeds = feeds_of(model)
    session = load(model, "numpy")
    for _ in range(2):  # compiled graphs are reused
        for result, expected in zip(session.run(feeds).values(), expected_of(model, feeds), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trips", [0, 1, MIN_TRIPS, MIN_TRIPS + 1, MAX_TRIPS, MAX_TRIPS + 1, MAX_TRIPS + 2])
def test_trip_counts_at_the_edges_of_submissions(trips: int) -> None:
    model = counted(loops()["old states as results"], trips)
    feeds = feeds_of(model)
    (state, old), expected = load(model, "numpy").run(feeds).values(), expected_of(model, feeds)
    np.testing.assert_allclose(state, expected[0], rtol=1e-5, atol=1e-6)
    assert len(old) == trips
    if trips:  # onnxruntime leaves open the shape of results without trips
        np.testing.assert_allclose(old, expected[1], rtol=1e-5, atol=1e-6)


def test_indices_of_recorded_trips_are_checked() -> None:
    model = counted(loops()["trip numbers and results"], TRIPS + 10)
    with pytest.raises(InvalidArgument, match=f"Gather.*between -{TRIPS} and {TRIPS - 1}, got {TRIPS}"):
        load(model, "numpy").run(feeds_of(model))


def test_bodies_that_the_host_must_read_are_rejected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    recorded = onnx_loops.recorded_trips
    monkeypatch.setattr(
        onnx_loops, "recorded_trips", lambda *args, **named: calls.append(args) or recorded(*args, **named)
    )
    model = loops()["an end that the device computes"]
    load(counted(model, TRIPS), "numpy").run(feeds_of(model) | {"x": np.zeros((TRIPS, 4), np.float32)})
    assert len(calls) == 1


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize(("axis", "output_axis"), [(0, 0), (1, 0), (0, 1)])
def test_scans_of_many_steps(backward: int, axis: int, output_axis: int) -> None:
    model = scan(backward, axis, output_axis)
    feeds = feeds_of(model)
    for result, expected in zip(load(model, "numpy").run(feeds).values(), expected_of(model, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
