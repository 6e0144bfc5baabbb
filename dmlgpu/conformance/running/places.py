"""Where the wrong elements of a result are: all, a tail, every n-th. That is often the best hint at the fault."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_LANES = (64, 32, 16, 8, 4, 2)
"""Numbers of lanes, of subgroups or vectors, of which one may be wrong."""


def describe_places(wrong: NDArray[np.bool_]) -> str:
    """Describe where elements are wrong, such as ``every 4th from [0, 3]``.

    Args:
        wrong: Whether each element of a result is wrong.

    Returns:
        A clause; empty for none, and for one element.
    """
    places = np.flatnonzero(wrong)
    count = places.size
    if count < 2:
        return ""
    if count == wrong.size:
        return "which are all"
    first, last = (list(map(int, np.unravel_index(place, wrong.shape))) for place in places[[0, -1]])
    steps = np.diff(places)
    if (steps == 1).all():
        if places[0] == 0:
            return "the first ones"
        return "the last ones" if places[-1] == wrong.size - 1 else f"without a gap from {first} to {last}"
    if (steps == steps[0]).all() and count > 2:
        return f"{_ordinal(int(steps[0]))} from {first} to {last}"
    return ", ".join([*_confined(wrong), *_lanes(places)][:2]) or f"scattered from {first} to {last}"


def _ordinal(step: int) -> str:
    """Return ``every 2nd``, ``every 13th``."""
    suffix = "th" if step % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    return f"every {step:,}{suffix}"


def _confined(wrong: NDArray[np.bool_]) -> Iterator[str]:
    """Yield axes along which only one end, or one index, has wrong elements; from the last, which is contiguous."""
    for axis in reversed(range(wrong.ndim)):
        size = wrong.shape[axis]
        hit = np.flatnonzero(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
        if hit.size == size:
            continue
        if hit.size == 1:
            yield f"only at index {hit[0]} of {size} along axis {axis}"
        elif hit[0] == size - hit.size:
            yield f"only in the last {hit.size} of {size} along axis {axis}"
        elif hit[-1] == hit.size - 1:
            yield f"only in the first {hit.size} of {size} along axis {axis}"


def _lanes(places: NDArray[np.int64]) -> Iterator[str]:
    """Yield the largest number of lanes of which only one is wrong, if that is no accident of few elements."""
    for lanes in _LANES:
        lane = places[0] % lanes
        if (places % lanes == lane).all() and (places.size - 1) * math.log2(lanes) >= 10:
            yield f"only element {lane} of each {lanes}"
            return
