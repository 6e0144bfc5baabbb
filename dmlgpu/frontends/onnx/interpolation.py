"""Which elements along an axis a resampled element is made of, and their weights: ONNX's Resize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Axis:
    """How one axis is resampled.

    Attributes:
        size, wanted: elements before and behind.
        scale: of the axis; ``wanted`` is not always their product.
        transformation: ONNX's ``coordinate_transformation_mode``.
        rounding: ONNX's ``nearest_mode``.
        region: of ``tf_crop_and_resize``: begin and end, as parts of the axis.
    """

    size: int
    wanted: int
    scale: float
    transformation: str
    rounding: str = "round_prefer_floor"
    region: tuple[float, float] = (0.0, 1.0)

    def coordinates(self) -> Array:
        """Return where in the input each element of the output lies."""
        places = np.arange(self.wanted, dtype=np.float64)
        exact = self.size * self.scale
        found = (places + 0.5) / self.scale - 0.5
        match self.transformation:
            case "align_corners":
                found = places * 0 if exact == 1 else places * (self.size - 1) / (exact - 1)
            case "asymmetric":
                found = places / self.scale
            case "tf_half_pixel_for_nn":
                found = (places + 0.5) / self.scale
            case "pytorch_half_pixel" if self.wanted == 1:
                found = places
            case "half_pixel_symmetric":
                found = self.size / 2 * (1 - self.wanted / exact) + (places + 0.5) / self.scale - 0.5
            case "tf_crop_and_resize":
                # in float32, as the region is, or begins that are whole elements lie beside these
                begin, end = (float(np.float32(one) * np.float32(self.size - 1)) for one in self.region)
                step = 0 if exact == 1 else (end - begin) / (exact - 1)
                found = ((begin + end) / 2 if exact == 1 else begin) + places * step
        return found

    def outside(self) -> Array:
        """Return which elements of the output lie beyond the input, for ``tf_crop_and_resize``."""
        found = self.coordinates()
        return (found < 0) | (found > self.size - 1)


TRANSFORMATIONS = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""ONNX's ``nearest_mode``."""


def nearest(axis: Axis) -> Array:
    """Return the index of the element that each element of the output is a copy of."""
    return np.clip(ROUNDINGS[axis.rounding](axis.coordinates()), 0, axis.size - 1).astype(np.int32)


def weighted(axis: Axis, *, cubic: float | None, antialias: bool, exclude_outside: bool) -> tuple[Array, Array]:
    """Return indices and weights of the elements that each element of the output is a sum of, both {wanted, count}.

    Args:
        axis: how it is resampled.
        cubic: the coefficient of cubic interpolation; None for linear.
        antialias: whether the kernel is stretched where the axis shrinks.
        exclude_outside: whether elements beyond the input have weight 0; else they are those at its edge.
    """
    stretch = min(axis.scale, 1.0) if antialias else 1.0
    begin = int(np.floor((-1 if cubic is None else -2) / stretch)) + 1
    coordinates = axis.coordinates()[:, None]
    places = np.floor(coordinates) + np.arange(begin, 2 - begin)
    distances = np.abs(places - coordinates) * stretch
    weights = np.clip(1 - distances, 0, 1) if cubic is None else _cubic(distances, cubic)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= axis.size), 0, weights)
    if exclude_outside or antialias:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(places, 0, axis.size - 1).astype(np.int32), weights.astype(np.float32)


def _cubic(distances: Array, a: float) -> Array:
    """Return the weights of cubic convolution at distances."""
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0))
