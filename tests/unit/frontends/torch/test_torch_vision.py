"""Operators of torchvision on the PyTorch device, against loops over samples in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

SCHEMAS = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
)
ROIS = np.array(
    [
        [0, 0, 0, 15, 12],
        [1, 2.3, 4.1, 21.7, 9.6],
        [0, 5, 5, 5.5, 5.25],  # less than a pixel
        [1, -9, -9, 40, 40],  # beyond the input
        [0, 9, 9, 9, 3],  # without area
    ],
    np.float32,
)


@pytest.fixture(scope="module", autouse=True)
def schemas() -> Any:
    """Define torchvision's operators as torchvision does, if it is not loaded."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    return library


def weights(roi: Any, scale: float, ratio: int, aligned: bool) -> Any:
    """Return the share of each pixel in each bin, {4, 3, 10, 14}."""
    shift = 0.5 if aligned else 0.0
    axes = []
    for low, high, size, count in ((roi[2], roi[4], 10, 4), (roi[1], roi[3], 14, 3)):
        start = low * scale - shift
        extent = (high - low) * scale
        extent = extent if aligned else max(extent, 1.0)
        samples = ratio if ratio > 0 else math.ceil(extent / count)
        axis = np.zeros((count, size))
        for part in range(count):
            for sample in range(samples):
                at = start + (part + (sample + 0.5) / samples) * extent / count
                if -1 <= at <= size:
                    at = min(max(at, 0.0), size - 1.0)
                    left = min(int(at), size - 1)
                    axis[part, left] += (1 - (at - left)) / samples
                    axis[part, min(left + 1, size - 1)] += (at - left) / samples
        axes.append(axis)
    return np.einsum("ay,bx->abyx", *axes)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 3])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_align_and_its_gradient_follow_torchvision(aligned: bool, ratio: int, scale: float) -> None:
    draws = np.random.default_rng(0)
    x = draws.standard_normal((2, 3, 10, 14)).astype(np.float32)
    grad = draws.standard_normal((len(ROIS), 3, 4, 3)).astype(np.float32)
    shares = np.stack([weights(roi, scale, ratio, aligned) for roi in ROIS.astype(np.float64)])
    batches = ROIS[:, 0].astype(int)
    rois = torch.from_numpy(ROIS).to("dml")
    result = torch.ops.torchvision.roi_align(torch.from_numpy(x).to("dml"), rois, scale, 4, 3, ratio, aligned)
    np.testing.assert_allclose(result.cpu(), np.einsum("kabyx,kcyx->kcab", shares, x[batches]), rtol=1e-4, atol=2e-5)
    onto = np.zeros(x.shape)
    np.add.at(onto, batches, np.einsum("kabyx,kcab->kcyx", shares, grad))
    backward = torch.ops.torchvision._roi_align_backward
    result = backward(torch.from_numpy(grad).to("dml"), rois, scale, 4, 3, *x.shape, ratio, aligned)
    np.testing.assert_allclose(result.cpu(), onto, rtol=1e-4, atol=1e-4)


def test_roi_align_of_no_regions_is_empty() -> None:
    x, rois = torch.ones(1, 2, 5, 5, device="dml"), torch.zeros(0, 5, device="dml")
    assert torch.ops.torchvision.roi_align(x, rois, 1.0, 2, 2, 0, False).shape == (0, 2, 2, 2)


def test_roi_align_rejects_too_many_samples_and_other_dtypes() -> None:
    x, rois = torch.ones(1, 2, 5, 5, device="dml"), torch.zeros(1, 5, device="dml")
    with pytest.raises(NotImplementedError, match="sampling_ratio up to 256 on the dml device, got 257"):
        torch.ops.torchvision.roi_align(x, rois, 1.0, 2, 2, 257, False)
    with pytest.raises(RuntimeError, match=r"the dtype of its input, torch.float32, got torch.float16"):
        torch.ops.torchvision.roi_align(x, rois.half(), 1.0, 2, 2, 0, False)
