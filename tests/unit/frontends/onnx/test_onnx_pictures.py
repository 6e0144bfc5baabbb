"""ONNX operators on images, on the adapter numpy: against onnxruntime, or ONNX's reference if that is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import check_node, check_reference, model_of_node, normal

F = np.float32
PADDINGS = ("zeros", "border", "reflection")


def resize(x: np.ndarray, *, scales: Any = None, sizes: Any = None, roi: Any = None, **rest: Any) -> list[Any]:
    """Inputs of Resize."""
    return [
        x,
        None if roi is None else np.array(roi, F),
        None if scales is None else np.array(scales, F),
        None if sizes is None else np.array(sizes, np.int64),
    ]


@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 9), (1, 2, 8, 1)])
def test_cubic(how: str, exclude: int, sizes: tuple[int, ...]) -> None:
    inputs = resize(normal(1, 2, 5, 4), sizes=sizes)
    check_node(
        "Resize", inputs, ["y"], weights=(3,), mode="cubic", coordinate_transformation_mode=how, exclude_outside=exclude
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(mode: str, exclude: int) -> None:
    inputs = resize(normal(1, 2, 11, 9), scales=(1, 1, 0.3, 1.5))
    check_reference("Resize", inputs, ["y"], weights=(2,), mode=mode, antialias=1, exclude_outside=exclude)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
def test_nearest(rounding: str, how: str) -> None:
    inputs = resize(np.arange(42, dtype=np.int32).reshape(1, 1, 6, 7), scales=(1, 1, 0.5, 1.75))
    rest: dict[str, Any] = {"nearest_mode": rounding, "coordinate_transformation_mode": how}
    check_reference("Resize", inputs, ["y"], weights=(2,), mode="nearest", **rest)
    inputs[0] = inputs[0].astype(F)  # one RESAMPLE3
    check_reference("Resize", inputs, ["y"], weights=(2,), mode="nearest", **rest)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    inputs = resize(normal(2, 1, 5, 6), sizes=(4, 7), roi=(0.2, -0.3, 0.9, 1.3))
    check_reference(
        "Resize",
        inputs,
        ["y"],
        weights=(3,),
        mode=mode,
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )


def test_bytes_are_resized() -> None:
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 6, 5)).astype(np.uint8)
    check_reference("Resize", resize(x, sizes=(1, 3, 9, 4)), ["y"], weights=(3,), mode="cubic")


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_aspect_is_kept(policy: str) -> None:
    inputs = resize(normal(1, 1, 4, 6), sizes=(7, 7))
    check_node("Resize", inputs, ["y"], weights=(3,), mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)


def test_five_large_dimensions() -> None:
    inputs = resize(normal(2, 3, 3, 2, 4), scales=(2, 1, 2, 1.5, 0.5))
    check_reference("Resize", inputs, ["y"], weights=(2,), mode="linear")


def test_unknown_mode_is_rejected() -> None:
    model, feeds = model_of_node("Resize", resize(normal(1, 1, 2, 2), scales=(1, 1, 2, 2)), ["y"], mode="area")
    with pytest.raises(NotSupported, match="mode must be one of nearest, linear, cubic, got 'area'"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode: str, padding: str, aligned: int) -> None:
    grid = np.clip(normal(2, 3, 5, 2), -2.5, 2.5)
    check_node(
        "GridSample",
        [normal(2, 3, 4, 6), grid],
        ["y"],
        mode=mode,
        padding_mode=padding,
        align_corners=aligned,
        tolerance=1e-4,
    )


def exact_sample(row: np.ndarray, at: float, mode: str, padding: str, aligned: int) -> float:
    """Return a row's sample at a coordinate, in integers and fractions of float64; onnxruntime's indices overflow."""
    size = len(row)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)

    def mirrored(place: float) -> float:
        turned = (place - low) % (2 * (high - low))
        return high - abs(turned - (high - low))

    if padding != "zeros":
        at = 0.0 if np.isnan(at) or (padding == "reflection" and np.isinf(at)) else at
        at = mirrored(at) if padding == "reflection" else min(max(at, -9.0), size + 9.0)
    elif not -9 < at < size + 9:
        return 0.0
    base = np.rint(at) if mode == "nearest" else np.floor(at)
    total = 0.0
    for offset in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]:
        place, d = base + offset, abs(base + offset - at)
        weight = 1.0 if mode == "nearest" else 1 - d
        if mode == "cubic":
            weight = 1.25 * d**3 - 2.25 * d**2 + 1 if offset in (0, 1) else -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
        if padding == "zeros" and not 0 <= place < size:
            continue
        place = mirrored(place) if padding == "reflection" else place
        total += weight * row[int(min(max(place, 0), size - 1))]
    return total


@pytest.mark.slow
def test_grid_sample_far_outside() -> None:
    row = normal(5)
    far = [0.3, -1.7, 3.9, 1e3, -2e6, 1e7, 3.3e7, -6e7, 1e12, -1e20, 3e38, -3e38, np.inf, -np.inf, np.nan]
    places = np.array(far, F)
    grid = np.stack([places, np.zeros_like(places)], -1)[None, None]
    for mode, padding, aligned in itertools.product(("nearest", "linear", "cubic"), PADDINGS, (0, 1)):
        settings = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        model, feeds = model_of_node("GridSample", [row.reshape(1, 1, 1, 5), grid], ["y"], **settings)
        result = load(model, "numpy").run(feeds)["y"].reshape(-1)
        with np.errstate(all="ignore"):
            at = (places + F(1)) * F(2) if aligned else (places + F(1)) * F(2.5) - F(0.5)
        for index, place in enumerate(at):
            if padding == "reflection" and 1e3 < abs(place) < np.inf:
                # Rounding to float32 loses its position between the borders.
                assert abs(result[index]) <= 1.5 * np.abs(row).max(), (settings, far[index])
                continue
            expected = exact_sample(row, float(place), mode, padding, aligned)
            np.testing.assert_allclose(result[index], expected, rtol=1e-4, atol=1e-4, err_msg=f"{settings} {place}")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_grid_sample_of_volumes(mode: str, padding: str) -> None:
    inputs = [normal(1, 2, 3, 4, 5), normal(1, 2, 3, 2, 3)]
    check_node("GridSample", inputs, ["y"], mode=mode, padding_mode=padding, tolerance=1e-4)


def test_deformable_convolution() -> None:
    x, filters = normal(2, 4, 6, 5), normal(6, 2, 3, 2)
    offsets, mask = normal(2, 2 * 6 * 2, 3, 3), normal(2, 2 * 6, 3, 3)
    inputs = [x, filters, offsets, normal(6), mask]
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 1, 0, 0], "strides": [2, 2], "kernel_shape": [3, 2]}
    check_node("DeformConv", inputs, ["y"], tolerance=1e-4, **attributes)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
def test_regions(mode: str, samples: int, how: str) -> None:
    rois = np.array([[1, 1, 12.5, 9], [0, 3, 2, 4.5], [-6, 2, 5, 30], [4, 4, 4.2, 4.1]], F)
    check_node(
        "RoiAlign",
        [normal(2, 3, 7, 8), rois, np.array([0, 1, 1, 0])],
        ["y"],
        mode=mode,
        sampling_ratio=samples,
        coordinate_transformation_mode=how,
        output_height=2,
        output_width=3,
        spatial_scale=0.6,
        tolerance=1e-4,
        version=21,
    )


def test_largest_of_regions() -> None:
    rois = np.array([[0, 1, 1, 9, 9], [1, 0, 2, 5, 4]], F)
    check_node("MaxRoiPool", [normal(2, 3, 8, 8), rois], ["y"], pooled_shape=[2, 3], spatial_scale=0.7, version=21)


def boxes(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    corners = rng.uniform(0, 10, (2, count, 2)).astype(F)
    return np.concatenate([corners, corners + rng.uniform(1, 6, (2, count, 2)).astype(F)], axis=2)


@pytest.mark.parametrize("threshold", [None, 0.4, 2.0])
@pytest.mark.parametrize("most", [3, 100])
def test_suppression(threshold: float | None, most: int) -> None:
    scores = np.random.default_rng(1).uniform(0, 1, (2, 3, 40)).astype(F)
    limits = [np.array([most]), np.array([0.3], F), None if threshold is None else np.array([threshold], F)]
    check_node("NonMaxSuppression", [boxes(40), scores, *limits], ["y"])


@pytest.mark.slow
def test_a_long_chain_is_suppressed() -> None:
    count = 70  # each box overlaps the next one only: 70 rounds decide
    begin = np.arange(count, dtype=F) * 0.5
    chain = np.stack([begin * 0, begin, begin * 0 + 1, begin + 0.9], axis=1)[None]
    scores = np.linspace(1, 0.1, count, dtype=F).reshape(1, 1, count)
    inputs = [chain, scores, np.array([count]), np.array([0.2], F)]
    check_node("NonMaxSuppression", inputs, ["y"])
    check_node("NonMaxSuppression", inputs, ["y"], center_point_box=1)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("order", [0, 1])
def test_places_of_the_largest(count: int, order: int) -> None:
    x = normal(2, 3, *(5, 4, 6)[:count])
    attributes: dict[str, Any] = {"kernel_shape": [2] * count, "strides": [2] * count, "storage_order": order}
    outputs = ["y", "where"]
    check_node("MaxPool", [x], outputs, **attributes)
    if not order:
        model, feeds = model_of_node("MaxPool", [x], outputs, **attributes)
        results = load(model, "numpy").run(feeds)
        attributes.pop("storage_order")
        check_node("MaxUnpool", [results["y"], results["where"], np.array(x.shape)], ["y"], **attributes)


@pytest.mark.parametrize("include", [0, 1])
def test_windows_beyond_the_padding(include: int) -> None:
    check_reference(
        "AveragePool",
        [normal(1, 2, 8, 7)],
        ["y"],
        kernel_shape=[3, 4],
        strides=[3, 2],
        pads=[1, 0, 1, 2],
        dilations=[2, 1],
        ceil_mode=1,
        count_include_pad=include,
    )


@pytest.mark.parametrize("mode", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_sizes_that_round_up_with_automatic_padding(op: str, mode: str) -> None:
    for size, kernel, stride in ((7, 2, 2), (8, 3, 2), (7, 1, 3), (9, 2, 4)):
        for include in (0, 1) if op == "AveragePool" else (None,):
            rest: dict[str, Any] = {} if include is None else {"count_include_pad": include}
            rest |= {"kernel_shape": [kernel], "strides": [stride], "auto_pad": mode, "ceil_mode": 1}
            check_node(op, [normal(1, 2, size)], ["y"], **rest)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_norm(p: int) -> None:
    check_node("GlobalLpPool", [normal(2, 3, 4, 5)], ["y"], p=p, version=21)
    check_node("GlobalLpPool", [normal(2, 3, 4)], ["y"], p=p, version=21)


def test_columns_to_pictures() -> None:
    inputs = [normal(2, 3 * 6, 9), np.array([5, 6]), np.array([2, 3])]
    check_node("Col2Im", inputs, ["y"], weights=(1, 2), strides=[2, 2], pads=[0, 1, 1, 0])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("p", [1, 2])
def test_norm_of_no_elements(axis: int, p: int) -> None:
    x = normal(3, 4, 5)
    x[0], x[:, 1], x[..., 2] = 0, 0, 0
    check_node("LpNormalization", [x], ["y"], axis=axis, p=p)
