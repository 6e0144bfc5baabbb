"""Lines of text cut out of a picture, upright and of one height, in batches of few shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from dmlgpu.demo.ocr.detection import model_input
from dmlgpu.demo.ocr.rectangles import Points

Picture = NDArray[np.uint8]
"""Sizes {height, width, 3}: red, green, blue."""

HEIGHT = 48
"""Of lines, as the models take them."""

DIRECTION_WIDTH = 192
"""Of lines, as the direction model takes them; longer ones are squeezed."""

WIDTHS = (320, 640, 1280, 2560)
"""Of lines, as the recognition model takes them; shorter ones are padded, those beyond the last squeezed."""

BATCH = 4
"""Lines at a time; fewer are padded, too, so that there is one shape for each width."""

VERTICAL = 1.5
"""So many times as high as wide, a line is written from top to bottom."""


def cut(picture: Picture, corners: Points) -> Picture:
    """Return what lies between four corners, clockwise from the top left, as a rectangle of their distances.

    Pixels are interpolated linearly between the four around them; beyond the picture's edge its last ones go on. A part
    that is 1.5 times as high as wide is turned to the left.
    """
    top_left, top_right, bottom_right, bottom_left = corners
    width = max(1, round(max(math.dist(top_left, top_right), math.dist(bottom_left, bottom_right))))
    height = max(1, round(max(math.dist(top_left, bottom_left), math.dist(top_right, bottom_right))))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
    y, x = np.mgrid[0:height, 0:width] + 0.5
    source = perspective(target, corners) @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    places = (source[1::-1] / source[2]).reshape(2, height, width) - 0.5
    planes = [
        ndimage.map_coordinates(plane, places, np.float32, 1, mode="nearest") for plane in picture.T.swapaxes(1, 2)
    ]
    found = np.stack(planes, axis=-1).round().astype(np.uint8)
    return np.rot90(found) if height >= VERTICAL * width else found


def perspective(source: Points, target: Points) -> NDArray[np.float64]:
    """Return the matrix {3, 3} that takes four points to four others, in homogeneous coordinates."""
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(right)), 1).reshape(3, 3)


def line_width(line: Picture) -> int:
    """Return how wide a line is when its height is 48."""
    return math.ceil(HEIGHT * line.shape[1] / line.shape[0])


def bucket(width: int) -> int:
    """Return the width in which a line is recognised."""
    return next((one for one in WIDTHS if width <= one), WIDTHS[-1])


def batches(lines: Sequence[Picture], widths: Sequence[int]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Yield lines of equal widths, four at a time, as the models take them.

    Args:
        lines: of any sizes.
        widths: of each, with what it is padded.

    Yields:
        The numbers of the lines, and {4, 3, 48, width}; 0 beside and after lines.
    """
    for width in sorted(set(widths)):
        members = [number for number, one in enumerate(widths) if one == width]
        for start in range(0, len(members), BATCH):
            numbers = members[start : start + BATCH]
            batch = np.zeros((BATCH, 3, HEIGHT, width), np.float32)
            for row, number in enumerate(numbers):
                line = _resized(lines[number], min(width, line_width(lines[number])))
                batch[row, :, :, : line.shape[1]] = model_input(line)
            yield numbers, batch


def _resized(line: Picture, width: int) -> Picture:
    return np.asarray(Image.fromarray(line).resize((width, HEIGHT), Image.Resampling.BILINEAR))
