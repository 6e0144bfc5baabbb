"""Where text is: what the detection model takes, and boxes from the probabilities that it gives (Liao et al. 2020).

The model says of each pixel how probably it belongs to the middle part of a line of text. Regions above a threshold
become rectangles, and these are grown, as the model was taught lines that were shrunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from dmlgpu.demo.ocr.rectangles import Rectangle, smallest_rectangle

THRESHOLD = 0.3
"""From this probability on, a pixel belongs to text."""

BOX_THRESHOLD = 0.5
"""The mean probability that a rectangle must have."""

UNCLIP_RATIO = 2.2
"""How far rectangles grow: so many times their area over their perimeter. With 1.6, spaces between
words are lost."""

SHORTEST_SIDE = 3
"""In pixels of the model; what is narrower is no text."""

MULTIPLE = 32
"""The model halves its picture five times."""


def model_input(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return pixels {height, width, 3} (RGB) as the models take them: {3, height, width}, BGR, from -1 to 1."""
    return np.ascontiguousarray(picture[..., ::-1].transpose(2, 0, 1), np.float32) / 127.5 - 1


def detection_input(image: Image.Image, longest_side: int) -> NDArray[np.float32]:
    """Return an RGB picture as the detection model takes it, {1, 3, height, width}.

    Sides are shrunk so that the longer one is at most ``longest_side``, and rounded to multiples of 32.
    """
    scale = min(1.0, longest_side / max(image.size))
    width, height = (max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in image.size)
    return model_input(np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)))[None]


def boxes(probabilities: NDArray[np.float32], width: int, height: int) -> list[Rectangle]:
    """Return the rectangles around lines of text, in the order in which one reads.

    Args:
        probabilities: of each pixel, {rows, columns}.
        width, height: of the picture in which the rectangles are to lie.
    """
    labels, _ = ndimage.label(probabilities > THRESHOLD, structure=np.ones((3, 3)))
    rows, columns = probabilities.shape
    found = []
    for label, window in enumerate(ndimage.find_objects(labels), 1):
        y, x = np.nonzero(labels[window] == label)
        points = np.stack([x + window[1].start, y + window[0].start], axis=1) + 0.5
        box = smallest_rectangle(points)
        if min(box.width, box.height) < SHORTEST_SIDE or _mean_inside(probabilities, box) < BOX_THRESHOLD:
            continue
        distance = box.width * box.height * UNCLIP_RATIO / (2 * (box.width + box.height))
        found.append(box.grown(distance).scaled(width / columns, height / rows))
    return reading_order(found)


def _mean_inside(probabilities: NDArray[np.float32], box: Rectangle) -> float:
    """Return the mean probability of the pixels whose middle is in a rectangle."""
    rows, columns = probabilities.shape
    left, top = np.clip(np.floor(box.corners.min(axis=0)).astype(int), 0, (columns - 1, rows - 1))
    right, bottom = np.clip(np.ceil(box.corners.max(axis=0)).astype(int), (left + 1, top + 1), (columns, rows))
    y, x = np.mgrid[top:bottom, left:right]
    inside = box.contains(np.stack([x, y], axis=-1) + 0.5)
    return float(probabilities[top:bottom, left:right][inside].mean())


def reading_order(found: list[Rectangle]) -> list[Rectangle]:
    """Return rectangles from top to bottom; those whose middles lie at about one height, from left to right."""
    rows: list[list[Rectangle]] = []
    for box in sorted(found, key=lambda box: float(box.center[1])):
        first = rows[-1][0] if rows else None
        if first is not None and box.center[1] - first.center[1] < min(box.height, first.height) / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: float(box.center[0]))]
