"""Moving elements without looking at them, so that NaN payloads survive."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_bits(array: NDArray[Any]) -> NDArray[Any]:
    """The same elements seen as unsigned integers of their width (a view)."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))
