"""interpolate against PyTorch's definition of its modes, written down in NumPy, and against numbers of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import InvalidArgument, Tensor, ops
from tests.unit.device_objects import raises

SPATIAL = {1: (7,), 2: (6, 10), 3: (3, 4, 5)}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Arrays are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def cubic(distance: float) -> float:
    """The cubic convolution kernel with a = -0.75."""
    a, t = -0.75, abs(distance)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def weights_of(mode: str, old: int, new: int, factor: float | None, aligned: bool) -> Any:
    """The weight of each old pixel in each new one, along an axis."""
    weights = np.zeros((new, old))
    step = old / new if factor is None else 1 / factor
    for place in range(new):
        if mode == "nearest":
            weights[place, min(math.floor(place * step + 1e-9), old - 1)] = 1
        elif mode == "nearest-exact":
            weights[place, min(math.floor((place + 0.5) * step + 1e-9), old - 1)] = 1
        elif mode == "area":
            begin, end = math.floor(place * old / new), math.ceil((place + 1) * old / new)
            weights[place, begin:end] = 1 / (end - begin)
        else:
            center = (
                place * (old - 1) / (new - 1) if aligned and new > 1 else 0.0 if aligned else (place + 0.5) * step - 0.5
            )
            if mode != "bicubic" and not aligned and old == new:
                center = place
            for pixel in range(math.floor(center) - 1, math.floor(center) + 3):
                kernel = cubic(center - pixel) if mode == "bicubic" else max(0.0, 1 - abs(center - pixel))
                weights[place, min(max(pixel, 0), old - 1)] += kernel
    return weights


def resampled(x: Any, mode: str, sizes: Any, factors: Any, aligned: bool) -> Any:
    result = x.astype(np.float64)
    for axis, new in enumerate(sizes, 2):
        factor = None if factors is None else factors[axis - 2]
        weights = weights_of(mode, x.shape[axis], new, factor, aligned)
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result


def image(rank: int) -> Any:
    return np.random.default_rng(rank).standard_normal((2, 3, *SPATIAL[rank])).astype(np.float32)


MODES = [(rank, mode, None) for rank in SPATIAL for mode in ("nearest", "nearest-exact", "area")]
MODES += [(rank, LINEAR[rank], aligned) for rank in SPATIAL for aligned in (None, False, True)]  # type: ignore[list-item]
MODES += [(2, "bicubic", False), (2, "bicubic", True)]  # type: ignore[list-item]


@pytest.mark.parametrize(("rank", "mode", "aligned"), MODES)
@pytest.mark.parametrize("sizes", [(3, 9, 8), (10, 1, 13), (14, 20, 10), (7, 6, 5)])
def test_sizes(rank: int, mode: Any, aligned: bool | None, sizes: tuple[int, ...]) -> None:
    x = image(rank)
    result = ops.interpolate(x, size=sizes[:rank], mode=mode, align_corners=aligned)
    expected = resampled(x, mode, sizes[:rank], None, bool(aligned))
    assert result.shape == expected.shape and result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("rank", "mode", "aligned"), MODES)
@pytest.mark.parametrize("factors", [2.0, 0.5, (1.5, 2.5, 0.75), 3])
def test_factors(rank: int, mode: Any, aligned: bool | None, factors: Any) -> None:
    x, listed = image(rank), factors if isinstance(factors, tuple) else (factors,) * 3
    result = ops.interpolate(
        x, scale_factor=listed[:rank] if factors is listed else factors, mode=mode, align_corners=aligned
    )
    sizes = [math.floor(old * factor) for old, factor in zip(x.shape[2:], listed, strict=False)]
    expected = resampled(x, mode, sizes, listed, bool(aligned))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)


PYTORCH = [
    ({"size": (2, 3), "mode": "bicubic"}, [2.2221, 6.3594, 14.6726, 55.6043, 77.5156, 103.6029]),
    ({"size": (2, 3), "mode": "bilinear", "align_corners": True}, [0.0, 2.5, 9.0, 64.0, 90.5, 121.0]),
    ({"size": (2, 3), "mode": "area"}, [10.5, 16.5, 24.5, 46.5, 60.5, 76.5]),
    ({"size": (5, 3), "mode": "nearest"}, [0.0, 1, 4, 0, 1, 4, 16, 25, 36, 16, 25, 36, 64, 81, 100]),
    ({"size": (5, 3), "mode": "nearest-exact"}, [0.0, 4, 9, 0, 4, 9, 16, 36, 49, 64, 100, 121, 64, 100, 121]),
    (
        {"scale_factor": (0.7, 1.6), "mode": "bicubic"},
        [1.5309, 2.3881, 4.3419, 6.5146, 10.6761, 14.3597, 47.2575, 53.621, 64.7841, 73.9233, 87.5041, 98.0401],
    ),
]


@pytest.mark.parametrize(("options", "expected"), PYTORCH, ids=lambda value: str(value)[:30])
def test_numbers_of_pytorch(options: Any, expected: list[float]) -> None:
    """Printed by torch.nn.functional.interpolate(torch.arange(12.).reshape(1, 1, 3, 4) ** 2, ...) of PyTorch 2.14.1."""
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) ** 2
    np.testing.assert_allclose(ops.interpolate(x, **options).reshape(-1), expected, rtol=1e-5, atol=1e-4)


def test_dtypes_and_views() -> None:
    x = image(2)
    for mode in ("bilinear", "bicubic", "area"):
        result = ops.interpolate(x.astype(np.float16), size=(5, 5), mode=mode)  # type: ignore[arg-type]
        assert result.dtype == np.float16
        np.testing.assert_allclose(result, ops.interpolate(x, size=(5, 5), mode=mode), atol=1e-2)  # type: ignore[arg-type]
    whole = np.arange(12, dtype=np.int8).reshape(1, 1, 3, 4)
    np.testing.assert_array_equal(ops.interpolate(whole, scale_factor=2), whole.repeat(2, 2).repeat(2, 3))
    turned = ops.interpolate(Tensor(x).transpose(0, 1, 3, 2), size=7, mode="bilinear")
    np.testing.assert_allclose(turned.numpy(), ops.interpolate(x, size=7, mode="bilinear").swapaxes(2, 3), atol=1e-5)


def test_many_pixels() -> None:
    x = np.arange(3000, dtype=np.float32).reshape(1, 1, 3000)
    for new in (5000, 2999, 700):
        expected = (np.arange(new) * 3000) // new
        np.testing.assert_array_equal(ops.interpolate(x, size=new).reshape(-1), expected)


def test_rejections() -> None:
    x = image(2)
    for text, call in {
        "interpolate: either size or scale_factor must be given, got neither": lambda: ops.interpolate(x),
        "interpolate: either size or scale_factor must be given, got both": lambda: ops.interpolate(x, 2, 2),
        "interpolate: size must be a number, or 2 of them, got [1, 2, 3]": lambda: ops.interpolate(x, [1, 2, 3]),
        "interpolate: scale_factor must lead to sizes of at least 1, got 0.01": (
            lambda: ops.interpolate(x, scale_factor=0.01)
        ),
        "interpolate: scale_factor must lead to sizes of at least 1, got -1": lambda: ops.interpolate(
            x, scale_factor=-1
        ),
        "interpolate: mode must be one of nearest, nearest-exact, area, bilinear, bicubic for x of rank 4, got "
        "'linear'": (lambda: ops.interpolate(x, 2, mode="linear")),
        "interpolate: align_corners must be None for mode 'nearest', got True": (
            lambda: ops.interpolate(x, 2, align_corners=True)
        ),
        "interpolate: x must be of a type of kind floating-point, got INT32; x.astype('float32') converts it": (
            lambda: ops.interpolate(x.astype(np.int32), 2, mode="bilinear")
        ),
        "interpolate: x must have sizes {N, C, W}, {N, C, H, W} or {N, C, D, H, W} of at least 1, got [3, 4]": (
            lambda: ops.interpolate(np.ones((3, 4), np.float32), 2)
        ),
    }.items():
        with raises(InvalidArgument, text):
            call()
