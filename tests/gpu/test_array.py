"""The array API's namespace on GPUs against NumPy's: booleans, bits, special numbers, indexing and compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlgpu.array as xp
from dmlgpu import Device
from dmlgpu.runtime.wgpu import GpuBackend
from tests.unit.array.array_functions import ARRAY, INDICES, ROW, SPECIAL

FLOATS = ["expm1", "signbit", "isfinite"]
PAIRS = ["copysign", "maximum", "remainder"]


@pytest.fixture(scope="module")
def plain(backend: GpuBackend) -> Device:
    """A device on each adapter."""
    return Device.from_backend(backend)


def check(result: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-5, atol=1e-6)
    else:
        assert np.array_equal(result.numpy(), expected)


def test_special_numbers(plain: Device) -> None:
    x = xp.asarray(SPECIAL, device=plain)
    with np.errstate(all="ignore"):
        for name in FLOATS:
            check(getattr(xp, name)(x), getattr(np, name)(SPECIAL))
        for name in PAIRS:
            check(getattr(xp, name)(x[:, None], x), getattr(np, name)(SPECIAL[:, None], SPECIAL))
        check(xp.max(x), np.max(SPECIAL))
        check(xp.argmin(x).astype("int32"), np.int32(np.argmin(SPECIAL)))


def test_indexing_and_assignment(plain: Device) -> None:
    array = ARRAY.astype(np.int32)
    for name in ("a mask", "integers apart", "slices", "an empty slice"):
        x = xp.asarray(array, device=plain)
        check(x[INDICES[name]], array[INDICES[name]])
        x[INDICES[name]] = 7
        expected = array.copy()
        expected[INDICES[name]] = 7
        check(x, expected)


def test_compositions(plain: Device) -> None:
    x, row = xp.asarray(ARRAY.astype(np.int32), device=plain), xp.asarray(ROW.astype(np.int32), device=plain)
    check(xp.unique_values(x), np.unique(ARRAY).astype(np.int32))
    check(xp.searchsorted(row, x[0]), np.searchsorted(ROW, ARRAY[0]))
    check(x @ x[0].T, (ARRAY @ ARRAY[0].T).astype(np.int32))
    check((x > 4) & ~(x == 9), (ARRAY > 4) & (ARRAY != 9))
    check(xp.all(x > 0, axis=1), np.ones((2, 4), bool))
    small = np.array([[-128, 7, 100]], np.int8)
    check(xp.asarray(small, device=plain) // 7, small // np.int8(7))
    check(xp.asarray(small, device=plain) >> 2, small >> 2)
    check(xp.sum(xp.asarray(small, device=plain), dtype=xp.int8), small.sum(dtype=np.int8))
    floats = ARRAY.astype(np.float32)
    check(xp.var(xp.asarray(floats, device=plain), axis=1, correction=1), floats.var(1, ddof=1))


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_empty_arrays(plain: Device, dtype: str) -> None:
    x = xp.zeros((0, 3), dtype=dtype, device=plain)
    check(x + 1, np.zeros((0, 3), dtype))
    check(xp.concat([x, xp.ones((2, 3), dtype=dtype, device=plain)]), np.ones((2, 3), dtype))
    check(xp.sum(x, axis=0, dtype=dtype), np.zeros(3, dtype))
