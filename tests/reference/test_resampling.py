"""Resampling against ONNX's Resize, onnxruntime, SciPy and central differences."""

import numpy as np
import pytest
from onnx.backend.test.case.node import resize as onnx_cases
from scipy import ndimage

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

UP, DOWN = AxisDirection.INCREASING, AxisDirection.DECREASING
LINEAR, NEAREST = InterpolationMode.LINEAR, InterpolationMode.NEAREST_NEIGHBOR
CENTERS, CORNERS = (0.5, -0.5), (0.0, 0.0)

COORDINATES = {"half_pixel": CENTERS, "asymmetric": CORNERS}
"""ONNX's coordinate modes as offsets of input and output."""

ROUNDINGS = {
    "round_prefer_floor": (0.5, UP),
    "round_prefer_ceil": (-0.5, DOWN),
    "floor": (0.0, DOWN),
    "ceil": (0.0, UP),
}
"""ONNX's rounding modes as additions to the input's offset, with a direction."""

SCALES = (0.4, 0.5, 2 / 3, 0.6, 1.3, 1.5, 2.0, 3.0)
IMAGE = (1, 2, 7, 10)


def image(sizes=IMAGE, dtype=np.float32):
    return (np.random.default_rng(len(sizes)).standard_normal(sizes) * 50).astype(dtype)


def resized(x, counts, scales, offsets=CENTERS, *, mode=LINEAR, direction=DOWN, antialiased=False, added=0.0):
    """RESAMPLE3 of an array."""
    rank = x.ndim
    desc = descs.Resample3(
        input_tensor=tensor(x),
        output_tensor=TensorDesc(DataType.from_numpy(x.dtype), counts),
        interpolation_mode=mode,
        rounding_direction=direction,
        scales=scales,
        input_pixel_offsets=(offsets[0] + added,) * rank,
        output_pixel_offsets=(offsets[1],) * rank,
        antialiased=antialiased,
    )
    return run(desc, x)


def by_onnx(evaluate, x, scales, **attributes):
    return evaluate("Resize", [x, np.array([], np.float32), np.array(scales, np.float32)], x.dtype, **attributes)


# ---- ONNX's Resize


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("scale", SCALES)
def test_linear_like_resize(coordinates, scale):
    x, scales = image(), (1.0, 1.0, scale, 1.5)
    for evaluate in (onnx_reference, onnx_runtime):
        expected = by_onnx(evaluate, x, scales, mode="linear", coordinate_transformation_mode=coordinates)
        np.testing.assert_allclose(resized(x, expected.shape, scales, COORDINATES[coordinates]), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scale", SCALES)
def test_nearest_like_onnxruntime(coordinates, rounding, scale):
    x, scales = image(), (1.0, 1.0, scale, 2.0)
    expected = by_onnx(
        onnx_runtime, x, scales, mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=coordinates
    )
    added, direction = ROUNDINGS[rounding]
    got = resized(x, expected.shape, scales, COORDINATES[coordinates], mode=NEAREST, direction=direction, added=added)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("counts", [(1, 2, 13, 19), (1, 2, 4, 5), (1, 2, 7, 21)])
def test_aligned_corners_like_onnxruntime(counts):
    x = image()
    onnx_scales = [(count + 0.3) / size for count, size in zip(counts, x.shape, strict=True)]
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    expected = by_onnx(onnx_runtime, x, (1.0, 1.0, *onnx_scales[2:]), **attributes)
    scales = [(count - 1) / (size - 1) if size > 1 else 1.0 for count, size in zip(counts, x.shape, strict=True)]
    assert expected.shape == counts
    np.testing.assert_allclose(resized(x, counts, scales, CORNERS), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("scale", [0.15, 0.25, 1 / 3, 0.4, 0.5, 0.7, 1.0, 1.5])
def test_antialiasing_like_resize(scale):
    x, scales = image((1, 1, 21, 33)), (1.0, 1.0, scale, 0.3)
    attributes = {"mode": "linear", "antialias": 1, "coordinate_transformation_mode": "half_pixel"}
    for evaluate in (onnx_reference, onnx_runtime):
        expected = by_onnx(evaluate, x, scales, **attributes)
        np.testing.assert_allclose(resized(x, expected.shape, scales, antialiased=True), expected, 1e-3, 1e-3)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [0.21, 0.34, 0.6, 1.0])
def test_antialiasing_of_fewer_elements_than_the_triangle_holds(size, scale):
    """ONNX's formula, position by position."""
    x, count = image((size,)), 4
    expected = []
    for place in (np.arange(count) + 0.5) / scale - 0.5 - 3:
        positions = np.arange(-40, 40)
        weights = np.maximum(1 - np.abs(positions - place) * scale, 0)
        expected.append((weights * x[positions.clip(0, size - 1)]).sum() / weights.sum())
    got = resized(x, (count,), (scale,), (3.5, -0.5), antialiased=True)
    np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(("direction", "first"), [("scales", 2.875), ("sizes", 2.3636363)])
def test_onnxs_own_cases_of_antialiasing(direction, first, monkeypatch):
    """Cases of the onnx package for its backends; DirectML has no cubic interpolation."""
    result = []
    monkeypatch.setattr(onnx_cases, "expect", lambda node, **arrays: result.append(arrays))
    getattr(onnx_cases.Resize, f"export_resize_downsample_{direction}_linear_antialias")()
    ((x, numbers), (expected,)) = (result[0][key] for key in ("inputs", "outputs"))
    scales = numbers if numbers.dtype == np.float32 else numbers / x.shape
    got = resized(x, expected.shape, scales.tolist(), antialiased=True)
    np.testing.assert_allclose(got, expected, 1e-6)
    assert got.ravel()[0] == pytest.approx(first, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_integers_lie_within_one_of_onnxruntimes(dtype):
    """onnxruntime truncates; DirectML's pages are silent, and the reference rounds."""
    x, scales = image(dtype=np.int8).astype(dtype), (1.0, 1.0, 1.5, 0.6)
    expected = by_onnx(onnx_runtime, x, scales, mode="linear", coordinate_transformation_mode="half_pixel")
    got = resized(x, expected.shape, scales)
    exact = resized(x.astype(np.float32), expected.shape, scales)
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
    assert np.abs(got - exact).max() <= 0.5 + 1e-4


# ---- others


@pytest.mark.parametrize("sizes", [(9,), (4, 7), (3, 4, 5), (2, 3, 4, 5)])
def test_every_dimension_like_scipys_coordinates(sizes):
    rng = np.random.default_rng(1)
    x, rank = image(sizes), len(sizes)
    scales = rng.uniform(0.5, 2.5, rank).astype(np.float32)
    before, after = rng.uniform(-2, 2, (2, rank)).astype(np.float32)
    counts = tuple(rng.integers(2, 9, rank).tolist())
    axes = [(np.arange(n) - b) / s - a for n, s, a, b in zip(counts, scales, before, after, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"))
    expected = ndimage.map_coordinates(x.astype(np.float64), places, order=1, mode="nearest")
    desc = descs.Resample2(
        input_tensor=tensor(x),
        output_tensor=TensorDesc(DataType.FLOAT32, counts),
        interpolation_mode=LINEAR,
        rounding_direction=UP,
        scales=scales.tolist(),
        input_pixel_offsets=before.tolist(),
        output_pixel_offsets=after.tolist(),
    )
    np.testing.assert_allclose(run(desc, x), expected, 1e-4, 1e-4)


def test_nearest_rounds_ties_up_in_the_older_operators():
    x = np.array([1, 2, 3, 4], np.float32)
    fields = {
        "input_tensor": tensor(x),
        "output_tensor": TensorDesc(DataType.FLOAT32, (2,)),
        "interpolation_mode": NEAREST,
        "scales": (0.5,),
    }
    assert run(descs.Resample(**fields), x).tolist() == [2, 4]
    offsets = {"input_pixel_offsets": (0.5,), "output_pixel_offsets": (-0.5,)}
    assert run(descs.Resample1(**fields, **offsets), x).tolist() == [2, 4]
    assert run(descs.Resample2(**fields, **offsets, rounding_direction=DOWN), x).tolist() == [1, 3]
    assert run(descs.Resample2(**fields, **offsets, rounding_direction=UP), x).tolist() == [2, 4]


def test_coordinates_are_rounded_at_every_step():
    """1 / float32(0.2) is 5 in float32, though the scale lies above 0.2."""
    x = np.arange(8, dtype=np.float32)
    assert float(np.float32(0.2)) > 0.2
    assert resized(x, (2,), (0.2,), CORNERS, mode=NEAREST).tolist() == [0, 5]


def test_an_element_without_weight_adds_nothing():
    x = np.array([1, np.inf, np.nan, 3], np.float32)
    np.testing.assert_array_equal(resized(x, (4,), (1.0,), (0.0, 0.0)), x)
    np.testing.assert_array_equal(resized(x, (2,), (1 / 3,), CORNERS), [1, 3])


def test_the_edge_is_used_if_the_triangle_lies_outside():
    x = np.array([1, 2, 3, 4], np.float32)
    assert resized(x, (2,), (0.5,), (100.0, 0.0), antialiased=True).tolist() == [1, 1]
    assert resized(x, (2,), (0.5,), (-100.0, 0.0), antialiased=True).tolist() == [4, 4]


@pytest.mark.parametrize("mode", [LINEAR, NEAREST])
@pytest.mark.parametrize("shape", [(1, 1, 3, 4), (1, 2, 2, 3, 2)])
def test_upsampling_like_onnxruntime(mode, shape):
    x, scale = image(shape), Size2D(width=3, height=2)
    counts = (*shape[:-2], shape[-2] * 2, shape[-1] * 3)
    desc = descs.Upsample2d(
        input_tensor=tensor(x),
        output_tensor=TensorDesc(DataType.FLOAT32, counts),
        scale_size=scale,
        interpolation_mode=mode,
    )
    planes = x.reshape(1, -1, *shape[-2:])
    name = "linear" if mode is LINEAR else "nearest"
    expected = by_onnx(onnx_runtime, planes, (1, 1, 2, 3), mode=name, coordinate_transformation_mode="half_pixel")
    np.testing.assert_allclose(run(desc, x), expected.reshape(counts), 1e-5, 1e-5)


# ---- gradients


def backwards(desc_class, gradient, sizes, **fields):
    desc = desc_class(
        input_gradient_tensor=tensor(gradient),
        output_gradient_tensor=TensorDesc(DataType.from_numpy(gradient.dtype), sizes),
        **fields,
    )
    return run(desc, gradient)


@pytest.mark.parametrize("mode", [LINEAR, NEAREST])
@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("scales", [(0.5, 1.5), (2.0, 0.4), (1.0, 3.0)])
def test_gradients_like_central_differences(mode, newest, scales):
    rng = np.random.default_rng(5)
    sizes, counts = (4, 6), tuple(max(int(n * s), 1) for n, s in zip((4, 6), scales, strict=True))
    fields = {
        "interpolation_mode": mode,
        "scales": scales,
        "input_pixel_offsets": (0.25, 0.5),
        "output_pixel_offsets": (0.0, -0.5),
    } | ({"rounding_direction": UP} if newest else {})
    forward = descs.Resample2 if newest else descs.Resample1
    x, seen = rng.integers(-8, 9, sizes).astype(np.float32), rng.integers(-4, 5, counts).astype(np.float32)
    desc = forward(input_tensor=tensor(x), output_tensor=tensor(seen), **fields)

    def loss(values):
        return float((run(desc, values.astype(np.float32)).astype(np.float64) * seen).sum())

    # The operator is linear and these numbers are small, so that steps may be large and float32 holds them.
    differences = np.zeros(sizes)
    for place in np.ndindex(sizes):
        step = np.zeros(sizes)
        step[place] = 16
        differences[place] = (loss(x + step) - loss(x - step)) / 32
    got = backwards(descs.ResampleGrad1 if newest else descs.ResampleGrad, seen, sizes, **fields)
    np.testing.assert_allclose(got, differences, 1e-4, 1e-4)


def test_elements_that_nothing_used_have_no_gradient():
    ones = np.ones((2,), np.float32)
    fields = {
        "interpolation_mode": NEAREST,
        "rounding_direction": DOWN,
        "scales": (0.5,),
        "input_pixel_offsets": (0.0,),
        "output_pixel_offsets": (0.0,),
    }
    assert backwards(descs.ResampleGrad1, ones, (4,), **fields).tolist() == [1, 0, 1, 0]
