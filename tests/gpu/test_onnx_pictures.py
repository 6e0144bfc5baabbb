"""ONNX operators that are composed of many, on every adapter, against the adapter numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend

F = np.float32


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(F)


def compare(backend: GpuBackend, op_type: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> None:
    """Run a node on the adapter and on numpy."""
    names = ["" if input is None else f"x{index}" for index, input in enumerate(inputs)]
    output_names = [f"y{index}" for index in range(outputs)]
    feeds = {name: input for name, input in zip(names, inputs, strict=True) if input is not None}
    types = {name: helper.np_dtype_to_tensor_dtype(feed.dtype) for name, feed in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, output_names, **attributes)],
        "test",
        [helper.make_tensor_value_info(name, types[name], feed.shape) for name, feed in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in output_names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    expected = load(model, "numpy").run(feeds)
    for name, result in load(model, Device.from_backend(backend)).run(feeds).items():
        assert result.dtype == expected[name].dtype
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-5)


def test_cubic(backend: GpuBackend) -> None:
    compare(backend, "Resize", [normal(1, 2, 5, 6), None, None, np.array([1, 2, 8, 3])], mode="cubic", antialias=1)


def test_grid(backend: GpuBackend) -> None:
    compare(backend, "GridSample", [normal(1, 2, 4, 5), normal(1, 3, 2, 2)], mode="linear", padding_mode="reflection")


def test_boxes(backend: GpuBackend) -> None:
    begin = np.arange(12, dtype=F) * 0.5  # a chain, in which each box overlaps the next
    boxes = np.stack([begin * 0, begin, begin * 0 + 1, begin + 0.9], axis=1)[None]
    scores = np.linspace(1, 0.1, 12, dtype=F).reshape(1, 1, 12)
    compare(backend, "NonMaxSuppression", [boxes, scores, np.array([9]), np.array([0.2], F)], center_point_box=1)


def test_sums_at_indices(backend: GpuBackend) -> None:
    updates = np.random.default_rng(0).integers(-(2**40), 2**40, 20)
    where = np.random.default_rng(1).integers(-7, 7, 20)
    compare(backend, "ScatterElements", [updates[:7], where, updates], reduction="add")


def test_each_once(backend: GpuBackend) -> None:
    x = np.random.default_rng(0).integers(0, 2, (9, 2))
    compare(backend, "Unique", [x], outputs=4, axis=0, sorted=0)


def test_random_streams_are_equal_everywhere(backend: GpuBackend) -> None:
    compare(backend, "RandomNormal", [], shape=[3, 5], seed=3.0)


@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resized(backend: GpuBackend, mode: str, how: str) -> None:
    roi = np.array([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.1], F) if how == "tf_crop_and_resize" else None
    inputs = [normal(1, 2, 6, 5), roi, np.array([1, 1, 0.45, 1.7], F)]
    compare(backend, "Resize", inputs, mode=mode, antialias=mode != "nearest", coordinate_transformation_mode=how)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_area(backend: GpuBackend, mode: str) -> None:
    rois = np.array([[1, 1, 1, 3], [1, 1, 3, 1], [1, 1, 3, 3], [3, 3, 1, 1]], F)
    compare(backend, "RoiAlign", [normal(1, 2, 4, 5), rois, np.zeros(4, np.int64)], mode=mode, output_height=2)
