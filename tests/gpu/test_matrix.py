"""Matrix products by every schedule, whatever an adapter would choose, at and beside the sizes of tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.schedule.gemm_choice import NAMES
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
PROFILES = [Profile.CPU, Profile.DISCRETE]

# rows, columns, inner, batch, transposes of A and B, type: at tiles' sizes, one off, thin, long
SHAPES: dict[str, tuple[int, int, int, tuple[int, ...], int, int, DataType]] = {
    "one": (1, 1, 1, (), 0, 0, F32),
    "whole tiles": (64, 64, 64, (), 0, 0, F32),
    "near misses": (65, 63, 33, (), 0, 1, F32),
    "transposed batch": (17, 20, 36, (2, 3), 1, 1, F32),
    "odd halves": (33, 31, 19, (), 0, 0, F16),
    "halves": (32, 64, 48, (2,), 1, 0, F16),
    "a row": (1, 100, 300, (), 0, 0, F32),
    "a column": (100, 1, 300, (), 0, 0, F32),
    "long sums": (5, 9, 5003, (), 0, 1, F32),
    "panels": (256, 256, 9, (), 0, 0, F32),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schedule", NAMES)
@pytest.mark.parametrize("name", SHAPES)
def test_every_schedule_of_gemm(backend: GpuBackend, name: str, schedule: str, profile: Profile) -> None:
    """Elements are small integers, so that every sum is exact."""
    rows, columns, inner, batch, trans_a, trans_b, data_type = SHAPES[name]
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-2, 3, (*batch, *sizes)).astype(data_type.numpy) for sizes in ((rows, inner), (inner, columns))
    )
    c = rng.integers(-8, 9, (*batch, rows, columns)).astype(data_type.numpy)
    stored_a, stored_b = (x.swapaxes(-1, -2) if t else x for x, t in ((a, trans_a), (b, trans_b)))
    desc = descs.Gemm(
        a_tensor=TensorDesc(data_type, stored_a.shape),
        b_tensor=TensorDesc(data_type, stored_b.shape),
        c_tensor=TensorDesc(data_type, c.shape),
        output_tensor=TensorDesc(data_type, c.shape),
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
        alpha=2.0,
        beta=-1.0,
        fused_activation=descs.ActivationRelu(),
    )
    target = replace(backend.target.exact, profile=profile, schedule=schedule)
    (got,) = run_desc(backend, desc, [stored_a, stored_b, c], target)
    want = np.maximum(2 * (a.astype(np.float64) @ b) - c, 0)
    np.testing.assert_array_equal(got, want.astype(data_type.numpy))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schedule", NAMES)
@pytest.mark.parametrize("sizes", [(64, 64, 64), (17, 31, 300)], ids=str)
def test_every_schedule_of_integers(
    backend: GpuBackend, sizes: tuple[int, int, int], schedule: str, profile: Profile
) -> None:
    rows, columns, inner = sizes
    rng = np.random.default_rng(2)
    a, a_zero = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, inner), (rows, 1)))
    b, b_zero = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((inner, columns), (1, columns)))

    def tensor(array: Any) -> TensorDesc:
        return TensorDesc(DataType.from_numpy(array.dtype), array.shape)

    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a),
        a_zero_point_tensor=tensor(a_zero),
        b_tensor=tensor(b),
        b_zero_point_tensor=tensor(b_zero),
        output_tensor=TensorDesc(DataType.INT32, (rows, columns)),
    )
    target = replace(backend.target.exact, profile=profile, schedule=schedule)
    (got,) = run_desc(backend, desc, [a, a_zero, b, b_zero], target)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero))
