"""Windows that slide over the spatial dimensions of a tensor: pooling, convolution, folding.

Two element bodies turn them into virtual tensors, which reductions and products then read without a copy in memory:

    taken     {lead.., positions.., window..}: what each place of the window sees at each position
    covering  {lead.., spatial.., taps..}: turned round: what lies at the positions whose windows cover this element of
              the input; a tap stands for a place of the window or, where these are fewer, for a position
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.enums import DataType
from dmlgpu.plan import Element, Source, constants

Sizes = tuple[int, ...]

TAKEN = "window/taken"
WITHIN = "window/within"
COVERING = "window/covering"


@dataclass(frozen=True)
class Axis:
    """How a window slides along one spatial dimension.

    Attributes:
        spatial: elements of the input.
        positions: positions of the window.
        size: places of the window.
        stride: elements from one position to the next.
        dilation: elements from one place of the window to the next.
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
        """Elements from the first to the last place of the window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def by_position(self) -> bool:
        """Whether what covers an element is looked for among all positions, because these are fewer than the places."""
        return self.positions < self.size

    def inside(self, position: int) -> range:
        """The places of the window that lie on the input at a position."""
        first = position * self.stride - self.start
        lowest = -(min(first, 0) // self.dilation)
        highest = min(self.size - 1, (self.spatial - 1 - first) // self.dilation)
        return range(lowest, highest + 1)


Windows: TypeAlias = tuple[Axis, ...]
"""How a window slides along each spatial dimension."""


def sizes_of(windows: Windows) -> Sizes:
    """The places of the window."""
    return tuple(axis.size for axis in windows)


def positions_of(windows: Windows) -> Sizes:
    """The positions of the window."""
    return tuple(axis.positions for axis in windows)


def taps_of(windows: Windows) -> Sizes:
    """How many positions may cover an element along each dimension."""
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
    """Windows with as many positions as the padded input has room for; 0 or fewer where it is smaller than the window.

    Args:
        start, end: elements of padding before and behind the input.
    """
    return tuple(
        Axis(n, (n + before + behind - (k - 1) * d - 1) // s + 1, k, s, d, before)
        for n, k, s, d, before, behind in zip(spatial, size, strides, dilations, start, end, strict=True)
    )


def taken(source: Source, windows: Windows) -> Element:
    """What the window sees: {lead.., positions.., window..}, 0 in the padding."""
    lead = len(source.sizes) - len(windows)
    return _body(TAKEN, source, source.sizes[:lead] + positions_of(windows) + sizes_of(windows), windows)


def within(lead: Sizes, windows: Windows) -> Element:
    """1 where the window sees an element of the input, 0 where padding: {lead.., positions.., window..}."""
    sizes = lead + positions_of(windows) + sizes_of(windows)
    return Element(WITHIN, DataType.UINT32, sizes, (), constants(lead=len(lead), axes=windows))


def covering(source: Source, windows: Windows, *, placed: bool = False) -> Element:
    """What covers each element of the input: {lead.., spatial.., taps..}, 0 where a tap stands for no position.

    Args:
        placed: the source has an element for each place of each position: {lead.., positions.., window..}.
    """
    lead = len(source.sizes) - len(windows) * (2 if placed else 1)
    sizes = source.sizes[:lead] + tuple(axis.spatial for axis in windows)
    return _body(COVERING, source, (*sizes, *taps_of(windows)), windows, placed=placed)


def _body(file: str, source: Source, sizes: Sizes, windows: Windows, **values: bool) -> Element:
    """An element body that hands the leading dimensions on."""
    lead = len(sizes) - 2 * len(windows)
    follows = tuple(dimension if dimension < lead else None for dimension in range(len(sizes)))
    known = constants(lead=lead, axes=windows, **values)
    return Element(file, source.data_type, sizes, (("input", source),), known, follows=(follows,))
