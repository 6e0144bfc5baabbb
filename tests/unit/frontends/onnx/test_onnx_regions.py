"""RoiAlign and MaxRoiPool over regions of every kind, against onnxruntime, and ONNX's reference for those that it
rejects."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, NotImplemented  # type: ignore[import-untyped]

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import check_node, expected_of, model_of_node, normal

F = np.float32
REGIONS = np.array(
    [
        [1, 1, 4, 5],
        [0, 0, 1.2, 1.2],
        [2, 2, 2, 5],  # no width
        [2, 3, 5, 3],  # no height
        [4, 4, 4, 4],  # neither
        [5, 4, 1, 2],  # both reversed
        [3, 5, 1, 9],  # one reversed
        [-6, -5, -3, -2],  # before the image
        [20, 20, 30, 25],  # after it
        [-2, -3, 9, 12],  # around it
    ],
    F,
)
FORMS = ((10, ""), (16, ""), (16, "output_half_pixel"), (22, "half_pixel"), (22, "output_half_pixel"))


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize(("version", "how"), FORMS)
def test_regions_of_every_kind(version: int, how: str, mode: str, ratio: int) -> None:
    rest: dict[str, Any] = {"coordinate_transformation_mode": how} if how else {}
    inputs = [normal(2, 2, 7, 6), REGIONS, np.arange(len(REGIONS)) % 2]
    for scale, (height, width) in itertools.product((1.0, 0.5), ((1, 1), (2, 3))):
        rest |= {"spatial_scale": scale, "output_height": height, "output_width": width}
        model, feeds = model_of_node(
            "RoiAlign", inputs, ["y"], version=version, mode=mode, sampling_ratio=ratio, **rest
        )
        result = load(model, "numpy").run(feeds)["y"]
        try:
            (expected,) = expected_of(model, feeds)
        except (Fail, NotImplemented):  # negative counts of samples overflow there; operator set 22 is missing
            (expected,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_region_without_area_has_no_samples(mode: str) -> None:
    inputs = [np.full((1, 1, 4, 4), 3, F), np.array([[1, 1, 1, 3], [1, 1, 3, 1], [1, 1, 3, 3]], F), np.zeros(3, int)]
    model, feeds = model_of_node("RoiAlign", inputs, ["y"], mode=mode, output_height=2, output_width=2)
    result = load(model, "numpy").run(feeds)["y"]
    assert not result[:2].any()
    assert result[2].all()


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_narrow_regions_have_one_sample(mode: str) -> None:
    """A region is widened to 1: rounding its corners must not widen it further, or it would have two samples."""
    begins = np.random.default_rng(1).uniform(-3, 6, (64, 2)).astype(F)
    regions = np.concatenate([begins, begins + F(0.5)], 1)
    inputs = [normal(1, 2, 7, 6), regions, np.zeros(len(regions), int)]
    how = "output_half_pixel"
    check_node("RoiAlign", inputs, ["y"], version=16, coordinate_transformation_mode=how, mode=mode, tolerance=1e-4)


def test_regions_without_a_scale() -> None:
    inputs = [normal(1, 1, 4, 4), REGIONS[:3], np.zeros(3, int)]
    check_node(
        "RoiAlign", inputs, ["y"], version=16, spatial_scale=0.0, coordinate_transformation_mode="output_half_pixel"
    )


def test_a_negative_number_of_samples_is_rejected() -> None:
    inputs = [normal(1, 1, 4, 4), REGIONS[:3], np.zeros(3, int)]
    model, feeds = model_of_node("RoiAlign", inputs, ["y"], sampling_ratio=-1)
    with pytest.raises(NotSupported, match="'it': sampling_ratio must be between 0 and 256, got -1"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("size", [(1, 1), (2, 3)])
def test_pooled_regions(scale: float, size: tuple[int, int]) -> None:
    batches = (np.arange(len(REGIONS)) % 2)[:, None].astype(F)
    inputs = [normal(2, 2, 7, 6), np.concatenate([batches, np.round(REGIONS)], 1)]
    check_node("MaxRoiPool", inputs, ["y"], version=20, pooled_shape=size, spatial_scale=scale)
