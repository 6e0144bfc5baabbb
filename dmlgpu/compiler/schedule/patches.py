"""Patches: what tiles of a convolution's positions see of its input along one dimension, and how it is read.

Neighbouring windows overlap. A tile reads each element that its windows see once, where the input lets it in units of
four, and its windows find their elements among what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dmlgpu.compiler.plan import Source
from dmlgpu.compiler.plan.windows import WindowAxis, Windows
from dmlgpu.compiler.rewrites.packing import UNIT, in_pairs, is_paired, pack_source, packs_source
from dmlgpu.compiler.target import Profile, Target

MOST_ACROSS = 32
"""Places of a window along the last dimension up to which they are written out one by one."""

MOST_PLACES, MOST_PLACES_ON_GPU = 800, 320
"""Places, of all windows of a tile together, up to which they are written out one by one."""

MOST_ROWS, MOST_ROWS_ON_GPU = 4, 2
"""Rows of a tile: fewer where many invocations hide how long memory takes."""


@dataclass(frozen=True)
class Patch:
    """The elements that the windows of a tile see along an axis.

    The tile that starts at position p sees element ``e`` (counted from the first of its first window) at
    ``p * stride - start + e`` of the input.

    Attributes:
        axis: how the windows slide.
        tile: positions of a tile.
        lanes: elements of a unit, which is read at once.
        paired: units are read two at a time, the first of them at an even place.
    """

    axis: WindowAxis
    tile: int
    lanes: int = 1
    paired: bool = False

    def element(self, position: int, tap: int) -> int:
        """Return what a tap of the window sees at a position of the tile."""
        return position * self.axis.stride + tap * self.axis.dilation

    @property
    def seen(self) -> tuple[int, ...]:
        """All elements that some window sees."""
        taps, positions = range(self.axis.size), range(self.tile)
        return tuple(sorted({self.element(position, tap) for position in positions for tap in taps}))

    @property
    def step(self) -> int:
        """Units from what one tile sees to what the next one sees."""
        return self.tile * self.axis.stride // self.lanes

    @property
    def units(self) -> tuple[int, ...]:
        """The units that are read, counted from the unit where the tile's first position lies, times its stride."""
        needed = {self._unit(element) for element in self.seen}
        return tuple(sorted(needed | {unit ^ 1 for unit in needed} if self.paired else needed))

    @property
    def reads(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """What is read at once: the first unit, and the numbers of all in ``units``."""
        together = 2 if self.paired else 1
        for number, unit in list(enumerate(self.units))[::together]:
            yield unit, tuple(range(number, number + together))

    def _unit(self, element: int) -> int:
        return (element - self.axis.start) // self.lanes

    def is_checked(self, unit: int) -> bool:
        """Return whether a unit lies beside the input for some tile."""
        last = (-(-self.axis.positions // self.tile) - 1) * self.step
        return unit < 0 or last + unit >= self.axis.spatial // self.lanes

    def place(self, element: int) -> tuple[int, int]:
        """Return the number in ``units`` of the unit that holds an element, and the element's lane in it."""
        return self.units.index(self._unit(element)), (element - self.axis.start) % self.lanes

    def uses(self, element: int) -> Iterator[tuple[int, int]]:
        """Return the positions of the tile and the taps of the window that see an element there."""
        for position in range(self.tile):
            for tap in range(self.axis.size):
                if self.element(position, tap) == element:
                    yield position, tap


def packed_patch(source: Source, axis: WindowAxis, tile: int, target: Target) -> tuple[Source, Patch]:
    """Return the patch along the last dimension, and the source in units of four, or pairs of them, if it and the tile
    allow that."""
    last = len(source.sizes) - 1
    packs = tile * axis.stride % UNIT == 0 and axis.spatial % UNIT == 0 and packs_source(source, last, UNIT)
    if not packs:
        return source, Patch(axis, tile)
    units = pack_source(source, last, UNIT)
    if target.moves_doubles and tile * axis.stride % (2 * UNIT) == 0:
        units = in_pairs(units)
    return units, Patch(axis, tile, UNIT, is_paired(units))


def tile_columns(positions: int, target: Target) -> int:
    """Return the columns of a tile: one unit, or two on a CPU adapter if no tile is then less than half full."""
    two = target.profile is Profile.CPU and positions % (2 * UNIT) in (0, *range(UNIT + 1, 2 * UNIT))
    return 2 * UNIT if two else min(UNIT, positions)


def tile_rows(windows: Windows, columns: int, target: Target) -> int:
    """Return the rows of a tile; 0 where the last dimension but one is looped over, or missing.

    A single row shares nothing with others: on a CPU adapter, whose compiler takes seconds for a window that is written
    out, a loop does the same.
    """
    if len(windows) < 2:
        return 0
    *_, down, across = windows
    on_cpu = target.profile is Profile.CPU
    most = min(MOST_ROWS if on_cpu else MOST_ROWS_ON_GPU, down.positions)
    several, places = range(most, 1 if on_cpu else 0, -1), MOST_PLACES if on_cpu else MOST_PLACES_ON_GPU
    return next((rows for rows in several if rows * columns * down.size * across.size <= places), 0)
