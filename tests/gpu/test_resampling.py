"""Resampling: the same elements on every adapter, whole factors in whole units, sums of any length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.rewrites.resampling import LONGEST_LISTED
from dmlgpu.compiler.schedule.steps.products import ScheduledTiles
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

FLOAT, HALF, BYTE = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8
LINEAR, NEAREST = InterpolationMode.LINEAR, InterpolationMode.NEAREST_NEIGHBOR
CENTERS, CORNERS = (0.5, -0.5), (0.0, 0.0)
COUNT = 20_000


def resample3(
    tensors: tuple[TensorDesc, TensorDesc],
    scales: tuple[float, ...],
    mode: InterpolationMode,
    offsets: tuple[float, float] = CENTERS,
    *,
    antialiased: bool = False,
) -> descs.Resample3:
    """RESAMPLE3, rounding down."""
    return descs.Resample3(
        input_tensor=tensors[0],
        output_tensor=tensors[1],
        interpolation_mode=mode,
        rounding_direction=AxisDirection.DECREASING,
        scales=scales,
        input_pixel_offsets=(offsets[0],) * len(scales),
        output_pixel_offsets=(offsets[1],) * len(scales),
        antialiased=antialiased,
    )


@pytest.mark.parametrize("scale", [0.1, 0.7, 1 / 3, 1.1, 5 / 3])
@pytest.mark.parametrize("offsets", [CENTERS, CORNERS])
def test_every_adapter_finds_the_same_elements(backend: GpuBackend, scale: float, offsets: tuple[float, float]) -> None:
    """Quotients at and next to whole numbers, where a division that is not rounded correctly takes another element."""
    numbers = np.arange(int(COUNT / scale) + 1, dtype=np.float32)
    tensors = TensorDesc(FLOAT, numbers.shape), TensorDesc(FLOAT, (COUNT,))
    (got,) = run_desc(backend, resample3(tensors, (scale,), NEAREST, offsets), [numbers], backend.target.exact)
    x = (np.arange(COUNT, dtype=np.float32) - np.float32(offsets[1])) / np.float32(scale) - np.float32(offsets[0])
    np.testing.assert_array_equal(got, np.clip(np.floor(x), 0, len(numbers) - 1))


@pytest.mark.parametrize("factors", [(4.0, 2.0), (1.0, 4.0)])
@pytest.mark.parametrize(("mode", "data_type"), [(LINEAR, FLOAT), (LINEAR, HALF), (NEAREST, HALF), (NEAREST, BYTE)])
@pytest.mark.parametrize("offsets", [CENTERS, CORNERS])
@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_whole_factors_are_written_in_whole_units(
    backend: GpuBackend,
    *,
    profile: Profile,
    factors: tuple[float, float],
    mode: InterpolationMode,
    data_type: DataType,
    offsets: tuple[float, float],
) -> None:
    sizes, scales = (2, 5, 12), (1.0, *factors)
    counts = tuple(int(size * scale) for size, scale in zip(sizes, scales, strict=True))
    desc = resample3((TensorDesc(data_type, sizes), TensorDesc(data_type, counts)), scales, mode, offsets)
    target = replace(backend.target.exact, profile=profile)
    (kernel,) = compiler.compile_operator(desc, target).kernels
    assert kernel.label == "resample3 upsample x4"
    x = np.random.default_rng(1).integers(0, 100, sizes).astype(data_type.numpy)
    (expected,) = reference.evaluate(desc, (x,))
    (got,) = run_desc(backend, desc, [x], target)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("factors", [(2, 4), (1, 2), (4, 1), (3, 2)])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, BYTE])
@pytest.mark.parametrize("offsets", [CENTERS, CORNERS, (3.25, -7.0), (-12.5, 2.0)])
def test_antialiasing_by_whole_factors(
    backend: GpuBackend, factors: tuple[int, int], data_type: DataType, offsets: tuple[float, float]
) -> None:
    """Include triangles partly or wholly outside the input, and rows that no four share."""
    counts = (2, 7, 8)
    sizes, scales = (2, 7 * factors[0], 8 * factors[1]), (1.0, *(1 / factor for factor in factors))
    tensors = TensorDesc(data_type, sizes), TensorDesc(data_type, counts)
    desc = resample3(tensors, scales, LINEAR, offsets, antialiased=True)
    desc = desc.replace(input_pixel_offsets=(0.0, *desc.input_pixel_offsets[1:]))
    desc = desc.replace(output_pixel_offsets=(0.0, *desc.output_pixel_offsets[1:]))
    labels = [kernel.label for kernel in compiler.compile_operator(desc, backend.target.exact).kernels]
    assert any("downsample" in label for label in labels)
    x = np.random.default_rng(2).integers(0, 100, sizes).astype(data_type.numpy)
    (expected,) = reference.evaluate(desc, (x,))
    (got,) = run_desc(backend, desc, [x], backend.target.exact)
    np.testing.assert_allclose(got, expected, 2e-3 if data_type is HALF else 1e-5, 1.0 if data_type is BYTE else 1e-4)


def test_antialiasing_by_whole_factors_adds_nothing_of_elements_without_a_weight(backend: GpuBackend) -> None:
    sizes, counts = (8, 16), (4, 8)
    tensors = TensorDesc(FLOAT, sizes), TensorDesc(FLOAT, counts)
    x = np.ones(sizes, np.float32)
    x[1, 2], x[6, 11] = np.inf, np.nan
    desc = resample3(tensors, (0.5, 0.5), LINEAR, CORNERS, antialiased=True)
    (expected,) = reference.evaluate(desc, (x,))
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()
    (got,) = run_desc(backend, desc, [x], backend.target.exact)
    np.testing.assert_allclose(got, expected, 1e-6)


@pytest.mark.parametrize("scales", [(0.4, 0.4), (0.7, 1.0), (1.0, 0.3), (0.25, 0.75)])
@pytest.mark.parametrize("sizes", [(3, 20, 44), (2, 9, 13), (1, 30, 31)])
def test_weights_that_elements_have_in_common_are_those_of_each(
    backend: GpuBackend, sizes: tuple[int, int, int], scales: tuple[float, float]
) -> None:
    """Tiles, on CPU adapters, and the maps of the others, also for elements without weight.

    Drivers may contract products and sums of one and not of the other, along both axes: each of up to 9 products, sums
    and weights, whose coordinates are below 64, rounds differently by 2^-24 of the summands.
    """
    counts = (sizes[0], *(int(size * scale) for size, scale in zip(sizes[1:], scales, strict=True)))
    desc = resample3((TensorDesc(FLOAT, sizes), TensorDesc(FLOAT, counts)), (1.0, *scales), LINEAR, antialiased=True)
    x = np.random.default_rng(3).standard_normal(sizes, np.float32)
    x[0, 2, 3], x[-1, 7, 11] = np.inf, np.nan
    tiled, single = (replace(backend.target.exact, profile=profile) for profile in (Profile.CPU, Profile.DISCRETE))
    assert ScheduledTiles in map(type, steps_of(desc, tiled))
    assert ScheduledTiles not in map(type, steps_of(desc, single))
    (got,) = run_desc(backend, desc, [x], tiled)
    (expected,) = run_desc(backend, desc, [x], single)
    is_finite = np.isfinite(expected)
    assert is_finite.any() and not is_finite.all()
    np.testing.assert_array_equal(got[~is_finite], expected[~is_finite])
    (magnitudes,) = reference.evaluate(desc, (np.abs(np.where(np.isfinite(x), x, 0)),))
    difference = np.abs(got[is_finite] - expected[is_finite])
    assert (difference <= 64 * 2.0**-24 * magnitudes[is_finite]).all()


@pytest.mark.parametrize("mode", [LINEAR, NEAREST])
def test_the_gradient_of_an_edge_that_all_of_a_long_output_used(backend: GpuBackend, mode: InterpolationMode) -> None:
    desc = descs.ResampleGrad1(
        input_gradient_tensor=TensorDesc(FLOAT, (300_000,)),
        output_gradient_tensor=TensorDesc(FLOAT, (2,)),
        interpolation_mode=mode,
        rounding_direction=AxisDirection.DECREASING,
        scales=(1.0,),
        input_pixel_offsets=(299_998.0,),
        output_pixel_offsets=(0.0,),
    )
    (got,) = run_desc(backend, desc, [np.ones(300_000, np.float32)], backend.target.exact)
    assert got.tolist() == [299_999, 1]


def test_antialiasing_over_a_long_input(backend: GpuBackend) -> None:
    tensors = TensorDesc(FLOAT, (300_000,)), TensorDesc(FLOAT, (3,))
    desc = resample3(tensors, (1e-5,), LINEAR, antialiased=True)
    x = np.random.default_rng(1).random(300_000, np.float32)
    (expected,) = reference.evaluate(desc, (x,))
    (got,) = run_desc(backend, desc, [x], backend.target.exact)
    np.testing.assert_allclose(got, expected, 1e-5)


@pytest.mark.parametrize("mode", [LINEAR, NEAREST])
def test_gradients_of_axes_too_long_to_list(backend: GpuBackend, mode: InterpolationMode) -> None:
    """Every element meets all output elements that used it, though where these begin is only estimated."""
    size, count = 1 << 17, 3 << 16
    desc = descs.ResampleGrad1(
        input_gradient_tensor=TensorDesc(FLOAT, (count,)),
        output_gradient_tensor=TensorDesc(FLOAT, (size,)),
        interpolation_mode=mode,
        rounding_direction=AxisDirection.DECREASING,
        scales=(1.5,),
        input_pixel_offsets=(0.5,),
        output_pixel_offsets=(-0.5,),
    )
    assert size + count > LONGEST_LISTED
    gradient = np.random.default_rng(5).integers(-50, 50, count).astype(np.float32)
    (got,) = run_desc(backend, desc, [gradient], backend.target.exact)
    (expected,) = reference.evaluate(desc, [gradient])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-2 if mode is LINEAR else 0)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_antialiasing_of_fewer_elements_than_the_triangle_holds(backend: GpuBackend, size: int) -> None:
    """Coordinates from far before the input to far after it: the edges weigh for all positions beyond them."""
    tensors = TensorDesc(FLOAT, (size,)), TensorDesc(FLOAT, (9,))
    desc = resample3(tensors, (0.3,), LINEAR, (14.5, -0.5), antialiased=True)
    x = np.random.default_rng(size).random(size, np.float32)
    (expected,) = reference.evaluate(desc, (x,))
    (got,) = run_desc(backend, desc, [x], backend.target.exact)
    np.testing.assert_allclose(got, expected, 1e-5)
