"""Resize with sizes and scales that are computed from symbolic sizes: one translation serves all shapes, and results
equal those of translations for each shape, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

from dmlgpu import Device
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.runner import Runner
from dmlgpu.frontends.onnx.session import runner_of
from tests.unit.frontends.onnx.onnx_against import model_of, normal

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

SHAPES = [(2, 5, 7), (2, 6, 7), (3, 9, 8), (2, 11, 5), (2, 10, 10), (4, 20, 3), (2, 17, 23), (2, 18, 24)]
"""Batch, height and width of runs."""

CONSTANTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "front": np.array([0, 1]),
    "spatial": np.array([2, 3]),
    "ones": np.ones(2, np.float32),
    "target": np.array([16, 12], np.float32),
    "region": np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1], np.float32),
}


def image_model(*nodes: onnx.NodeProto, version: int = 22) -> onnx.ModelProto:
    """Return a model of ``x`` {batch, 2, height, width}; ``pixels`` are height and width, ``rest`` the other sizes."""
    sizes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "spatial"], ["pixels"]),
        node("Gather", ["shape", "front"], ["rest"]),
    ]
    inputs = {"x": (FLOAT, ["batch", 2, "height", "width"])}
    model = model_of([*sizes, *nodes], inputs, {"y": FLOAT}, CONSTANTS)
    model.opset_import[0].version = version
    return model


def by_sizes(**attributes: Any) -> onnx.ModelProto:
    """Return a model that resizes to 3/2 of the pixels and 3 more."""
    nodes = [
        node("Mul", ["pixels", "three"], ["tripled"]),
        node("Div", ["tripled", "two"], ["halved"]),
        node("Add", ["halved", "three"], ["larger"]),
        node("Concat", ["rest", "larger"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], **attributes),
    ]
    return image_model(*nodes)


def by_scales(**attributes: Any) -> onnx.ModelProto:
    """Return a model that resizes to 16 x 12 pixels, by scales."""
    nodes = [
        node("Cast", ["pixels"], ["floats"], to=FLOAT),
        node("Div", ["target", "floats"], ["ratios"]),
        node("Concat", ["ones", "ratios"], ["scales"], axis=0),
        node("Resize", ["x", "region", "scales"], ["y"], **attributes),
    ]
    return image_model(*nodes)


def upsampled(**attributes: Any) -> onnx.ModelProto:
    """Return a model with an Upsample, by scales."""
    nodes = [
        node("Cast", ["pixels"], ["floats"], to=FLOAT),
        node("Add", ["floats", "target"], ["larger"]),
        node("Div", ["larger", "floats"], ["ratios"]),
        node("Concat", ["ones", "ratios"], ["scales"], axis=0),
        node("Upsample", ["x", "scales"], ["y"], **attributes),
    ]
    return image_model(*nodes, version=9)


@pytest.fixture
def translations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs for which a graph was translated by the session under test."""
    calls: list[Any] = []
    translate = Runner.translate

    def noted(self: Runner, inputs: Any) -> Any:
        if self.recorded is not None:
            calls.append(inputs)
        return translate(self, inputs)

    monkeypatch.setattr(Runner, "translate", noted)
    return calls


def check(model: onnx.ModelProto, device: Device, shapes: Sequence[tuple[int, int, int]] = SHAPES) -> None:
    """Compare a session with one that translates for each shape."""
    session, translating = load(model, device), load(model, device)
    runner_of(translating).recorded = None
    for index, (batch, height, width) in enumerate(shapes):
        feeds = {"x": normal(batch, 2, height, width, seed=index)}
        result, expected = session.run(feeds)["y"], translating.run(feeds)["y"]
        assert result.shape == expected.shape
        assert result.tobytes() == expected.tobytes(), (batch, height, width)
    assert runner_of(session).last_stages[0].is_recorded


SHARING = Device("numpy", specialize="never")

SHRINKING = [(2, height, width) for height in (20, 23, 31) for width in (19, 25, 26)]
"""Shapes of images that are larger than 16 x 12 pixels."""

MODES = [
    ("nearest", {}),
    ("nearest", {"nearest_mode": "floor"}),
    ("linear", {}),
    ("linear", {"antialias": 1}),
    ("cubic", {}),
    ("cubic", {"exclude_outside": 1, "antialias": 1}),
]

TRANSFORMATIONS = (
    *("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
    "tf_half_pixel_for_nn",
)


@pytest.mark.slow
@pytest.mark.parametrize("how", [*TRANSFORMATIONS, "tf_crop_and_resize"])
def test_one_translation_serves_all_shapes(how: str, translations: list[Any]) -> None:
    for mode, options in MODES:
        if how != "tf_crop_and_resize":  # which has no sizes
            check(by_sizes(mode=mode, coordinate_transformation_mode=how, **options), SHARING)
            assert len(translations) == 1
        translations.clear()
        check(by_scales(mode=mode, coordinate_transformation_mode=how, **options), SHARING, SHRINKING)
        assert len(translations) == 1
        check(by_scales(mode=mode, coordinate_transformation_mode=how, **options), SHARING)
        translations.clear()


@pytest.mark.parametrize("how", ["align_corners", "half_pixel", "tf_crop_and_resize"])
@pytest.mark.parametrize(("mode", "options"), [MODES[0], MODES[3], MODES[5]])
def test_scales_are_symbols(mode: str, options: Any, how: str, translations: list[Any]) -> None:
    check(by_scales(mode=mode, coordinate_transformation_mode=how, **options), SHARING, SHRINKING[::3])
    assert len(translations) == 1


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_sizes_that_keep_the_aspect_ratio(policy: str, translations: list[Any]) -> None:
    check(by_sizes(mode="linear", keep_aspect_ratio_policy=policy), SHARING)
    assert len(translations) == 1


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str, translations: list[Any]) -> None:
    check(upsampled(mode=mode), SHARING)
    assert len(translations) == 1


def test_scales_that_were_translated_with_numbers_first(translations: list[Any]) -> None:
    """A model whose first shape has no symbols learns that heights differ from the second one, and the rest later."""
    check(by_sizes(mode="linear"), Device("numpy", specialize="always"))
    assert len(translations) == 3


def test_sizes_follow_the_reference() -> None:
    """Resizing by a size equals ONNX's reference, after others were recorded."""
    model = by_sizes(mode="linear")
    session, reference = load(model, SHARING), ReferenceEvaluator(model)
    for batch, height, width in SHAPES:
        feeds = {"x": normal(batch, 2, height, width)}
        (expected,) = reference.run(None, feeds)
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_outputs_that_are_shapes_follow(translations: list[Any]) -> None:
    """An output that depends on sizes alone is computed in each run."""
    model = image_model(node("Mod", ["pixels", "three"], ["rests"]), node("Max", ["rests", "one"], ["y"]))
    model.graph.output[0].type.tensor_type.elem_type = INT64
    session = load(model, SHARING)
    for batch, height, width in SHAPES:
        result = session.run({"x": normal(batch, 2, height, width)})["y"]
        assert result.dtype == np.int64
        assert result.tolist() == [max(height % 3, 1), max(width % 3, 1)]
    assert len(translations) == 1


# ---- masks that are pasted into an image


def pasted() -> onnx.ModelProto:
    """Return a model that resizes each mask to its box and pastes it into an image, in a loop, as Mask R-CNN does."""
    body = [
        node("Gather", ["boxes", "trip"], ["box"], axis=0),
        node("Split", ["box"], ["left", "top", "right", "bottom"], num_outputs=4),
        node("Sub", ["bottom", "top"], ["rows"]),
        node("Sub", ["right", "left"], ["columns"]),
        node("Concat", ["one", "one", "rows", "columns"], ["extent"], axis=0),
        node("Gather", ["masks", "trip"], ["mask"], axis=0),
        node("Unsqueeze", ["mask", "front"], ["image"]),
        node("Resize", ["image", "", "", "extent"], ["resized"], mode="linear"),
        node("Sub", ["height", "bottom"], ["below"]),
        node("Sub", ["width", "right"], ["behind"]),
        node("Concat", ["zero", "zero", "top", "left", "zero", "zero", "below", "behind"], ["pads"], axis=0),
        node("Pad", ["resized", "pads"], ["whole"]),
        node("Concat", ["state", "whole"], ["next"], axis=0),
        node("Identity", ["goes_on"], ["still"]),
    ]
    info = helper.make_tensor_value_info
    loop = helper.make_graph(
        body,
        "body",
        [info("trip", INT64, []), info("goes_on", BOOL, []), info("state", FLOAT, None)],
        [info("still", BOOL, []), info("next", FLOAT, None)],
    )
    nodes = [
        node("Shape", ["picture"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["height"]),
        node("Slice", ["shape", "one", "two"], ["width"]),
        node("Shape", ["masks"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["count"], axis=0),
        node("Unsqueeze", ["picture", "front"], ["start"]),
        node("Cast", ["corners"], ["boxes"], to=INT64),
        node("Loop", ["count", "yes", "start"], ["y"], body=loop),
    ]
    weights = CONSTANTS | {"first": np.array(0), "yes": np.array(True)}
    inputs = {
        "picture": (FLOAT, ["height", "width"]),
        "masks": (FLOAT, ["count", 4, 4]),
        "corners": (FLOAT, ["count", 4]),
    }
    return model_of(nodes, inputs, {"y": FLOAT}, weights)


def boxes_of(count: int, height: int, width: int, seed: int) -> np.ndarray:
    """Return corners (left, top, right, bottom) of boxes inside of an image, at least 5 wide and high."""
    draw = np.random.default_rng(seed)
    starts = draw.integers(0, (width - 5, height - 5), (count, 2))
    return np.concatenate([starts, draw.integers(starts + 5, (width + 1, height + 1))], 1).astype(np.float32)


def test_masks_of_all_sizes_follow_from_few_translations(translations: list[Any]) -> None:
    """The body is translated for its first boxes, and for each image, whose size it knows."""
    model = pasted()
    session, reference = load(model, SHARING), ReferenceEvaluator(model)
    for run, (count, height, width) in enumerate([(8, 20, 30), (20, 20, 30), (8, 41, 17)]):
        feeds = {
            "picture": normal(height, width),
            "masks": normal(count, 4, 4),
            "corners": boxes_of(count, height, width, run),
        }
        (expected,) = reference.run(None, feeds)
        translations.clear()
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
        assert len(translations) <= 7  # of a body for each number of masks, and of the graph
