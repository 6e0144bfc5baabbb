"""Operators of torchvision."""

from __future__ import annotations

import numpy as np
import torch

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
    for number, row in enumerate(overlaps):
        if stays[number]:
            stays[number + 1 :] &= ~row[number + 1 :]
    return order[torch.from_numpy(np.flatnonzero(stays)).to(boxes.device)]


LIBRARY.impl("nms", suppressed, "PrivateUse1")
