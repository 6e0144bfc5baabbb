"""Operators of torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dmlgpu.catalog.enums import InterpolationMode, ReduceFunction
from dmlgpu.frontends.torch.dtypes import cast
from dmlgpu.frontends.torch.operators.registry import Unsupported
from dmlgpu.frontends.torch.storage import tensor_of, torch_of
from dmlgpu.ops import directml

_MAX_SAMPLES = 256
"""Maximum number of samples per element and axis."""

LIBRARY = torch.library.Library("torchvision", "IMPL")


def suppressed(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Return the indices of boxes that overlap no box of a higher score, in the order of scores.

    Overlaps are computed on the device, and read: the number of boxes that stay depends on them.
    """
    order = scores.argsort(descending=True, stable=True)
    corners = boxes[order]
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    common = (high - low).clamp(min=0).prod(2)
    overlaps = (common > iou_threshold * (areas[:, None] + areas[None, :] - common)).cpu().numpy()
    stays = np.ones(len(overlaps), bool)
    for index, row in enumerate(overlaps):
        if stays[index]:
            stays[index + 1 :] &= ~row[index + 1 :]
    return order[torch.from_numpy(np.flatnonzero(stays)).to(boxes.device)]


class _Regions:
    """Regions {count, 5} of batch indices and corners, as torchvision's roi_align samples them."""

    def __init__(self, rois: torch.Tensor, spatial_scale: float, sampling_ratio: int, aligned: bool):
        if sampling_ratio > _MAX_SAMPLES:
            raise Unsupported(
                f"torchvision::roi_align takes a sampling_ratio up to {_MAX_SAMPLES} on the dml device, "
                f"got {sampling_ratio}; pass 0 for about one sample per pixel"
            )
        first, second = (rois[:, 1:] * spatial_scale).split(2, 1)
        self.has_area: torch.Tensor | None = None
        if not aligned:  # at least one wide and high; rounded down, since above 1 a region would get a second sample
            minimum = first + (1 - (first.abs() + 1) * (torch.finfo(rois.dtype).eps / 2))
            second = torch.maximum(second, minimum)
        elif sampling_ratio <= 0:  # a region without an area has no samples
            self.has_area = (second > first).all(1)[:, None, None, None]
        self.corners = tensor_of(torch.cat([first, second], 1))
        self.batches = cast(tensor_of(rois[:, 0].to(torch.int32)), torch.uint32)
        self.options: dict[str, Any] = {
            "reduction_function": ReduceFunction.AVERAGE,
            "interpolation_mode": InterpolationMode.LINEAR,
            "minimum_samples_per_output": max(sampling_ratio, 1),
            "maximum_samples_per_output": sampling_ratio if sampling_ratio > 0 else 0xFFFFFFFF,
            "spatial_scale_x": 1.0,
            "spatial_scale_y": 1.0,
            "input_pixel_offset": 0.5 if aligned else 0.0,
            "output_pixel_offset": -0.5,
        }

    def masked(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor with one row per region, 0 where a region has no samples."""
        return x if self.has_area is None else torch.where(self.has_area, x, 0)


def roi_align(
    input: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    """Return the means of bilinear samples of each region's bins."""
    sizes = (rois.shape[0], input.shape[1], pooled_height, pooled_width)
    if rois.dtype is not input.dtype:
        raise RuntimeError(f"roi_align's rois must have the dtype of its input, {input.dtype}, got {rois.dtype}")
    if 0 in sizes or not input.numel():
        return input.new_zeros(sizes)
    regions = _Regions(rois, spatial_scale, sampling_ratio, aligned)
    result = directml.roi_align1(
        tensor_of(input), regions.corners, regions.batches, output_sizes=sizes, **regions.options
    )
    return regions.masked(torch_of(result, input.device.index))


def roi_align_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    """Return the gradient of the input of roi_align."""
    sizes = (batch_size, channels, height, width)
    if 0 in sizes or not grad.numel():
        return grad.new_zeros(sizes)
    regions = _Regions(rois, spatial_scale, sampling_ratio, aligned)
    operands = tensor_of(regions.masked(grad)), regions.corners, regions.batches
    result = directml.roi_align_grad(*operands, None, output_sizes=sizes, **regions.options).output_gradient
    assert result is not None
    return torch_of(result, grad.device.index)


LIBRARY.impl("nms", suppressed, "PrivateUse1")
LIBRARY.impl("roi_align", roi_align, "PrivateUse1")
LIBRARY.impl("_roi_align_backward", roi_align_backward, "PrivateUse1")
