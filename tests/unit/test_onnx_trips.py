"""Trips of loops that are recorded together, on the adapter numpy, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu.frontends.onnx import load
from tests.unit.onnx_against import expected_of
from tests.unit.onnx_trips import feeds_of, loops, scan


@pytest.mark.parametrize("kind", list(loops()))
def test_loops_of_many_trips(kind: str) -> None:
    model = loops()[kind]
    feeds = feeds_of(model)
    session = load(model, "numpy")
    for _ in range(2):  # what is compiled is found again
        for result, expected in zip(session.run(feeds).values(), expected_of(model, feeds), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize(("axis", "output_axis"), [(0, 0), (1, 0), (0, 1)])
def test_scans_of_many_steps(backward: int, axis: int, output_axis: int) -> None:
    model = scan(backward, axis, output_axis)
    feeds = feeds_of(model)
    for result, expected in zip(load(model, "numpy").run(feeds).values(), expected_of(model, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
