"""Windows that slide over the spatial dimensions of a tensor: arithmetic of their sizes and positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.compiler.plan.sources import Sizes


@dataclass(frozen=True)
class WindowAxis:
    """Window along one spatial dimension.

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
        """Number of input elements from the first to the last element of the window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def by_position(self) -> bool:
        """Whether the positions that cover an element are searched among all positions, which are fewer than the
        taps."""
        return self.positions < self.size

    def inside(self, position: int) -> range:
        """Return the elements of the window that lie on the input at a position."""
        first = position * self.stride - self.start
        lowest = -(min(first, 0) // self.dilation)
        highest = min(self.size - 1, (self.spatial - 1 - first) // self.dilation)
        return range(lowest, highest + 1)

    @property
    def first_empty(self) -> int | None:
        """First position at which no element of the window lies on the input, or None; takes logarithmic time."""
        if not self.inside(0):
            return 0
        # The window begins in the padding, and none of its elements is on the input, whose size is below the dilation.
        if self.spatial < self.dilation:
            between = self.dilation - self.start % self.dilation  # remainders modulo the dilation
            low, high = self.spatial - between, self.dilation - 1 - between
            position = first_multiple_within(self.stride, self.dilation, low, high)
            if position is not None and position < self.positions and position * self.stride < self.start:
                return position
        behind = -(-(self.spatial + self.start) // self.stride)  # the first position that begins after the input
        return behind if behind < self.positions else None


def first_multiple_within(step: int, modulus: int, low: int, high: int) -> int | None:
    """Return the smallest n >= 0 for which ``n * step % modulus`` lies in an interval, or None.

    Args:
        step: At least 0.
        modulus: At least 1.
        low, high: Inclusive interval of remainders, ``low <= high < low + modulus``. Its numbers are taken modulo
            ``modulus``, so it may begin below 0 or end above the modulus.
    """
    low, high = low % modulus, low % modulus + high - low
    if low == 0 or high >= modulus:
        return 0
    step %= modulus
    if step == 0:
        return None
    if 2 * step > modulus:  # count down instead
        step, low, high = modulus - step, modulus - high, modulus - low
    factor = -(-low // step)
    if factor * step <= high:
        return factor
    turns = first_multiple_within(-modulus % step, step, low % step, high % step)
    return None if turns is None else -(-(low + turns * modulus) // step)


Windows: TypeAlias = tuple[WindowAxis, ...]
"""Windows along each spatial dimension."""


def sizes_of(windows: Windows) -> Sizes:
    """Return the elements of the window."""
    return tuple(axis.size for axis in windows)


def positions_of(windows: Windows) -> Sizes:
    """Return the positions of the window."""
    return tuple(axis.positions for axis in windows)


def taps_of(windows: Windows) -> Sizes:
    """Return the maximum number of positions that cover an element, along each dimension."""
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
    """Return windows with all positions that fit into the padded input; 0 or fewer if it is smaller than the window.

    Args:
        start, end: Elements of padding before and after the input.
    """
    return tuple(
        WindowAxis(n, (n + before + behind - (k - 1) * d - 1) // s + 1, k, s, d, before)
        for n, k, s, d, before, behind in zip(spatial, size, strides, dilations, start, end, strict=True)
    )
