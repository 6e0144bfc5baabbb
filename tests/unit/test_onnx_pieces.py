"""Weights that the adapter cannot bind at once, with a limit set low, on the adapter numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import Session
from tests.unit.onnx_against import expected_of, model_of_node, normal


def limited(op_type: str, inputs: list[np.ndarray], number: int, **attributes: Any) -> tuple[Session, Any, Any]:
    """A session that binds at most 1 KiB at once, what it is fed, and what is expected."""
    model, feeds = model_of_node(op_type, inputs, ["y"], weights=(number,), **attributes)
    device = dmlgpu.Device("numpy")
    device.backend.target = replace(device.backend.target, max_binding_size=1024)
    return load(model, device), feeds, expected_of(model, feeds)[0]


@pytest.mark.parametrize(("rows", "axis"), [((3, 2), 0), ((5,), 1), ((), 0)])
def test_gather(rows: tuple[int, ...], axis: int) -> None:
    indices = np.random.default_rng(0).integers(-40, 40, rows)
    session, feeds, expected = limited("Gather", [normal(40, 40), indices], 0, axis=axis)
    np.testing.assert_array_equal(session.run(feeds)["y"], expected)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GATHER") == 7


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned: int) -> None:
    b = normal(40, 50) if turned else normal(50, 40)
    a, c = normal(3, 50), normal(40)
    session, feeds, expected = limited("Gemm", [a, b, c], 1, transB=turned, alpha=0.5)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
    operators = [name for placement in session.placement for name in placement.operators]
    assert operators.count("GEMM") == 8


def test_matmul() -> None:
    session, feeds, expected = limited("MatMul", [normal(2, 3, 50), normal(50, 40)], 1)
    np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
