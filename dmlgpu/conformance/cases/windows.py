"""Windows that slide over a tensor: the cases count for themselves, so a mistake of the kernels' geometry shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """A window that slides along one spatial dimension.

    Attributes:
        spatial: elements of the input.
        size: elements that the window sees.
        stride: elements from one position to the next.
        dilation: elements from one that the window sees to the next.
        start, end: elements of padding before and behind the input.
    """

    spatial: int
    size: int
    stride: int = 1
    dilation: int = 1
    start: int = 0
    end: int = 0

    @property
    def reach(self) -> int:
        """Elements from the first to the last one that the window sees."""
        return (self.size - 1) * self.dilation + 1

    @property
    def positions(self) -> int:
        """How many positions the padded input has room for; 0 or fewer where it is smaller than the window."""
        return (self.start + self.spatial + self.end - self.reach) // self.stride + 1

    @property
    def always_sees_input(self) -> bool:
        """Whether the window sees more than padding at every position."""
        firsts = (position * self.stride - self.start for position in range(self.positions))
        return all(any(0 <= at < self.spatial for at in range(at, at + self.reach, self.dilation)) for at in firsts)


Windows = tuple[Window, ...]
"""Along each spatial dimension."""


def sizes_of(windows: Windows) -> tuple[int, ...]:
    """How many elements a window sees along each dimension."""
    return tuple(window.size for window in windows)


def positions_of(windows: Windows) -> tuple[int, ...]:
    """How many positions it has along each dimension."""
    return tuple(window.positions for window in windows)
