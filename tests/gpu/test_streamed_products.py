"""Products of few rows that read their columns once: both layouts, slices that do not divide sums, edges of tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import Product, gemm_of, run_desc

F32, F16 = DataType.FLOAT32, DataType.FLOAT16

SHAPES: dict[str, Product] = {
    "a row": (1, 256, 512, (), 0, 0, F32),
    "a row, columns in one piece": (1, 100, 1024, (), 0, 1, F32),
    "whole slabs": (8, 128, 2048, (), 0, 0, F32),
    "whole slabs, columns in one piece": (8, 128, 2048, (), 0, 1, F32),
    "parts of slabs": (5, 132, 1500, (), 0, 0, F32),
    "parts of slabs, columns in one piece": (7, 131, 1500, (), 0, 1, F32),
    "parts of slabs of few rows": (2, 60, 1500, (2,), 0, 1, F32),
    "most rows": (16, 64, 516, (), 0, 1, F32),
    "two tiles of rows": (19, 40, 260, (), 0, 0, F32),
    "transposed batch": (3, 20, 68, (2, 3), 1, 0, F32),
    "transposed": (13, 21, 100, (2,), 1, 1, F32),
    "halves": (4, 96, 1280, (), 0, 0, F16),
    "float16, columns in one piece": (9, 33, 2500, (2,), 0, 1, F16),
    "short sums": (2, 36, 12, (), 0, 1, F32),
}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["streamed", "streamed-split"])
@pytest.mark.parametrize("name", SHAPES)
def test_streamed_products(backend: GpuBackend, name: str, schedule: str) -> None:
    check(name, replace(backend.target.exact, profile=Profile.DISCRETE).with_overrides(schedule=schedule), backend)


def test_streamed_products_with_sizes_as_parameters(backend: GpuBackend) -> None:
    target = replace(backend.target.exact, profile=Profile.DISCRETE).with_overrides(schedule="streamed-split")
    check("parts of slabs of few rows", target.general, backend)


def check(name: str, target: Target, backend: GpuBackend) -> None:
    """Compare with NumPy."""
    desc, arrays, expected = gemm_of(SHAPES[name])
    assert stages.compile_operator(desc, target).kernels[0].label.startswith("gemm streamed")
    (result,) = run_desc(backend, desc, arrays, target)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rows", "inner"), [(4, 512), (17, 132)])
def test_streamed_products_of_integers(backend: GpuBackend, rows: int, inner: int) -> None:
    rng = np.random.default_rng(2)
    a, a_zero = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, inner), (rows, 1)))
    b, b_zero = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((inner, 76), (1, 76)))

    def tensor(array: Any) -> TensorDesc:
        return TensorDesc(DataType.from_numpy(array.dtype), array.shape)

    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a),
        a_zero_point_tensor=tensor(a_zero),
        b_tensor=tensor(b),
        b_zero_point_tensor=tensor(b_zero),
        output_tensor=TensorDesc(DataType.INT32, (rows, 76)),
    )
    target = replace(backend.target.exact, profile=Profile.DISCRETE).with_overrides(schedule="streamed")
    (result,) = run_desc(backend, desc, [a, a_zero, b, b_zero], target)
    np.testing.assert_array_equal(result, (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero))


@pytest.mark.parametrize("trans_b", [0, 1])
def test_steps_beyond_a_sum_are_not_multiplied(backend: GpuBackend, trans_b: int) -> None:
    """Zero times the infinite element of a last step that is read again would be NaN."""
    a, b = np.ones((2, 100), np.float32), np.ones((100, 32), np.float32)
    b[96:] = np.inf
    stored_b = b.T if trans_b else b
    desc = descs.Gemm(
        a_tensor=TensorDesc(F32, a.shape),
        b_tensor=TensorDesc(F32, stored_b.shape),
        output_tensor=TensorDesc(F32, (2, 32)),
        trans_b=MatrixTransform(trans_b),
    )
    target = replace(backend.target.exact, profile=Profile.DISCRETE).with_overrides(schedule="streamed")
    (result,) = run_desc(backend, desc, [a, np.ascontiguousarray(stored_b)], target)
    assert np.all(result == np.inf)
