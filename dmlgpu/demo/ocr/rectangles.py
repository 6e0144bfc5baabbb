"""Rectangles of any angle: the smallest one around points, larger ones, and what lies in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

Points = NDArray[np.float64]
"""Sizes {count, 2}: x to the right, y downwards, in pixels; the middle of the first pixel is (0.5, 0.5)."""


@dataclass(frozen=True)
class Rectangle:
    """A rectangle around a line of text.

    Attributes:
        center: its middle, {2}.
        along: the unit vector of its sides that run to the right, at most 45 degrees up or down, {2}.
        width: along it.
        height: across it.
    """

    center: Points
    along: Points
    width: float
    height: float

    @property
    def across(self) -> Points:
        """The unit vector of its sides that run downwards, {2}."""
        return np.array([-self.along[1], self.along[0]])

    @property
    def corners(self) -> Points:
        """Clockwise from the top left, {4, 2}."""
        right, down = self.along * self.width / 2, self.across * self.height / 2
        return self.center + np.array([-right - down, right - down, right + down, down - right])

    def grown(self, distance: float) -> Rectangle:
        """Return the rectangle whose sides lie ``distance`` further out."""
        return replace(self, width=self.width + 2 * distance, height=self.height + 2 * distance)

    def scaled(self, x: float, y: float) -> Rectangle:
        """Return the rectangle around the corners after x and y were multiplied."""
        return smallest_rectangle(self.corners * [x, y])

    def contains(self, points: Points) -> NDArray[np.bool_]:
        """Tell which of the points lie in the rectangle, {count}."""
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
    return min(_around(hull, along), key=lambda found: found.width * found.height)


def _around(hull: Points, directions: Points) -> Iterable[Rectangle]:
    """For each direction, the rectangle around points whose sides have it."""
    for along in directions:
        axes = np.array([along, [-along[1], along[0]]])
        placed = hull @ axes.T
        low, high = placed.min(axis=0), placed.max(axis=0)
        width, height = (float(size) for size in high - low)
        yield Rectangle((low + high) / 2 @ axes, along, width, height)
