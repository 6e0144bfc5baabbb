"""Tiles: an invocation computes several neighbouring elements of the output at once, from what it reads only once.

A body of such a step defines ``fn tile(at: output_at) -> array<tile_s, n>``: the numbers, in the type that the body
has, of all elements of the tile whose first element is at ``at``, row by row. Sizes and coordinates count elements,
also where output and epilogue are packed. Elements beyond the edge of the output are computed and dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.kernels.walk import Walk, choose_walk
from dmlgpu.plan import Body, Held, Step, Tensor, apply

UNIT = 4
"""Neighbouring elements that are stored at once where they lie side by side."""

CONVERT = "elementwise/cast"

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Tiles(Step):
    """Computes the output tile by tile.

    Attributes:
        body: computes the numbers of a tile (see the module).
        tile: elements along each dimension of the output.
        epilogue: an element-wise tree over the output's sizes with a leaf ``Held`` that stands for the number; packed
            in units of four along the last dimension like the output, or not at all.
        output: where what becomes of the numbers goes.
    """

    body: Body
    tile: Sizes
    epilogue: Body
    output: Tensor

    @property
    def count(self) -> int:
        """Elements of a tile."""
        return math.prod(self.tile)

    @property
    def units(self) -> Sizes:
        """Units of the output along each dimension of a tile."""
        return (*self.tile[:-1], self.tile[-1] // self.output.lanes)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The dimensions that tiles do not divide, and the output's size along each."""
        sizes = enumerate(zip(self.output.sizes, self.units, strict=True))
        return tuple((dimension, size) for dimension, (size, units) in sizes if size % units)

    @property
    def walk(self) -> Walk:
        """The order of the tiles: neighbours in memory side by side."""
        steps = list(zip(self.output.sizes, self.output.strides, self.units, strict=True))
        sizes = tuple(-(-size // units) for size, _, units in steps)
        strides = tuple(stride * units for _, stride, units in steps)
        whole = replace(self.output, data_type=DataType.UINT32, sizes=sizes, strides=strides, offset=0, lanes=1)
        return choose_walk(whole)

    def places(self) -> Iterator[Sizes]:
        """Where each unit of a tile lies in it."""
        return itertools.product(*map(range, self.units))


def tiles(label: str, body: Body, tile: Sizes, epilogue: Body, output: Tensor) -> Tiles:
    """The step, packed where tile, output and epilogue allow."""
    last = output.rank - 1
    if tile[last] % UNIT == 0 and packs_tensor(output, last, UNIT) and packs_source(epilogue, last, UNIT):
        epilogue, output = pack_source(epilogue, last, UNIT), pack_tensor(output, last, UNIT)
    return Tiles(label, body, tile, epilogue, output)


def unchanged(data_type: DataType, sizes: Sizes) -> Body:
    """The epilogue that stores the numbers as they are."""
    return apply(CONVERT, data_type, sizes, portable=True, input=Held.product(data_type, sizes))
