"""Difference of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MIN_MAGNITUDE = 1e-3
"""Largest magnitudes of outputs below it count as it: onnxruntime's own Sigmoid is 3% off where it yields 6e-7."""


def difference_of(array: Array, expected: Array) -> float:
    """Return the largest difference as a share of the expected array's largest magnitude.

    Infinity for other shapes, other types, integers that are not equal, and numbers that are not finite on one side.
    """
    if array.shape != expected.shape or array.dtype != expected.dtype:
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(array, expected) else float("inf")
    same = (array == expected) | (np.isnan(array) & np.isnan(expected))
    if not np.all(same | (np.isfinite(array) & np.isfinite(expected))):
        return float("inf")
    exact = array.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(exact[0] - exact[1]))
    scale = float(np.abs(exact[1][np.isfinite(expected)]).max(initial=0.0))
    return float(apart.max(initial=0.0)) / max(scale, MIN_MAGNITUDE)
