"""Windows that slide over the spatial dimensions of a tensor: their sizes and positions, as numbers alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.plan.tensors import Sizes


@dataclass(frozen=True)
class Axis:
    """How a window slides along one spatial dimension.

    Attributes:
        spatial: elements of the input.
        positions: positions of the window.
        size: elements of the window.
        stride: elements from one position to the next.
        dilation: elements from one of them to the next.
        start: elements of padding before the input.
    """

    spatial: int
    positions: int
    size: int
    stride: int
    dilation: int
    start: int

    @property
    def reach(self) -> int:
        """Elements from the first to the last element of the window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def by_position(self) -> bool:
        """Whether what covers an element is looked for among all positions, because these are fewer than the taps."""
        return self.positions < self.size

    def inside(self, position: int) -> range:
        """Return the elements of the window that lie on the input at a position."""
        first = position * self.stride - self.start
        lowest = -(min(first, 0) // self.dilation)
        highest = min(self.size - 1, (self.spatial - 1 - first) // self.dilation)
        return range(lowest, highest + 1)


Windows: TypeAlias = tuple[Axis, ...]
"""How a window slides along each spatial dimension."""


def sizes_of(windows: Windows) -> Sizes:
    """Return the elements of the window."""
    return tuple(axis.size for axis in windows)


def positions_of(windows: Windows) -> Sizes:
    """Return the positions of the window."""
    return tuple(axis.positions for axis in windows)


def taps_of(windows: Windows) -> Sizes:
    """Return how many positions may cover an element along each dimension."""
    return tuple(min(axis.size, axis.positions) for axis in windows)


def windows_over(
    spatial: Iterable[int],
    *,
    size: Iterable[int],
    strides: Iterable[int],
    dilations: Iterable[int],
    start: Iterable[int],
    end: Iterable[int],
) -> Windows:
    """Return windows with as many positions as the padded input has room for; 0 or fewer where it is smaller than the
    window.

    Args:
        start, end: elements of padding before and behind the input.
    """
    return tuple(
        Axis(n, (n + before + behind - (k - 1) * d - 1) // s + 1, k, s, d, before)
        for n, k, s, d, before, behind in zip(spatial, size, strides, dilations, start, end, strict=True)
    )
