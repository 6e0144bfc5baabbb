"""Operators of ai.onnx.ml on every adapter, against onnxruntime's CPU provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from tests.unit.frontends.onnx.onnx_ml import (
    difference,
    expected_outputs,
    model_of_node,
    random_ensemble,
    random_joined_ensemble,
    random_machine,
)
from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

BOOSTED = Path(__file__).parent.parent / "data" / "boosted"


@pytest.mark.parametrize(("seed", "dtype"), [(1, np.float32), (2, np.float64), (6, np.float32)])
def test_ensembles(backend: GpuBackend, seed: int, dtype: Any) -> None:
    op_type, attributes, outputs, rows = random_ensemble(seed, dtype)
    model = model_of_node(op_type, [rows], outputs, **attributes)
    results = load(model, Device.from_backend(backend)).run({"x0": rows})
    assert not difference(results, expected_outputs(model, rows))


def test_sums_of_float64(backend: GpuBackend) -> None:
    attributes, rows = random_joined_ensemble(1, np.float64, has_sum=True)
    model = model_of_node("TreeEnsemble", [rows], {"y": TensorProto.DOUBLE}, version=5, **attributes)
    results = load(model, Device.from_backend(backend)).run({"x0": rows})
    assert not difference(results, expected_outputs(model, rows), 1e-15, 1e-15)


@pytest.mark.parametrize("seed", [0, 5])
def test_machines(backend: GpuBackend, seed: int) -> None:
    op_type, attributes, outputs, rows = random_machine(seed, np.float32)
    model = model_of_node(op_type, [rows], outputs, **attributes)
    results = load(model, Device.from_backend(backend)).run({"x0": rows})
    assert not difference(results, expected_outputs(model, rows))


def test_boosted_trees(backend: GpuBackend) -> None:
    """Of categories and missing numbers, for several numbers of rows."""
    model, rows = onnx.load(BOOSTED / "lightgbm_categories.onnx"), np.load(BOOSTED / "rows.npy")
    session = load(model, Device.from_backend(backend))
    (name,) = (entry.name for entry in session.inputs)
    for some in (rows, rows[:1], rows[:33]):
        assert not difference(session.run({name: some}), onnxruntime_outputs(model, {name: some}))
