"""Lines of text in a picture: found by the detection model, as rectangles of any angle, and cut out upright.

The model gives the probability that a pixel belongs to the middle part of a line of text (Liao et al. 2020). Regions
above a threshold become rectangles, which are grown because the model was trained on lines that were shrunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

Points = NDArray[np.float64]
"""Sizes {count, 2}: x to the right, y downwards, in pixels; the middle of the first pixel is (0.5, 0.5)."""


@dataclass(frozen=True)
class Rectangle:
    """A rectangle around a line of text.

    Attributes:
        center: Its middle, {2}.
        along: The unit vector of its sides that run to the right, at most 45 degrees up or down, {2}.
        width: Along it.
        height: Across it.
    """

    center: Points
    along: Points
    width: float
    height: float

    @property
    def across(self) -> Points:
        """Unit vector of the sides that point downwards, {2}."""
        return np.array([-self.along[1], self.along[0]])

    @property
    def corners(self) -> Points:
        """Corners, clockwise from the top left, {4, 2}."""
        right, down = self.along * self.width / 2, self.across * self.height / 2
        return self.center + np.array([-right - down, right - down, right + down, down - right])

    def grown(self, distance: float) -> Rectangle:
        """Return the rectangle whose sides lie ``distance`` further out."""
        return replace(self, width=self.width + 2 * distance, height=self.height + 2 * distance)

    def scaled(self, x: float, y: float) -> Rectangle:
        """Return the rectangle around the corners after x and y were multiplied."""
        return smallest_rectangle(self.corners * [x, y])

    def contains(self, points: Points) -> NDArray[np.bool_]:
        """Return the mask of the points in the rectangle, {count}."""
        away = points - self.center
        inside = np.abs(away @ self.along) <= self.width / 2
        return inside & (np.abs(away @ self.across) <= self.height / 2)


def smallest_rectangle(points: Points) -> Rectangle:
    """Return the rectangle of the smallest area around points, one side of which lies on their convex hull.

    Points on a line, or a single one, have a rectangle of height or width 0.
    """
    try:
        hull = points[ConvexHull(points).vertices]
    except (QhullError, ValueError):  # they do not span an area
        hull = points
    edges = np.roll(hull, -1, axis=0) - hull
    lengths = np.hypot(*edges.T)
    directions = edges[lengths > 0] / lengths[lengths > 0, None]
    if not len(directions):
        directions = np.array([[1.0, 0.0]])
    along = np.stack([directions, np.stack([-directions[:, 1], directions[:, 0]], axis=1)])
    across = np.roll(along, 1, axis=0)
    flat = np.abs(along[0, :, 0]) >= np.abs(along[1, :, 0])
    along = np.where(flat[:, None], along[0], across[0])
    along = along * np.where(along[:, :1] < 0, -1.0, 1.0)
    return min(_around(hull, along), key=lambda rectangle: rectangle.width * rectangle.height)


def _around(hull: Points, directions: Points) -> Iterable[Rectangle]:
    """Return, for each direction, the rectangle around points with sides of that direction."""
    for along in directions:
        axes = np.array([along, [-along[1], along[0]]])
        placed = hull @ axes.T
        low, high = placed.min(axis=0), placed.max(axis=0)
        width, height = (float(size) for size in high - low)
        yield Rectangle((low + high) / 2 @ axes, along, width, height)


THRESHOLD = 0.3
"""Minimum probability of pixels of text."""

BOX_THRESHOLD = 0.5
"""Minimum mean probability of a rectangle."""

UNCLIP_RATIO = 2.2
"""Factor by which rectangles grow, times their area over their perimeter. With 1.6, spaces between words are lost."""

SHORTEST_SIDE = 3
"""Minimum side of a rectangle, in pixels of the model."""

MULTIPLE = 32
"""Sizes of the model's input are multiples of this: it downsamples by 2 five times."""


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
    """Return the rectangles around lines of text, in reading order.

    Args:
        probabilities: Probability of each pixel, {rows, columns}.
        width, height: Size of the picture for the rectangles.
    """
    labels, _ = ndimage.label(probabilities > THRESHOLD, structure=np.ones((3, 3)))
    rows, columns = probabilities.shape
    rectangles = []
    for label, window in enumerate(ndimage.find_objects(labels), 1):
        y, x = np.nonzero(labels[window] == label)
        points = np.stack([x + window[1].start, y + window[0].start], axis=1) + 0.5
        box = smallest_rectangle(points)
        if min(box.width, box.height) < SHORTEST_SIDE or _mean_inside(probabilities, box) < BOX_THRESHOLD:
            continue
        distance = box.width * box.height * UNCLIP_RATIO / (2 * (box.width + box.height))
        rectangles.append(box.grown(distance).scaled(width / columns, height / rows))
    return reading_order(rectangles)


def _mean_inside(probabilities: NDArray[np.float32], box: Rectangle) -> float:
    """Return the mean probability of the pixels whose middle is in a rectangle."""
    rows, columns = probabilities.shape
    left, top = np.clip(np.floor(box.corners.min(axis=0)).astype(int), 0, (columns - 1, rows - 1))
    right, bottom = np.clip(np.ceil(box.corners.max(axis=0)).astype(int), (left + 1, top + 1), (columns, rows))
    y, x = np.mgrid[top:bottom, left:right]
    inside = box.contains(np.stack([x, y], axis=-1) + 0.5)
    return float(probabilities[top:bottom, left:right][inside].mean())


def reading_order(rectangles: list[Rectangle]) -> list[Rectangle]:
    """Return rectangles from top to bottom; those whose middles lie at about one height, from left to right."""
    rows: list[list[Rectangle]] = []
    for box in sorted(rectangles, key=lambda box: float(box.center[1])):
        first = rows[-1][0] if rows else None
        if first is not None and box.center[1] - first.center[1] < min(box.height, first.height) / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: float(box.center[0]))]


Picture = NDArray[np.uint8]
"""Sizes {height, width, 3}: red, green, blue."""

HEIGHT = 48
"""Height of lines for the models."""

DIRECTION_WIDTH = 192
"""Width of lines for the direction model; longer ones are squeezed."""

WIDTHS = (320, 640, 1280, 2560)
"""Widths of lines for the recognition model; shorter ones are padded, longer than the last squeezed."""

BATCH = 4
"""Lines per batch; smaller batches are padded, so that there is one shape for each width."""

VERTICAL = 1.5
"""Ratio of height to width from which a line is vertical."""


def cut(picture: Picture, corners: Points) -> Picture:
    """Return the image between four corners, clockwise from the top left, as an upright rectangle.

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
    pixels = np.stack(planes, axis=-1).round().astype(np.uint8)
    return np.rot90(pixels) if height >= VERTICAL * width else pixels


def perspective(source: Points, target: Points) -> NDArray[np.float64]:
    """Return the matrix {3, 3} that takes four points to four others, in homogeneous coordinates."""
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(right)), 1).reshape(3, 3)


def line_width(line: Picture) -> int:
    """Return the width of a line scaled to the height of the models."""
    return math.ceil(HEIGHT * line.shape[1] / line.shape[0])


def bucket(width: int) -> int:
    """Return the width in which a line is recognized."""
    return next((size for size in WIDTHS if width <= size), WIDTHS[-1])


def batches(lines: Sequence[Picture], widths: Sequence[int]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Yield lines of equal widths, four at a time, as the models take them.

    Args:
        lines: Lines of any sizes.
        widths: Width of each line, including padding.

    Yields:
        The indices of the lines, and {4, 3, 48, width}, padded with 0.
    """
    for width in sorted(set(widths)):
        members = [index for index, other in enumerate(widths) if other == width]
        for start in range(0, len(members), BATCH):
            numbers = members[start : start + BATCH]
            batch = np.zeros((BATCH, 3, HEIGHT, width), np.float32)
            for row, index in enumerate(numbers):
                line = _resized(lines[index], min(width, line_width(lines[index])))
                batch[row, :, :, : line.shape[1]] = model_input(line)
            yield numbers, batch


def _resized(line: Picture, width: int) -> Picture:
    return np.asarray(Image.fromarray(line).resize((width, HEIGHT), Image.Resampling.BILINEAR))
