"""Matrix products by every schedule, on every adapter, at and near the sizes of tiles."""

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
from tests.gpu.descriptions import Product, gemm_of, run_desc

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
PROFILES = [Profile.CPU, Profile.DISCRETE]
OF_ALL = [name for name in NAMES if "streamed" not in name]
OF_FLOATS = [name for name in OF_ALL if "packed" not in name]

# rows, columns, inner, batch, transposes of A and B, type: at tiles' sizes, one off, thin, long
SHAPES: dict[str, Product] = {
    "one": (1, 1, 1, (), 0, 0, F32),
    "whole tiles": (64, 64, 64, (), 0, 0, F32),
    "near misses": (65, 63, 33, (), 0, 1, F32),
    "transposed batch": (17, 20, 36, (2, 3), 1, 1, F32),
    "odd float16": (33, 31, 19, (), 0, 0, F16),
    "halves": (32, 64, 48, (2,), 1, 0, F16),
    "a row": (1, 100, 300, (), 0, 0, F32),
    "a column": (100, 1, 300, (), 0, 0, F32),
    "long sums": (5, 9, 5003, (), 0, 1, F32),
    "panels": (256, 256, 9, (), 0, 0, F32),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schedule", OF_FLOATS)
@pytest.mark.parametrize("name", SHAPES)
def test_every_schedule_of_gemm(backend: GpuBackend, name: str, schedule: str, profile: Profile) -> None:
    desc, arrays, expected = gemm_of(SHAPES[name])
    target = replace(backend.target.exact, profile=profile).with_overrides(schedule=schedule)
    (got,) = run_desc(backend, desc, arrays, target)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a row", "a column"])
def test_slabs_for_workgroups_of_64_invocations(backend: GpuBackend, name: str) -> None:
    """A limit of 128 invocations, as on some phones, is too low for workgroups of 256: each fetches several units."""
    desc, arrays, expected = gemm_of(SHAPES[name])
    target = replace(backend.target.exact, profile=Profile.DISCRETE, max_workgroup_invocations=128)
    (got,) = run_desc(backend, desc, arrays, target.with_overrides(schedule="shared"))
    np.testing.assert_array_equal(got, expected)


def product_in_float16(backend: GpuBackend, a: Any, b: Any, trans_a: int = 0, trans_b: int = 0) -> Any:
    """The product of float16 matrices in float16, on the schedules of GPUs."""
    target = replace(backend.target, profile=Profile.DISCRETE).with_overrides(schedule="shared")
    if not target.has("shader-f16"):
        pytest.skip("the adapter has no float16 arithmetic")
    stored_a, stored_b = (x.swapaxes(-1, -2) if t else x for x, t in ((a, trans_a), (b, trans_b)))
    desc = descs.Gemm(
        a_tensor=TensorDesc(F16, stored_a.shape),
        b_tensor=TensorDesc(F16, stored_b.shape),
        output_tensor=TensorDesc(F16, (*a.shape[:-1], b.shape[-1])),
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
    )
    (result,) = run_desc(backend, desc, [stored_a, stored_b], target)
    return result


@pytest.mark.parametrize(
    ("sizes", "trans_a", "trans_b"),
    [((64, 64, 64), 0, 0), ((64, 48, 68), 1, 1), ((33, 19, 31), 0, 0), ((2, 20, 300, 24), 0, 1)],
    ids=str,
)
def test_products_in_float16(backend: GpuBackend, sizes: tuple[int, ...], trans_a: int, trans_b: int) -> None:
    """Sums of 16 small integers are exact in float16."""
    *batch, rows, inner, columns = sizes
    rng = np.random.default_rng(3)
    a = rng.integers(-2, 3, (*batch, rows, inner)).astype(np.float16)
    b = rng.integers(-2, 3, (*batch, inner, columns)).astype(np.float16)
    result = product_in_float16(backend, a, b, trans_a, trans_b)
    np.testing.assert_array_equal(result, (a.astype(np.float64) @ b).astype(np.float16))


def test_long_sums_of_float16_are_added_in_float32(backend: GpuBackend) -> None:
    """In float16, 2048 + 1 is 2048."""
    a, b = np.ones((16, 4096), np.float16), np.ones((4096, 16), np.float16)
    np.testing.assert_array_equal(product_in_float16(backend, a, b), np.float16(4096))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schedule", OF_ALL)
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
    target = replace(backend.target.exact, profile=profile).with_overrides(schedule=schedule)
    (got,) = run_desc(backend, desc, [a, a_zero, b, b_zero], target)
    np.testing.assert_array_equal(got, (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero))
