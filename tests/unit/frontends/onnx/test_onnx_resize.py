"""Resize and Upsample over all combinations of their attributes, against ONNX's reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import check_node, expected_of, model_of_node, normal

F = np.float32
TRANSFORMATIONS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES: tuple[dict[str, Any], ...] = (
    *({"mode": "nearest", "nearest_mode": rounding} for rounding in NEAREST),
    *(
        {"mode": mode, "antialias": antialias, "exclude_outside": exclude}
        for mode, antialias, exclude in itertools.product(("linear", "cubic"), (0, 1), (0, 1))
    ),
    {"mode": "cubic", "cubic_coeff_a": -0.5, "antialias": 1},
)
"""Modes with their attributes."""

TARGETS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((6,), {"scales": (0.5,)}),
    ((6,), {"sizes": (4,)}),
    ((5,), {"scales": (0.7,)}),
    ((4,), {"scales": (2.6,)}),
    ((1,), {"sizes": (3,)}),
    ((3, 5), {"sizes": (7, 2)}),
    ((7, 4), {"scales": (0.4, 1.7)}),
    ((4, 7), {"sizes": (6, 6), "keep_aspect_ratio_policy": "not_larger", "axes": (0, 1)}),
    ((8, 7), {"sizes": (5, 3), "keep_aspect_ratio_policy": "not_smaller", "axes": (0, 1)}),
    ((2, 5, 3), {"sizes": (2, 8), "axes": (2, 1)}),
    ((1, 2, 6, 5), {"scales": (1, 1, 0.6, 2)}),
    ((2, 6, 2, 5), {"scales": (1.5, 0.35), "axes": (3, 1)}),
    ((1, 2, 3, 4, 3), {"sizes": (1, 2, 2, 3, 5)}),
)
"""Shapes, and target shapes."""


def node_inputs(x: np.ndarray, how: str, target: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the inputs of Resize and its attributes for a target."""
    rest = {name: value for name, value in target.items() if name not in ("scales", "sizes")}
    count = len(target.get("axes", x.shape))
    roi = np.array([0.1, -0.2, 0.15, 0, 0.25][:count] + [0.8, 1.1, 0.9, 1, 0.7][:count], F)
    scales, sizes = target.get("scales"), target.get("sizes")
    return [
        x,
        roi if how == "tf_crop_and_resize" else None,
        None if scales is None else np.array(scales, F),
        None if sizes is None else np.array(sizes, np.int64),
    ], rest


@pytest.mark.parametrize("attributes", MODES, ids=lambda attributes: "-".join(map(str, attributes.values())))
@pytest.mark.parametrize("how", TRANSFORMATIONS)
def test_matrix(how: str, attributes: dict[str, Any]) -> None:
    rest = {**attributes, "coordinate_transformation_mode": how, "extrapolation_value": 9.0}
    for shape, target in TARGETS:
        inputs, own = node_inputs(normal(*shape), how, target)
        model, feeds = model_of_node("Resize", inputs, ["y"], weights=(2, 3), **rest, **own)
        result = load(model, "numpy").run(feeds)["y"]
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        if not (result.shape == expected.shape and np.allclose(result, expected, rtol=1e-4, atol=1e-5)):
            # coordinates that are whole in float32 and not in float64, or the other way round
            assert attributes["mode"] == "nearest", (how, attributes, shape, target)
            (expected,) = expected_of(model, feeds)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=f"{shape} {target}")


def test_antialias_of_aligned_corners_reaches_as_far_as_the_scale_says() -> None:
    """The filter is 1 / scale = 2 wide, though coordinates are 2.5 apart."""
    x = np.array([0, 1, 4, 9, 16, 25], F)
    for target in ({"sizes": np.array([3])}, {"scales": np.array([0.5], F)}):
        inputs = [x, None, target.get("scales"), target.get("sizes")]
        rest: dict[str, Any] = {"mode": "linear", "antialias": 1, "coordinate_transformation_mode": "align_corners"}
        model, feeds = model_of_node("Resize", inputs, ["y"], weights=(2, 3), **rest)
        np.testing.assert_allclose(load(model, "numpy").run(feeds)["y"], [0.25, 7, 22.75])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_one_element_of_pytorch_is_the_first(mode: str) -> None:
    """ONNX: where the output has one element, x_original is 0; its reference takes -0.5."""
    x = normal(5)
    inputs = [x, None, np.array([0.2], F)]
    model, feeds = model_of_node(
        "Resize", inputs, ["y"], weights=(2,), mode=mode, coordinate_transformation_mode="pytorch_half_pixel"
    )
    np.testing.assert_array_equal(load(model, "numpy").run(feeds)["y"], x[:1])


def test_sizes_follow_from_scales_in_float32() -> None:
    """10 * 0.7 is 7 in float32, as onnxruntime has it, and less in float64."""
    inputs = [normal(1, 1, 10, 20), None, np.array([1, 1, 0.7, 0.35], F)]
    check_node("Resize", inputs, ["y"], weights=(2,), mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 1.5), (1, 1, 0.6, 2.5), (1, 1, 0.5, 0.75)])
@pytest.mark.parametrize("held", [True, False])
def test_older_operator_sets(mode: str, scales: tuple[float, ...], held: bool) -> None:
    x, factors = normal(1, 2, 4, 6), np.array(scales, F)
    if min(scales) >= 1:
        check_node("Upsample", [x, factors], ["y"], weights=(1,) if held else (), version=9, mode=mode)
        check_node("Upsample", [x], ["y"], version=7, mode=mode, scales=scales)
    check_node("Resize", [x, factors], ["y"], weights=(1,) if held else (), version=10, mode=mode)
    roi = np.zeros(0, F)
    for version in (11, 13, 18, 19):
        weights = (1, 2) if held else ()
        check_node("Resize", [x, roi, factors], ["y"], weights=weights, version=version, mode=mode)
        sizes = np.array([1, 2, 3, 9])
        check_node(
            "Resize",
            [x, roi, np.zeros(0, F) if version == 11 else None, sizes],
            ["y"],
            weights=(1, 2, 3) if held else (),
            version=version,
            mode=mode,
        )


def test_nearest_half_pixels_of_tensorflow() -> None:
    for scales in ((1, 1, 0.6, 2.5), (1, 1, 2, 0.75)):
        inputs = [normal(1, 1, 5, 4), np.zeros(0, F), np.array(scales, F)]
        rest: dict[str, Any] = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
        check_node("Resize", inputs, ["y"], weights=(1, 2), version=11, **rest)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, F])
@pytest.mark.parametrize("value", [0.0, 7.0])
def test_integers_beyond_the_region(kind: Any, value: float) -> None:
    inputs = [np.arange(12).reshape(1, 1, 3, 4).astype(kind), np.array([0, 0, -0.5, 0.2, 1, 1, 1.4, 0.9], F), None]
    for mode in ("nearest", "linear") if kind is F else ("nearest",):
        rest = {"mode": mode, "nearest_mode": "floor", "extrapolation_value": value}
        rest["coordinate_transformation_mode"] = "tf_crop_and_resize"
        check_node("Resize", [*inputs, np.array([1, 1, 5, 6])], ["y"], version=19, **rest)
