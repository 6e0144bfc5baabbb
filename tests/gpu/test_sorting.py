"""TOP_K1 by every schedule, on every adapter, and near misses of tiles, runs, shares and groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

F32, F16, I64, U64, U8 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT64", "UINT64", "UINT8"))
CPU, GPU = Profile.CPU, Profile.DISCRETE
INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING


def target_for(backend: GpuBackend, profile: Profile) -> Target:
    """Without the features that 64-bit integers must not need."""
    target = backend.target.exact
    return replace(target, profile=profile, features=target.features - {"shader-int64"})


def run(
    backend: GpuBackend, x: NDArray[Any], k: int, profile: Profile, *, axis: int = -1, direction: Any = DECREASING
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Values and places."""
    axis %= x.ndim
    data_type = DataType.from_numpy(x.dtype)
    sizes = tuple(k if dimension == axis else size for dimension, size in enumerate(x.shape))
    desc = descs.TopK1(
        input_tensor=TensorDesc(data_type, x.shape),
        output_value_tensor=TensorDesc(data_type, sizes),
        output_index_tensor=TensorDesc(DataType.UINT32, sizes),
        axis=axis,
        k=k,
        axis_direction=direction,
    )
    values, places = run_desc(backend, desc, [x], target_for(backend, profile))
    return values, places


def check(backend: GpuBackend, x: NDArray[Any], k: int, profile: Profile, *, axis: int = -1) -> None:
    """Both directions against NumPy's stable sort; x has no NaN, and its negative is exact in float64 or absent."""
    for direction in AxisDirection:
        signed = x if direction is INCREASING else -x.astype(np.float64)
        want = np.take(np.argsort(signed, axis, kind="stable"), np.arange(k), axis)
        values, places = run(backend, x, k, profile, axis=axis, direction=direction)
        np.testing.assert_array_equal(places, want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


def numbers(sizes: tuple[int, ...], data_type: DataType = F32, spread: int = 1000) -> NDArray[Any]:
    """Numbers with ties."""
    low = 0 if data_type in (U8, U64) else -spread
    return np.random.default_rng(len(sizes)).integers(low, spread, sizes).astype(data_type.numpy)


# length, k: one off the widths of tiles, runs, shares and groups
LENGTHS = [(1, 1), (15, 15), (16, 16), (17, 17), (33, 33), (65, 17), (129, 1), (1025, 1025), (3000, 7), (4097, 50)]


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize(("length", "k"), LENGTHS)
def test_any_length(backend: GpuBackend, length: int, k: int, profile: Profile) -> None:
    check(backend, numbers((3, length)), k, profile)


@pytest.mark.parametrize("length", [2, 14, 31, 32, 63, 64, 1023, 1024, 2048])
def test_any_length_in_workgroups(backend: GpuBackend, length: int) -> None:
    check(backend, numbers((3, length)), length, GPU)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [F16, I64, U8], ids=lambda t: t.name)
@pytest.mark.parametrize(("sizes", "k"), [((2, 30, 7), 30), ((2, 200, 5), 4)])
def test_any_type_along_an_outer_axis(
    backend: GpuBackend, sizes: tuple[int, ...], k: int, data_type: DataType, profile: Profile
) -> None:
    check(backend, numbers(sizes, data_type, 100), k, profile, axis=1)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("k", [1, 50])
def test_equal_elements_keep_their_order(backend: GpuBackend, k: int, profile: Profile) -> None:
    for direction in AxisDirection:
        _, places = run(backend, np.full((2, 3000), 4, np.float32), k, profile, direction=direction)
        np.testing.assert_array_equal(places, np.tile(np.arange(k), (2, 1)))


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("step", [1, 2, 128, 256, 2047])
def test_the_first_elements_may_lie_anyhow(backend: GpuBackend, step: int, profile: Profile) -> None:
    """All in one group, in neighboring ones, ascending, descending."""
    x = np.zeros((2, 4096), np.float32)
    where = np.arange(40) * step % 4096
    x[0, where], x[1, where] = np.arange(1, 41), -np.arange(1, 41)
    check(backend, x, 40, profile)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize(("length", "k"), [(20, 20), (3000, 20)])
def test_nan_is_larger_than_all_numbers(backend: GpuBackend, length: int, k: int, profile: Profile) -> None:
    rng = np.random.default_rng(7)
    x = rng.integers(-5, 6, (2, length)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.inf
    x[rng.random(x.shape) < 0.002] = np.nan
    x[:, [1, 9]] = np.array([0x7FC12345, 0xFF812345], np.uint32).view(np.float32)
    reverse = x.shape[1] - 1 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]  # equal elements by place again
    for direction, order in ((INCREASING, np.argsort(x, 1, kind="stable")), (DECREASING, reverse)):
        values, places = run(backend, x, k, profile, direction=direction)
        np.testing.assert_array_equal(places, order[:, :k])
        expected = np.take_along_axis(x.view(np.uint32), order[:, :k], 1)
        np.testing.assert_array_equal(values.view(np.uint32), expected)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [I64, U64], ids=lambda t: t.name)
def test_64_bit_integers_by_all_their_bits(backend: GpuBackend, data_type: DataType, profile: Profile) -> None:
    limits = np.iinfo(data_type.numpy)
    corners = [limits.min, limits.max, limits.max - 1, 0, 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62]
    x = np.random.default_rng(8).choice(np.array(corners, data_type.numpy), (2, 200))
    for direction in AxisDirection:
        order = np.argsort(x if direction is INCREASING else ~x, 1, kind="stable")  # ~x reverses without overflow
        for k in (3, 200):
            values, places = run(backend, x, k, profile, direction=direction)
            np.testing.assert_array_equal(places, order[:, :k])
            np.testing.assert_array_equal(values, np.take_along_axis(x, order[:, :k], 1))


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("k", [1, 50, 1 << 20])
def test_a_million_elements(backend: GpuBackend, k: int, profile: Profile) -> None:
    x = np.random.default_rng(9).permutation(1 << 20).astype(np.float32)
    values, places = run(backend, x, k, profile)
    np.testing.assert_array_equal(values, np.arange((1 << 20) - 1, (1 << 20) - 1 - k, -1))
    np.testing.assert_array_equal(places, np.argsort(-x)[:k])


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_lines_that_repeat_one_element(backend: GpuBackend, profile: Profile) -> None:
    """A stride of 0 along the axis, padded outputs."""
    x = np.broadcast_to(np.array([[3], [5]], np.int16), (2, 300))
    desc = descs.TopK1(
        input_tensor=TensorDesc(DataType.INT16, (2, 300), (1, 0)),
        output_value_tensor=TensorDesc(DataType.INT16, (2, 40), (43, 1)),
        output_index_tensor=TensorDesc(U64, (2, 40), (1, 3)),
        axis=1,
        k=40,
        axis_direction=DECREASING,
    )
    values, places = run_desc(backend, desc, [x], target_for(backend, profile))
    np.testing.assert_array_equal(values, x[:, :40])
    np.testing.assert_array_equal(places, np.tile(np.arange(40), (2, 1)))
